"""The part of a recorded recipe that tables and reports read, and of which type it has to be.

Beside the record. A record of another version may have keys that this one does not know; what is read must be
what it says, or a table ends in an error about something else.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class _Read(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Length(_Read):
    epochs: float | None = None
    max_steps: int | None = None


class _Student(_Read):
    init: str | None = None
    layers: int | list[int] | dict[str, int | list[int]] | None = None


class _Recipe(_Length):
    student: _Student | None = None
    first_stage: _Length | None = None
    label_noise: float | None = None
    max_length: int | None = None
    train_rows: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    joint: bool | None = None


def readable_recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe itself. Raises ValueError naming the keys that hold what they cannot."""
    try:
        _Recipe.model_validate(recipe)
    except ValidationError as error:
        keys = dict.fromkeys(str(item["loc"][0]) for item in error.errors())
        raise ValueError(f"its recipe cannot be read: {', '.join(keys)}") from None
    return recipe
