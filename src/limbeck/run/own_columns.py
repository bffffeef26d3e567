"""Columns of a user's own data that nobody named. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from limbeck.data.own import is_own, split_files
from limbeck.data.streams import RowStream
from limbeck.data.usual_columns import usual_label, usual_texts
from limbeck.errors import LimbeckError
from limbeck.files import at_home
from limbeck.given import place_of
from limbeck.recipe import Recipe
from limbeck.tasks import SENTENCE, TASKS

_FIRST_ROWS = 100


def with_columns(recipe: Recipe) -> Recipe:
    """Name the columns of a user's own classes or numbers, where the recipe names none.

    The recipe then says what was read, as does every command that repeats it. What is not clear stays open, for the
    reader of the rows to say.
    """
    own = recipe.task not in TASKS and recipe.kind in (None, SENTENCE.name)
    path = at_home(place_of(recipe.data))
    if not own or recipe.text_columns or recipe.label_column or not is_own(path):
        return recipe
    found = _found(path)
    if found is None:
        return recipe
    return recipe.model_copy(update={"text_columns": found[0], "label_column": found[1]})


def _found(path: Path) -> tuple[list[str], str] | None:
    """Text columns and label column of usual names, by a file's first rows; None where it is not clear."""
    try:
        file = split_files(path)["train"] if path.is_dir() else path
        stream = RowStream([file])
        rows = stream.take(_FIRST_ROWS)
        stream.close()
    except (LimbeckError, OSError):  # said where the rows are read
        return None
    (columns,) = stream.heads.values()
    label = usual_label(columns)
    if rows is None or label is None:
        return None
    words = [name for name in columns if name != label and _is_text(rows.values(name))]
    texts = usual_texts(words)
    return (texts, label) if texts else None


def _is_text(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, str) for value in known)
