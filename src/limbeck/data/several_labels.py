"""`--data FILE --kind multi-label`: a user's own rows of several classes each. Part of `limbeck.data`.

A file has them as lists, as separated names, or as a column of 0 and 1 for each class. A row's labels come out as the
set of its classes' names, None for a row that has no labels (which is another thing than being of no class).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from limbeck.data import own
from limbeck.data.label_column import Labelling, check_spellings, class_order, some_of
from limbeck.data.reader import DataRequest, Loaded, OnDisk, data_reader
from limbeck.data.table import FileTable
from limbeck.students import generic_labels
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks.classes import METRICS_OF_SEVERAL
from limbeck.tasks.task import Task

Sets = list[frozenset[str] | None]
"""By row the names of its classes; None if they are unknown."""

_USUAL = (",", ";", "|")
_YES, _NO = frozenset({1, "1", "1.0", "true"}), frozenset({0, "0", "0.0", "false"})


@data_reader("several labels")
class OwnSeveralLabels(OnDisk):
    """A table of texts with any number of classes a row, or a folder with a train table."""

    takes_dev = True
    divides = True

    def reads(self, request: DataRequest) -> bool:
        """Where a row may be of several classes."""
        return super().reads(request) and request.task_type.row_layout == "several labels"

    def read_rows(self, request: DataRequest) -> Loaded:
        """A column of lists or of separated names, or a column of 0 and 1 for each class (or the teacher's)."""
        kind, labelling, given = request.task_type, request.labelling, request.label_column
        if labelling.holds == "numbers":
            raise LimbeckError(f"labels: numbers, and kind {kind.name} has classes", "leave it out")
        tables = own.read_tables(request)
        names = _columns_of_classes(tables["train"], labelling) if given is None else ()
        texts, label = own.named_columns(tables, request, need_label=not names)
        if label is None:
            sets = {split: _of_columns(table, names, split) for split, table in tables.items()}
        else:
            sets = _of_column(tables, label, labelling)
            names = _classes(sets, label, labelling, tables)
        _check(sets, names, tables)
        name, primary = request.new_name, METRICS_OF_SEVERAL[0]
        task = Task(
            name, name, own.our_columns(len(texts)), names, METRICS_OF_SEVERAL, primary, kind=kind,
            said=_said(label, names, sets),
        )  # fmt: skip
        labels: dict[str, list[Any] | None] = {
            split: rows
            and [
                None if row is None else [1.0 if one in row else 0.0 for one in names]
                for row in rows
            ]
            for split, rows in sets.items()
        }
        return task, own.splits_of_tables(request, task, tables, texts, labels)


# ---- a column for each class ----


def _columns_of_classes(train: FileTable, labelling: Labelling) -> tuple[str, ...]:
    """The classes that columns are named after: the given ones, otherwise the teacher's if they exist."""
    there = labelling.teacher if set(labelling.teacher) <= set(train.columns) else ()
    return labelling.classes or there


def _of_columns(table: FileTable, classes: Sequence[str], split: str) -> Sets | None:
    """The sets of columns of 0 and 1; None of a test split that lacks them.

    Raises:
        LimbeckError: columns that are not there, values that are neither, rows that leave some of them blank.
    """
    if split == "test" and not set(classes) & set(table.columns):
        return None
    table.need(
        classes, fix="classes names a column of 0 and 1 for each class, or give label_column"
    )
    found: Sets = []
    columns = (table.columns[name].shared() for name in classes)
    for row, values in enumerate(zip(*columns, strict=True), start=1):
        if split == "train" and all(value in (None, "") for value in values):
            found.append(None)
            continue
        said = [value.strip().lower() if isinstance(value, str) else value for value in values]
        for name, one, value in zip(classes, said, values, strict=True):
            if not isinstance(one, str | int | float) or one not in _YES | _NO:
                raise LimbeckError(
                    f"{table.path}, row {row}: {name} is {value!r:.60}",
                    "write 1 if the row is of the class, otherwise 0",
                )
        ticked = zip(classes, said, strict=True)
        found.append(frozenset(name for name, one in ticked if one in _YES))
    return found


# ---- one column ----


def _of_column(
    tables: Mapping[str, FileTable], label: str, labelling: Labelling
) -> dict[str, Sets | None]:
    """The sets of one column, by split; None of a split without any."""
    cells = {split: own.written_labels(table, label, split) for split, table in tables.items()}
    if not cells.get("dev"):
        tables["train"].need([label], "label column")
    separator = labelling.separator or _separator(_flat(cells.values()), label)
    known = labelling.classes or labelling.teacher
    numbered = () if generic_labels(known) else known
    return {
        split: values and _cells_as_sets(tables[split], label, values, separator, numbered)
        for split, values in cells.items()
    }


def _flat(columns: Iterable[list[Any] | None]) -> list[Any]:
    """All values, one column after another."""
    return [value for column in columns for value in column or ()]


def _separator(cells: Sequence[Any], column: str) -> str:
    """The separator between the names of text cells: the one of , ; | that occurs.

    Raises:
        LimbeckError: several of them occur.
    """
    texts = [cell for cell in cells if isinstance(cell, str)]
    found = [one for one in _USUAL if any(one in text for text in texts)]
    if len(found) > 1:
        example = next(text for text in texts if found[1] in text)
        raise LimbeckError(
            f"label column {column!r} holds {' and '.join(map(repr, found))}, as in {example[:60]!r}, and which "
            "of them separates labels is not clear",
            f"label_separator={found[0]!r} or {found[1]!r}",
        )
    return found[0] if found else _USUAL[0]


def _cells_as_sets(
    table: FileTable, column: str, cells: Sequence[Any], separator: str, numbered: Sequence[str]
) -> Sets:
    """The cells of one label column, lists or separated names.

    `numbered`: names of classes by id, for lists of numbers.

    Raises:
        LimbeckError: values that are neither list nor text, names mixed with numbers, empty names, a list in quotes,
            two spellings of a class.
    """
    if _are_ticked(cells):
        return _of_ticks(table, column, cells, numbered)
    values = _flat(cell if isinstance(cell, list) else [cell] for cell in cells)
    kinds = {type(value): value for value in values if type(value) in (str, int)}
    if len(kinds) > 1:  # a 3 could be a class of its own, or one of the names
        raise LimbeckError(
            f"{table.path}: {column} holds names ({kinds[str]!r:.60}) and numbers ({kinds[int]})",
            "write only names, or only integers; quote a name that is a number",
        )
    rows = [
        None
        if cell is None
        else _names(f"{table.path}, row {row}: {column}", cell, separator, numbered)
        for row, cell in enumerate(cells, start=1)
    ]
    check_spellings(Counter(_flat(rows)), column, table.path)
    return [None if row is None else frozenset(row) for row in rows]


def _are_ticked(cells: Sequence[Any]) -> bool:
    """Whether lists hold 0 or 1 for each class, and not ids: all are of one length, and ids would not repeat."""
    lists = [cell for cell in cells if cell is not None]
    if not lists or not all(isinstance(cell, list) for cell in lists):
        return False
    ticks = all(isinstance(one, int | float) and one in (0, 1) for one in _flat(lists))
    repeats = any(len({*cell}) < len(cell) for cell in lists) if ticks else False
    return repeats and len({len(cell) for cell in lists}) == 1 and len(lists[0]) > 1


def _of_ticks(table: FileTable, column: str, cells: Sequence[Any], classes: Sequence[str]) -> Sets:
    """Lists of 0 and 1 in the order of the classes. Raises LimbeckError for another number of classes."""
    width = next(len(cell) for cell in cells if cell is not None)
    if len(classes) != width:
        known = f"{len(classes)} are named: {some_of(classes)}" if classes else "they have no names"
        raise LimbeckError(
            f"{table.path}: {column} holds lists of {width} times 0 or 1, a class each, and {known}",
            "name the classes in the order of the lists, classes=[…], or write the names of each row's classes",
        )
    return [
        cell and frozenset(name for name, one in zip(classes, cell, strict=True) if one)
        for cell in cells
    ]


def _names(where: str, cell: Any, separator: str, numbered: Sequence[str]) -> list[str]:
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
    if isinstance(value, str) and value != value.strip():
        raise LimbeckError(f"{where}: {value!r} has spaces at its ends", "take them out")
    if isinstance(value, str) or (type(value) is int and not numbered):
        return str(value)
    if type(value) is int and 0 <= value < len(numbered):
        return numbered[value]
    known = f"classes by number are 0 to {len(numbered) - 1}"
    raise LimbeckError(
        f"{where} holds {value!r:.60}", known if numbered else "write names, or integers"
    )


def _classes(
    sets: Mapping[str, Sets | None],
    label: str,
    labelling: Labelling,
    tables: Mapping[str, FileTable],
) -> tuple[str, ...]:
    """All classes in id order: if no training row has a label, the dev split gives them.

    A Parquet file of the datasets library names them itself.
    """
    found = next((s for t in tables.values() if (s := t.class_names.get(label))), None)
    if not found:
        first = next((rows for rows in sets.values() if rows and any(rows)), [])
        names = {name for row in first for name in row or ()}
        whole = all(re.fullmatch("[0-9]{1,18}", name) for name in names)
        found = sorted(names, key=lambda name: int(name) if whole else name)
    return class_order(found, labelling, f"label column {label!r}")


# ---- all of them ----


def _check(
    sets: Mapping[str, Sets | None], names: Sequence[str], tables: Mapping[str, FileTable]
) -> None:
    """Raise LimbeckError for too few or too many classes, unknown ones, and rows that should have labels."""
    train = tables["train"].path
    if not any(_flat(sets.values())):
        raise LimbeckError(
            f"{train}: none of its rows is of any class",
            "check label_column, and that its cells hold the names of classes",
        )
    if len(names) < 2:
        raise LimbeckError(
            f"{train}: its labels name one class alone: {', '.join(names)}",
            "several labels a row need two classes or more; of one class use kind sentence with two names",
        )
    rows = sum(map(len, tables.values()))
    if len(names) > max(2, rows // 2):
        raise LimbeckError(
            f"{train}: the labels name {len(names)} classes in {rows} rows: {some_of(names)}",
            "check label_column, and that label_separator is the text between names",
        )
    for split, found in sets.items():
        for row, labels in enumerate(found or (), start=1):
            where = f"{tables[split].path}, row {row}"
            if labels is None and split != "train":
                raise LimbeckError(
                    f"{where} has no labels",
                    "list its classes, [] for a row of no class, or remove the row",
                )
            if strange := sorted((labels or frozenset()) - {*names}):
                raise LimbeckError(
                    f"{where}: the class {strange[0]!r}, which train has not",
                    f"classes of train: {some_of(names)}; classes=[…] names all, also those without rows",
                )


def _said(label: str | None, names: Sequence[str], sets: Mapping[str, Sets | None]) -> Problem:
    """The note on how the labels were read."""
    known = [row for row in _flat(sets.values()) if row is not None]
    where = "columns of 0 and 1" if label is None else f"label column {label!r}"
    each = sum(map(len, known)) / max(len(known), 1)
    return Problem(
        f"{where}: {len(names)} classes, {some_of(names)}; {each:.2g} a row on average, "
        f"{sum(not row for row in known)} of {len(known)} rows of no class",
        "classes=[…] sets another order, label_separator the text between names",
        "note",
    )
