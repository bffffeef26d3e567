"""`--data FILE --kind multi-label`: a user's own rows of several classes each.

A source of the data stage, beside `own`. A single file is divided into train, dev and test; a folder may hold
train, dev (or validation) and test files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from datasets import DatasetDict

from limbeck.data.endings import stem_of
from limbeck.data.own import (
    groups_of,
    missing_column,
    named_columns,
    one_file,
    split_files,
    text_of,
    written_labels,
)
from limbeck.data.own_labels import Labelling, class_order
from limbeck.data.several_label_cells import (
    Sets,
    cells_as_sets,
    columns_as_sets,
    separator_of,
    some,
)
from limbeck.data.splits import AS_USUAL, Division, check_splits, make_split, with_held_out
from limbeck.data.tables import MAX_ROWS, FileTable, read_table
from limbeck.students import generic_labels
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import TaskType
from limbeck.tasks.known_types import marked
from limbeck.tasks.multi_label import METRICS_OF_SEVERAL
from limbeck.tasks.task import Task

_ANY = Labelling()


def read_several_labels(
    name: str | None,
    path: Path,
    kind: TaskType,
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    labelling: Labelling = _ANY,
    seed: int = 0,
    for_training: bool = True,
    max_rows: int = MAX_ROWS,
    named: Mapping[str, Path] = MappingProxyType({}),
    division: Division = AS_USUAL,
) -> tuple[Task, DatasetDict]:
    """The task and splits of a file, or of a folder with a train file; `named` and `division` as of `read_own`.

    Without a label column the classes (or the teacher's names of them) are columns of 0 and 1. Raises
    LimbeckError for missing columns, labels that cannot be read, and classes that are not known.
    """
    if labelling.holds == "numbers":
        raise LimbeckError(f"labels: numbers, and kind {kind.name} has classes", "leave it out")
    files = split_files(path) if path.is_dir() else one_file(path, named)
    tables = {split: read_table(file, max_rows) for split, file in files.items()}
    columns = _columns_of_classes(tables["train"], labelling) if label_column is None else ()
    texts, label = named_columns(tables, None, text_columns, label_column, need_label=not columns)
    if label is None:
        sets = {split: columns_as_sets(table, columns, split) for split, table in tables.items()}
    else:
        sets = _of_column(tables, label, labelling)
    names = columns if label is None else _classes(sets, label, labelling, tables)
    _check(sets, names, tables)
    task = Task(
        name or stem_of(path.resolve()),
        name or stem_of(path.resolve()),
        ("sentence",) if len(texts) == 1 else ("sentence1", "sentence2"),
        names,
        METRICS_OF_SEVERAL,
        METRICS_OF_SEVERAL[0],
        kind=kind,
        said=_said(label, names, sets),
    )
    splits = DatasetDict()
    for split, table in tables.items():
        text = {
            ours: text_of(table, theirs)
            for ours, theirs in zip(task.text_columns, texts, strict=True)
        }
        rows = sets[split]
        values = None if rows is None else marked(task, _zeros_and_ones(rows, names))
        if not for_training and list(tables) == ["train"]:
            splits["dev"] = make_split(task, text, values)
        elif split == "train" and values is not None:
            shares = division.beside(tables)
            groups = groups_of(table, division.group_column)
            splits |= with_held_out(task, text, values, seed, shares, groups)
        else:
            splits[split] = make_split(task, text, values)
    check_splits(task, splits, str(path), for_training=for_training)
    return task, splits


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
