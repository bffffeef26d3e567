"""`--data FILE --text-columns … --label-column …`: a user's own data.

A source of the data stage. A single file is divided into train, dev and test (`splits`); a folder
may hold train, dev (or validation) and test files. What its labels are is for `label_column` to say.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import DatasetDict

from limbeck.data.files import FORMS, ending_of, form_of, known_endings, stem_of
from limbeck.data.glue import contents, task_of_folder, tasks_inside
from limbeck.data.label_column import LabelColumn, read_labels
from limbeck.data.reader import DataRequest, Loaded
from limbeck.data.splits import check_splits, make_split, with_held_out
from limbeck.data.stream import RowStream
from limbeck.data.table import FileTable, read_table, usual_label, usual_texts
from limbeck.data.written_labels import check_written_labels, without_gaps
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home
from limbeck.support.given import place_of
from limbeck.tasks.abstract_type import marked
from limbeck.tasks.metrics import TEACHER_LABEL
from limbeck.tasks.task import TASKS, Task

_STEMS = {"train": ("train",), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
_SECRET: tuple[tuple[Any, ...], ...] = ((None, ""), (-1,), ("-1",))
# The IMDb table that circulates as one CSV file, and the names of its columns and classes.
IMDB_COLUMNS = {"text": "review", "label": "sentiment"}
_IMDB_CLASSES = {"negative": "neg", "positive": "pos"}

Rows = tuple[Mapping[str, Sequence[Any]], Sequence[Any] | None]
"""One split: its text columns by name, and its labels where it has any."""


def read_own(request: DataRequest) -> Loaded:
    """Read the task and splits of a file, or of a folder with a train file.

    With a known task the rows are that task's: its classes, and its columns unless others are named. Otherwise the
    text columns come out as "sentence", or "sentence1" and "sentence2".

    Raises:
        LimbeckError: columns or labels are missing, labels do not fit together, or a text is not text.
    """
    known = request.known
    files = files_of(request.path, request.files)
    tables = {split: read_table(file, request.max_rows) for split, file in files.items()}
    texts, label = named_columns(tables, known, request.text_columns, request.label_column)
    assert label is not None
    labels = {split: written_labels(table, label, split) for split, table in tables.items()}
    labels["train"] = without_gaps(labels["train"] or ()) or None
    for split, values in labels.items():
        check_written_labels(values or (), label, tables[split].path, gaps=split == "train")
    _need_labels(tables, labels, label)
    if known is None:
        found = read_labels(tables, labels, label, request.labelling)
        task = _new_task(request.new_name, len(texts), found)
        labels = found.values
    else:
        task = known
        labels = {
            split: values and _known_labels(task, values, tables[split].path)
            for split, values in labels.items()
        }
    return task, splits_of_tables(request, task, tables, texts, labels)


def splits_of_tables(
    request: DataRequest,
    task: Task,
    tables: dict[str, FileTable],
    texts: Sequence[str],
    labels: Mapping[str, list | None],
) -> DatasetDict:
    """Make the splits of tables, by the names of their text columns and the labels of each split; see `made_splits`."""

    def rows(split: str) -> Rows:
        pairs = zip(task.text_columns, texts, strict=True)
        columns = {ours: text_of(tables[split], theirs) for ours, theirs in pairs}
        values = labels[split]
        return columns, None if values is None else marked(task, values)

    def groups() -> np.ndarray | None:
        return groups_of(tables["train"], request.division.group_column)

    return made_splits(request, task, tables, rows, groups)


def made_splits(
    request: DataRequest,
    task: Task,
    files: Collection[str],
    rows: Callable[[str], Rows],
    groups: Callable[[], np.ndarray | None],
) -> DatasetDict:
    """Make the splits of a user's own files, and check them.

    A single file is divided into train, dev and test. Without `for_training` it is one dev split.

    Args:
        request: what was asked for.
        task: the task of the rows.
        files: the splits that have a file.
        rows: gives the text columns of a split, and its labels or None.
        groups: gives the groups of the training rows, as `groups_of`.
    """
    splits = DatasetDict()
    for split in files:
        texts, labels = rows(split)
        if not request.for_training and [*files] == ["train"]:
            splits["dev"] = make_split(task, texts, labels)
        elif split == "train" and labels is not None:
            shares = request.division.beside(files)
            splits |= with_held_out(task, texts, labels, request.seed, shares, groups())
        else:
            splits[split] = make_split(task, texts, labels)
    check_splits(task, splits, str(request.path), for_training=request.for_training)
    return splits


def _need_labels(tables: dict[str, FileTable], labels: dict[str, list | None], column: str) -> None:
    """Raise LimbeckError where neither train nor dev has any label; rows of train may go without."""
    train, dev = tables["train"], labels.get("dev")
    some = labels["train"] is not None and any(value is not None for value in labels["train"])
    if some or dev:
        return
    if column not in train.columns:
        raise LimbeckError(missing_column(train, "label column", [column]))
    raise LimbeckError(
        f"{train.path}: all of {len(train)} rows have no label in {column}",
        "give a folder with a labelled dev file beside it, or label some rows: the dev split is made of those; or let "
        f"the teacher label held-out rows: limbeck distill --label-column {TEACHER_LABEL}",
    )


def written_labels(table: FileTable, column: str, split: str) -> list | None:
    """The label column as it is written; None of a split without labels."""
    if column not in table.columns:
        return None
    values = table.named(column)
    # A test file may keep the column and leave it blank, or filled with the Hub's sign for secret labels.
    if split == "test" and any(all(value in secret for value in values) for secret in _SECRET):
        return None
    return values


def has_own_files(folder: Path) -> bool:
    """Whether the folder holds a train file of a type that is read here."""
    return any(True for _ in _files_of(folder, _STEMS["train"], ()))


def files_of(path: Path, named: Mapping[str, Path], more: Sequence[str] = ()) -> dict[str, Path]:
    """The file of each split: those of a folder, or one file with those that are named for dev and test.

    `more` are endings beside the usual ones. Raises LimbeckError as `split_files`.
    """
    return split_files(path, more) if path.is_dir() else {"train": path, **named}


def groups_of(table: FileTable, column: str | None) -> np.ndarray | None:
    """Numbers (n,) of which equal ones say that rows stay together; a row without a value is a group of its own.

    None where no column says so. Raises LimbeckError for one that is not there.
    """
    if column is None:
        return None
    if column not in table.columns:
        raise LimbeckError(missing_column(table, "group column", [column]))
    numbers: dict[str, int] = {}
    found = []
    for row, value in enumerate(table.columns[column]):
        key = f"row {row}" if value in (None, "") else f"value {value!r}"
        found.append(numbers.setdefault(key, len(numbers)))
    return np.array(found, dtype=np.int64)


def split_files(folder: Path, more: Sequence[str] = ()) -> dict[str, Path]:
    """The file of each split in a folder; `more` are endings beside the usual ones.

    Raises:
        LimbeckError: there is none for train, or there are several for one split.
    """
    files: dict[str, Path] = {}
    for split, stems in _STEMS.items():
        found = list(_files_of(folder, stems, more))
        if len(found) > 1:
            raise LimbeckError(
                f"{folder} has several {split} files: {', '.join(file.name for file in found)}",
                "keep one of them",
            )
        if found:
            files[split] = found[0]
    if "train" not in files:
        raise LimbeckError(
            f"{folder} has no train file; it holds {', '.join(contents(folder))}",
            f"expected train with one of {known_endings(*more)}, and dev (or validation) and test "
            f"if there are any",
        )
    return files


def _files_of(folder: Path, stems: Sequence[str], more: Sequence[str]) -> Iterator[Path]:
    """The files of rows in a folder with one of some names, by name."""
    for path in sorted(folder.iterdir()):
        if stem_of(path) in stems and ending_of(path) in (*FORMS, *more) and path.is_file():
            yield path


def named_columns(
    tables: dict[str, FileTable],
    known: Task | None,
    text_columns: Sequence[str] | None,
    label_column: str | None,
    *,
    need_label: bool = True,
) -> tuple[list[str], str | None]:
    """Names of the text columns and of the label column in the files; the latter None only where none is needed.

    Raises:
        LimbeckError: columns that are not named, or not there.
    """
    train = tables["train"]
    texts, label = list(text_columns or ()), label_column
    if known is None:
        named = [*train.class_names]
        if label is None and need_label:
            every = dict.fromkeys(name for table in tables.values() for name in table.columns)
            label = usual_label([*every], named)
        if not texts and (label is not None or not need_label):
            texts = usual_texts(
                [n for n, column in train.columns.items() if n != label and column.text is not None]
            )
    if known is not None:
        aliases = IMDB_COLUMNS if known.name == "imdb" else {}
        present = train.columns
        if not texts:
            texts = [c if c in present else aliases.get(c, c) for c in known.text_columns]
        if label is None:
            label = "label" if "label" in present else aliases.get("label", "label")
    problems = []
    there = f"columns of {train.path.name}: {', '.join(train.columns)}"
    if not texts:
        problems.append(Problem("no text columns are named", f"--text-columns A [B]; {there}"))
    if label is None and need_label:
        problems.append(Problem("no label column is named", f"--label-column NAME; {there}"))
    wanted = len(known.text_columns) if known else None
    if texts and (len(texts) > 2 or (wanted and len(texts) != wanted)):
        problems.append(
            Problem(
                f"{len(texts)} text columns are named: {', '.join(texts)}",
                f"name {wanted or 'one or two'}",
            )
        )
    if len(set(texts)) < len(texts):
        problems.append(Problem(f"one text column is named twice: {texts[0]}", "name two columns"))
    if label is not None and label in texts:
        problems.append(Problem(f"column {label!r} is named as text and as label", "name another"))
    if problems:
        raise LimbeckError(problems)
    for table in tables.values():
        missing = [column for column in texts if column not in table.columns]
        if missing:
            problems.append(missing_column(table, "text column", missing))
    if label is not None and not any(label in table.columns for table in tables.values()):
        problems.append(missing_column(train, "label column", [label]))
    if problems:
        raise LimbeckError(problems)
    return texts, label


def missing_column(table: FileTable, kind: str, names: list[str]) -> Problem:
    """Columns that a table lacks, with those of nearly their names."""
    found = [difflib.get_close_matches(name, table.columns, n=1) for name in names]
    near = ", ".join(repr(one) for matches in found for one in matches)
    return Problem(
        f"{table.path} has no {kind} {', '.join(map(repr, names))}",
        (f"did you mean {near}? " if near else "")
        + f"columns that are there: {', '.join(table.columns)}",
    )


def own_name(path: Path) -> str:
    """What a user's own data are called where nobody names them: as their file or folder is."""
    name = path.resolve().stem if path.is_file() else path.resolve().name
    return f"own-{name}" if name in TASKS else name


def may_be_own(path: Path) -> bool:
    """Whether a place may hold rows of a task of any name: a file, or a folder without tasks of GLUE."""
    return path.is_file() or (
        path.is_dir() and task_of_folder(path) is None and not tasks_inside(path)
    )


def is_own(path: Path) -> bool:
    """Whether a place holds a user's own rows: a file, or a folder with a train file that is no task's of GLUE."""
    return may_be_own(path) and (path.is_file() or has_own_files(path))


def text_of(table: FileTable, column: str) -> pa.ChunkedArray:
    """A column of text; raises LimbeckError for anything else in it."""
    values = table.columns[column]
    if values.text is not None:
        return values.text
    row, value = next(pair for pair in enumerate(values, start=1) if not isinstance(pair[1], str))
    raise LimbeckError(
        f"{table.path}, row {row}: {column} is {value!r:.80}, expected text",
        "name a text column, or fill the gap",
    )


def _new_task(name: str, texts: int, labels: LabelColumn) -> Task:
    """The task that the columns make."""
    columns = ("sentence",) if texts == 1 else ("sentence1", "sentence2")
    metrics: tuple[str, ...] = ("pearson", "spearman")
    primary = "pearson+spearman"
    if labels.names:
        with_f1 = ("f1",) if len(labels.names) == 2 else ()
        metrics, primary = ("accuracy", *with_f1, "matthews"), "accuracy"
    return Task(name, name, columns, labels.names, metrics, primary, said=labels.said)


def _known_labels(task: Task, values: list, path: Path) -> list:
    """Labels of a known task as ids or numbers: written as names, ids or digits."""
    ids: dict[object, int] = {}
    for number, label in enumerate(task.labels):
        ids |= {label: number, number: number, str(number): number}
    if task.name == "imdb":
        ids |= {alias: ids[label] for alias, label in _IMDB_CLASSES.items()}
    read = _number if task.regression else (lambda value: _class(value, ids))
    found = [None if value is None else read(value) for value in values]
    pairs = enumerate(zip(found, values, strict=True))
    row = next((row for row, (label, value) in pairs if label is None and value is not None), None)
    if row is not None:
        names = f"one of {', '.join(task.labels)}, or their numbers"
        raise LimbeckError(
            f"{path}, row {row + 1}: the label is {values[row]!r}",
            f"expected {'a number' if task.regression else names}",
        )
    return found


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _class(value: Any, ids: dict[object, int]) -> int | None:
    return ids.get(value) if isinstance(value, str | int | float) else None


# ---- a look at a file before it is read as a whole ----


_FIRST_ROWS = 100
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
            rows = stream.take(_FIRST_ROWS)
            classes = tuple(stream.class_names)
            stream.close()
        except (LimbeckError, OSError):  # said where the rows are read
            return None
        (names,) = stream.heads.values()
        if rows is None:
            return None
        return cls({name: rows.values(name) for name in names}, classes, form_of(file) == "text")

    @property
    def words(self) -> list[str]:
        """The columns that hold text."""
        return [name for name, values in self.columns.items() if _holds_text(values)]

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


def _holds_text(values: Sequence[Any]) -> bool:
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
