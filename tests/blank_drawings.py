"""Drawings that nobody looks at: half of a run's time would go into its page's."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

_LAY_OUT, _SAVE = ConstrainedLayoutEngine.execute, Figure.savefig
_BLANK = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"></svg>'


def draw(really: bool) -> None:
    """From now on drawings are as users see them, or blank."""
    Figure.savefig = _SAVE if really else _save_blank
    ConstrainedLayoutEngine.execute = _LAY_OUT if really else lambda *_: None


def _save_blank(_figure: Figure, to: Any, **_: Any) -> None:
    if not hasattr(to, "write"):
        Path(to).write_text(_BLANK)
    else:
        to.write(_BLANK if isinstance(to, io.TextIOBase) else _BLANK.encode())
