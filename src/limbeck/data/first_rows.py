"""The first rows of a user's own file: which columns it has, and which of them hold text or labels.

Part of `limbeck.data`. A look at a file before it is read as a whole, without an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.data.endings import form_of
from limbeck.data.files import class_columns
from limbeck.data.own import is_own, split_files
from limbeck.data.stream import RowStream
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.support.given import place_of

_ROWS = 100
_MOST_CLASSES = 20


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a file.

    Attributes:
        columns: values by column, None where a row has none.
        class_columns: columns whose class names a Parquet file states.
        plain: whether the file is plain text, whose column is its whole line.
    """

    columns: Mapping[str, Sequence[Any]]
    class_columns: tuple[str, ...]
    plain: bool = False

    @classmethod
    def of(cls, source: str | Path) -> FirstRows | None:
        """Read them from a file or the train file of a folder; None where there is none that can be read."""
        try:
            path = at_home(place_of(source))
            if not is_own(path):
                return None
            file = split_files(path)["train"] if path.is_dir() else path
            stream = RowStream([file])
            rows = stream.take(_ROWS)
            stream.close()
            classes = class_columns(file)
        except (LimbeckError, OSError):  # said where the rows are read
            return None
        (names,) = stream.heads.values()
        if rows is None:
            return None
        return cls({name: rows.values(name) for name in names}, classes, form_of(file) == "text")

    @property
    def words(self) -> list[str]:
        """The columns that hold text."""
        return [name for name, values in self.columns.items() if _is_text(values)]

    @property
    def other_values(self) -> dict[str, Any]:
        """The first value that is no text, of each column that has one."""
        found = {
            name: next((value for value in _known(values) if not isinstance(value, str)), None)
            for name, values in self.columns.items()
        }
        return {name: value for name, value in found.items() if value is not None}

    @property
    def like_labels(self) -> list[str]:
        """Columns of few values that repeat, or of numbers with fractions."""
        return [name for name, values in self.columns.items() if _is_like_label(values)]


def _known(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value not in (None, "")]


def _is_text(values: Sequence[Any]) -> bool:
    known = _known(values)
    return bool(known) and all(isinstance(value, str) for value in known)


def _is_like_label(values: Sequence[Any]) -> bool:
    known = _known(values)
    if not all(isinstance(value, str | int | float) for value in known):
        return False
    several = len({*known})
    return 1 < several <= min(_MOST_CLASSES, len(known) // 2) or (
        several > 1 and all(_is_fraction(value) for value in known)
    )


def _is_fraction(value: Any) -> bool:
    try:
        return "." in str(value) and float(value) is not None
    except ValueError:
        return False
