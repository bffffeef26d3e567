"""Whether the datasets library shows its progress bars: only while asked to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from datasets.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)


@contextmanager
def progress_bars(shown: bool) -> Iterator[None]:
    """Show or hide the bars inside the block, then leave the setting as it was."""
    were_hidden = are_progress_bars_disabled()
    (enable_progress_bars if shown else disable_progress_bars)()
    try:
        yield
    finally:
        (disable_progress_bars if were_hidden else enable_progress_bars)()
