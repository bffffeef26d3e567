"""Several labels of each row as a file has them: lists, separated names, or a column of 0 and 1 for each class.

Below `own_several_labels`. A row's labels come out as the set of its classes' names, None for a row that has no
labels (which is another thing than being of no class).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.data.tables import FileTable
from limbeck.data.written_labels import check_spellings
from limbeck.support.errors import LimbeckError

logger = logging.getLogger(__name__)

Sets = list[frozenset[str] | None]
"""By row the names of its classes; None where nobody says."""

_USUAL = (",", ";", "|")
_YES, _NO = frozenset({1, "1", "1.0", "true"}), frozenset({0, "0", "0.0", "false"})
_SHOWN = 8


def separator_of(columns: Mapping[Path, Sequence[Any]], column: str, given: str | None) -> str:
    """What stands between the names of text cells: as given, else the one of , ; | that occurs.

    Raises:
        LimbeckError: several of them occur.
    """
    if given is not None:
        return given
    texts = [cell for cells in columns.values() for cell in cells if isinstance(cell, str)]
    found = [one for one in _USUAL if any(one in text for text in texts)]
    if len(found) > 1:
        example = next(text for text in texts if found[1] in text)
        raise LimbeckError(
            f"label column {column!r} holds {' and '.join(map(repr, found))}, as in {example[:60]!r}, and which "
            "of them separates labels is not clear",
            f"label_separator={found[0]!r} or {found[1]!r}",
        )
    return found[0] if found else _USUAL[0]


def cells_as_sets(
    path: Path, column: str, cells: Sequence[Any], separator: str, numbered: Sequence[str]
) -> Sets:
    """The cells of one label column, lists or separated names.

    `numbered`: names of classes by id, for lists of numbers.

    Raises:
        LimbeckError: what is no list and no text, names beside numbers, empty names, a list in quotes, two spellings of
            a class.
    """
    if _are_ticked(cells):
        return _of_ticks(path, column, cells, numbered)
    _check_one_way(path, column, cells)
    rows = [
        _names(path, row, column, cell, separator, numbered) for row, cell in enumerate(cells, 1)
    ]
    counts = Counter(name for row in rows if row is not None for name in row)
    check_spellings(counts, column, path)
    twice = [at for at, row in enumerate(rows, start=1) if row and len(set(row)) < len(row)]
    if twice:
        logger.warning(
            "%s: %d of %d rows have a label twice in %s, the first is row %d; it counts once",
            path, len(twice), len(rows), column, twice[0],
        )  # fmt: skip
    return [None if row is None else frozenset(row) for row in rows]


def _check_one_way(path: Path, column: str, cells: Sequence[Any]) -> None:
    """Raise LimbeckError where some classes are written by name and others by number: a 3 beside names would be a class
    of its own, or one of the names."""
    first: dict[type, tuple[Any, int]] = {}
    for row, cell in enumerate(cells, start=1):
        for value in cell if isinstance(cell, list) else [cell] if isinstance(cell, str) else []:
            if type(value) in (str, int):
                first.setdefault(type(value), (value, row))
    if len(first) > 1:
        (name, named), (number, numbered) = first[str], first[int]
        raise LimbeckError(
            f"{path}: {column} holds names ({name!r:.60} in row {named}) and numbers ({number} in row {numbered})",
            "write names alone, or whole numbers alone; a name that is a number stands in quotes",
        )


def _are_ticked(cells: Sequence[Any]) -> bool:
    """Whether lists hold 0 or 1 for each class, and not ids: all are of one length, and ids would not repeat."""
    lists = [cell for cell in cells if cell is not None]
    if not lists or not all(isinstance(cell, list) for cell in lists):
        return False
    flat = [value for cell in lists for value in cell]
    if not all(isinstance(value, int | float) and value in (0, 1) for value in flat):
        return False
    of_one_length = len({len(cell) for cell in lists}) == 1 and len(lists[0]) > 1
    return of_one_length and any(len({*cell}) < len(cell) for cell in lists)


def _of_ticks(path: Path, column: str, cells: Sequence[Any], classes: Sequence[str]) -> Sets:
    """Lists of 0 and 1 in the order of the classes.

    Raises:
        LimbeckError: there are not as many names of classes.
    """
    width = next(len(cell) for cell in cells if cell is not None)
    if len(classes) != width:
        known = f"{len(classes)} are named: {some(classes)}" if classes else "nobody names them"
        raise LimbeckError(
            f"{path}: {column} holds lists of {width} times 0 or 1, a class each, and {known}",
            "name the classes in the order of the lists, classes=[…], or write the names of each row's classes",
        )
    return [
        None
        if cell is None
        else frozenset(name for name, one in zip(classes, cell, strict=True) if one)
        for cell in cells
    ]


def _names(
    path: Path, row: int, column: str, cell: Any, separator: str, numbered: Sequence[str]
) -> list[str] | None:
    if cell is None:
        return None
    where = f"{path}, row {row}: {column}"
    if isinstance(cell, str):
        text = cell.strip()
        if text.startswith("[") and text.endswith("]"):
            raise LimbeckError(
                f"{where} is {cell[:60]!r}, a list as text",
                "write the names alone, separated (a, b), or save the rows as JSON lines or Parquet",
            )
        names = [name.strip() for name in text.split(separator)] if text else []
    elif isinstance(cell, list):
        names = [_name(where, one, numbered) for one in cell]
    else:
        raise LimbeckError(
            f"{where} is {cell!r:.60}, expected a list of classes or their names as text",
            'write ["a", "b"], [] for a row of no class; of a column of 0 and 1 for each class leave '
            "label_column out and name those columns as classes",
        )
    if not all(names):
        raise LimbeckError(f"{where} is {cell!r:.60}, and one of its names is empty", "take it out")
    return names


def _name(where: str, value: Any, numbered: Sequence[str]) -> str:
    if isinstance(value, str):
        if value != value.strip():
            raise LimbeckError(f"{where}: {value!r} has spaces at its ends", "take them out")
        return value
    if type(value) is int:
        if not numbered:
            return str(value)
        if 0 <= value < len(numbered):
            return numbered[value]
    raise LimbeckError(
        f"{where} holds {value!r:.60}",
        f"classes by number are 0 to {len(numbered) - 1}"
        if numbered
        else "write names, or whole numbers",
    )


def columns_as_sets(table: FileTable, classes: Sequence[str], split: str) -> Sets | None:
    """A column of 0 and 1 for each class; None of a test split that lacks them.

    Raises:
        LimbeckError: columns that are not there, values that are neither, rows that leave some of them blank.
    """
    lacking = [name for name in classes if name not in table.columns]
    if lacking:
        if split == "test" and len(lacking) == len(classes):
            return None
        raise LimbeckError(
            f"{table.path} has no column {', '.join(map(repr, lacking))}",
            f"classes names a column of 0 and 1 for each class, or give label_column; there are: "
            f"{', '.join(table.columns)}",
        )
    columns = [table.columns[name].shared() for name in classes]
    rows = enumerate(zip(*columns, strict=True), start=1)
    return [_ticked(table.path, row, classes, values, split) for row, values in rows]


def _ticked(
    path: Path, row: int, classes: Sequence[str], values: Sequence[Any], split: str
) -> frozenset[str] | None:
    if split == "train" and all(value in (None, "") for value in values):
        return None
    said = {name: _plain(value) for name, value in zip(classes, values, strict=True)}
    for name, value in zip(classes, values, strict=True):
        if said[name] not in _YES | _NO:
            raise LimbeckError(
                f"{path}, row {row}: {name} is {value!r:.60}",
                "write 1 where the row is of the class, else 0",
            )
    return frozenset(name for name, one in said.items() if one in _YES)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip().lower()
    return value if isinstance(value, int | float) else None


def some(names: Iterable[str]) -> str:
    """The first names, and how many more."""
    listed = list(names)
    rest = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
