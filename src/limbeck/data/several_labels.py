"""`--data FILE --kind multi-label`: a user's own rows of several classes each.

A source of the data stage, beside `own`. A single file is divided into train, dev and test; a folder may hold
train, dev (or validation) and test files.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.data.label_column import Labelling, class_order
from limbeck.data.own import (
    files_of,
    missing_column,
    named_columns,
    splits_of_tables,
    written_labels,
)
from limbeck.data.reader import DataRequest, Loaded
from limbeck.data.table import FileTable, read_table
from limbeck.data.written_labels import check_spellings
from limbeck.students import generic_labels
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks.classes import METRICS_OF_SEVERAL
from limbeck.tasks.task import Task

# Several labels of each row as a file has them: lists, separated names, or a column of 0 and 1 for
# each class. A row's labels come out as the set of its classes' names, None for a row that has no
# labels (which is another thing than being of no class).


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


def read_several_labels(request: DataRequest) -> Loaded:
    """Read the task and splits of a file, or of a folder with a train file.

    Without a label column the classes (or the teacher's names of them) are columns of 0 and 1. Raises
    LimbeckError for missing columns, labels that cannot be read, and classes that are not known.
    """
    kind, labelling = request.task_type, request.labelling
    if labelling.holds == "numbers":
        raise LimbeckError(f"labels: numbers, and kind {kind.name} has classes", "leave it out")
    files = files_of(request.path, request.files)
    tables = {split: read_table(file, request.max_rows) for split, file in files.items()}
    given = request.label_column
    columns = _columns_of_classes(tables["train"], labelling) if given is None else ()
    texts, label = named_columns(tables, None, request.text_columns, given, need_label=not columns)
    if label is None:
        sets = {split: columns_as_sets(table, columns, split) for split, table in tables.items()}
    else:
        sets = _of_column(tables, label, labelling)
    names = columns if label is None else _classes(sets, label, labelling, tables)
    _check(sets, names, tables)
    task = Task(
        request.new_name,
        request.new_name,
        ("sentence",) if len(texts) == 1 else ("sentence1", "sentence2"),
        names,
        METRICS_OF_SEVERAL,
        METRICS_OF_SEVERAL[0],
        kind=kind,
        said=_said(label, names, sets),
    )
    labels = {
        split: None if rows is None else _zeros_and_ones(rows, names)
        for split, rows in sets.items()
    }
    return task, splits_of_tables(request, task, tables, texts, labels)


def _columns_of_classes(train: FileTable, labelling: Labelling) -> tuple[str, ...]:
    """The classes that columns are named after: those given, else the teacher's if they are there."""
    if labelling.classes:
        return labelling.classes
    there = bool(labelling.teacher) and set(labelling.teacher) <= set(train.columns)
    return labelling.teacher if there else ()


def _of_column(
    tables: dict[str, FileTable], label: str, labelling: Labelling
) -> dict[str, Sets | None]:
    """The sets of one column, by split; None of a split without any."""
    cells = {split: written_labels(table, label, split) for split, table in tables.items()}
    if cells["train"] is None and not cells.get("dev"):
        raise LimbeckError(missing_column(tables["train"], "label column", [label]))
    written = {tables[split].path: values for split, values in cells.items() if values is not None}
    separator = separator_of(written, label, labelling.separator)
    known = labelling.classes or labelling.teacher
    numbered = () if generic_labels(known) else known
    return {
        split: None
        if values is None
        else cells_as_sets(tables[split].path, label, values, separator, numbered)
        for split, values in cells.items()
    }


def _classes(
    sets: dict[str, Sets | None],
    label: str,
    labelling: Labelling,
    tables: Mapping[str, FileTable],
) -> tuple[str, ...]:
    """All classes in id order: of training rows without any label the dev split says which there are.

    A Parquet file of the datasets library names them itself.
    """
    if stored := next((s for t in tables.values() if (s := t.class_names.get(label))), None):
        return class_order(stored, labelling, f"label column {label!r}")
    first = next((rows for rows in sets.values() if rows and any(rows)), [])
    found = {name for row in first for name in row or ()}
    whole = all(re.fullmatch("[0-9]{1,18}", name) for name in found)
    ordered = sorted(found, key=lambda name: int(name) if whole else name)
    return class_order(ordered, labelling, f"label column {label!r}")


def _check(
    sets: dict[str, Sets | None], names: Sequence[str], tables: dict[str, FileTable]
) -> None:
    """Raise LimbeckError for too few or too many classes, unknown ones, and rows that should have labels."""
    if not any(row for found in sets.values() for row in found or ()):
        raise LimbeckError(
            f"{tables['train'].path}: none of its rows is of any class",
            "check label_column, and that its cells hold the names of classes",
        )
    if len(names) < 2:
        raise LimbeckError(
            f"{tables['train'].path}: its labels name one class alone: {', '.join(names)}",
            "several labels a row need two classes or more; of one class use kind sentence with two names",
        )
    rows = sum(len(table) for table in tables.values())
    if len(names) > max(2, rows // 2):
        raise LimbeckError(
            f"{tables['train'].path}: the labels name {len(names)} classes in {rows} rows: {some(names)}",
            "check label_column, and that label_separator is what stands between names",
        )
    for split, found in sets.items():
        for row, labels in enumerate(found or (), start=1):
            if labels is None and split != "train":
                raise LimbeckError(
                    f"{tables[split].path}, row {row} has no labels",
                    "say which it has, [] for a row of no class, or remove the row",
                )
            strange = sorted((labels or frozenset()) - {*names})
            if strange:
                raise LimbeckError(
                    f"{tables[split].path}, row {row}: the class {strange[0]!r}, which train has not",
                    f"classes of train: {some(names)}; classes=[…] names all, also those without rows",
                )


def _zeros_and_ones(rows: Sets, names: Sequence[str]) -> list[list[float] | None]:
    return [
        None if row is None else [1.0 if name in row else 0.0 for name in names] for row in rows
    ]


def _said(label: str | None, names: Sequence[str], sets: dict[str, Sets | None]) -> Problem:
    """What was understood."""
    known = [row for rows in sets.values() for row in rows or () if row is not None]
    where = "columns of 0 and 1" if label is None else f"label column {label!r}"
    each = sum(map(len, known)) / max(len(known), 1)
    none = sum(not row for row in known)
    return Problem(
        f"{where}: {len(names)} classes, {some(names)}; {each:.2g} a row on average, {none} of {len(known)} "
        "rows of no class",
        "classes=[…] gives another order, label_separator what stands between names",
        "note",
    )
