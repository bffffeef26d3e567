"""What every part of a record has in common. Part of `limbeck.records`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

Numbers = dict[str, float | None]
"""Named numbers; None stands for a value that was not finite (JSON has no NaN)."""


class RecordPart(BaseModel):
    """Some of what is known about a run."""

    # Unknown keys are kept: a record read, extended and saved again loses nothing.
    model_config = ConfigDict(extra="allow", validate_assignment=True, populate_by_name=True)


def finite(value: Any) -> Any:
    """The same structure with every float that is not finite replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    # NumPy and torch scalars: JSON knows only Python's own numbers.
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return finite(value.item())
    return value
