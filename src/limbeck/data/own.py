"""`--data FILE --text-columns … --label-column …`: a user's own data. Part of `limbeck.data`.

A single file is divided into train, dev and test (`splits`); a folder may hold train, dev (or validation) and test
files, or have GLUE's layout. `label_column` finds out which kind of labels they have.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import DatasetDict

from limbeck.data import glue
from limbeck.data.files import FORMS, ending_of, form_of, known_endings, open_rows, stem_of
from limbeck.data.label_column import LabelColumn, check_written_labels, read_labels, without_gaps
from limbeck.data.reader import DataRequest, Loaded, OnDisk, data_reader
from limbeck.data.splits import (
    SplitRows,
    check_splits,
    equal_texts,
    hold_out,
    hold_out_texts,
    make_split,
    with_held_out,
)
from limbeck.data.table import (
    FileTable,
    finite,
    miscounted_texts,
    read_table,
    unnamed_texts,
    usual_label,
    usual_texts,
)
from limbeck.support import files, given
from limbeck.support.errors import LimbeckError, Problem, raise_problems, unknown
from limbeck.tasks import abstract_type, metrics
from limbeck.tasks.task import TASKS, Task

# The names of the files or folders of each split.
_SPLIT_NAMES = {
    "train": ("train",),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
_SECRET: tuple[tuple[Any, ...], ...] = ((None, ""), (-1,), ("-1",))
# The IMDb table that circulates as one CSV file, and the names of its columns and classes.
IMDB_COLUMNS = {"text": "review", "label": "sentiment"}
_IMDB_CLASSES = {"negative": "neg", "positive": "pos"}


class Rows(NamedTuple):
    """One split: its text columns by name, and its labels where it has any."""

    texts: Mapping[str, Sequence[Any]]
    labels: Sequence[Any] | None


@data_reader("table")
class OwnTable(OnDisk):
    """A table of texts with classes or numbers, or a folder with a train table."""

    takes_dev = True
    divides = True

    def read_rows(self, request: DataRequest) -> Loaded:
        """The columns that are named, or a known task's.

        With a known task the rows are that task's: its classes, and its columns unless others are named. Otherwise the
        text columns come out as "sentence", or "sentence1" and "sentence2".
        """
        known, tables = request.known, read_tables(request)
        texts, label = named_columns(tables, request)
        assert label is not None
        labels = {split: written_labels(table, label, split) for split, table in tables.items()}
        labels["train"] = without_gaps(labels["train"] or ()) or None
        for split, values in labels.items():
            check_written_labels(values or (), label, tables[split].path, gaps=split == "train")
        _need_labels(tables["train"], labels, label)
        if known is None:
            found = read_labels(tables, labels, label, request.labelling)
            task, labels = _new_task(request.new_name, len(texts), found), found.values
        else:
            task = known
            labels = {
                split: values and _known_labels(task, values, tables[split].path)
                for split, values in labels.items()
            }
        return task, splits_of_tables(request, task, tables, texts, labels)


@data_reader("glue")
class GlueFolder(OwnTable):
    """A folder in GLUE's layout, either of all tasks or the task's own."""

    takes_dev = False
    divides = False

    def reads(self, request: DataRequest) -> bool:
        """Folders of classes or numbers without named columns, except a user's own with a train table."""
        own = request.known is None and is_own(request.path)
        return request.path.is_dir() and not request.names_columns and not own

    def read_rows(self, request: DataRequest) -> Loaded:
        """The released files, or the task's own files of another type next to them."""
        known, path = request.known, request.path
        if known is None:
            if request.name is not None and (glue.tasks_inside(path) or glue.task_of_folder(path)):
                raise LimbeckError(unknown("task", request.name, list(TASKS)))
            raise LimbeckError(folder_without_task(path))
        splits = glue.read_folder(known, path, seed=request.seed, for_training=request.for_training)
        if splits is not None:
            return known, splits
        for folder in glue.task_folders(path, (known.name, known.title)):
            if has_own_files(folder):
                return super().read_rows(replace(request, source=folder))
        raise LimbeckError(
            f"task {known.name!r}: none of its files is in {path}, which holds {', '.join(glue.contents(path))}",
            f"expected {glue.expected_files(known)}, or the same files in {path} itself",
        )


def folder_without_task(path: Path) -> Problem:
    """The problem of a folder whose task is not given."""
    if (
        found := [glue.task_of_folder(path)]
        if glue.task_of_folder(path)
        else glue.tasks_inside(path)
    ):
        names = ", ".join(str(task) for task in found)
        return Problem(
            f"task: none is given, and {path} holds {names} as GLUE has it",
            f"add --task {found[0]}" if len(found) == 1 else "add --task with one of them",
        )
    return Problem(
        f"data: the folder {path} has no train file; it holds {', '.join(glue.contents(path))}",
        f"name a file, or a folder with train and one of {known_endings()}, and dev and test if there are any",
    )


# ---- splits ----


def splits_of_tables(
    request: DataRequest,
    task: Task,
    tables: Mapping[str, FileTable],
    texts: Sequence[str],
    labels: Mapping[str, list[Any] | None],
) -> DatasetDict:
    """Make the splits of tables, by the names of their text columns and the labels of each split; see `made_splits`."""
    rows = {}
    for split, table in tables.items():
        values = labels[split]
        columns = zip(task.text_columns, map(table.text, texts), strict=True)
        rows[split] = Rows(
            dict(columns), None if values is None else abstract_type.marked(task, values)
        )
    groups = groups_of(tables["train"], request.division.group_column)
    return made_splits(request, task, rows, groups)


def made_splits(
    request: DataRequest,
    task: Task,
    rows: Mapping[str, Rows],
    groups: np.ndarray | None = None,
    draw: Callable[..., SplitRows] = hold_out,
) -> DatasetDict:
    """Make the splits of a user's own files, and check them.

    A single file is divided into train, dev and test; rows of equal texts stay together. Without
    `for_training` it is one dev split.

    Args:
        request: the request.
        task: the task of the rows.
        rows: of each split that has a file.
        groups: numbers (n,) of the training rows, of which equal ones keep rows together.
        draw: divides the training rows, as `hold_out`.
    """
    splits = DatasetDict()
    for split, (texts, labels) in rows.items():
        if not request.for_training and [*rows] == ["train"]:
            splits["dev"] = make_split(task, texts, labels)
        elif split == "train" and labels is not None:
            shares = request.division.beside(rows)
            if groups is None and (shares.dev_share or shares.test_share != 0):
                groups = equal_texts(task, texts)
                draw = hold_out if groups is None else hold_out_texts
            splits |= with_held_out(task, texts, labels, request.seed, shares, groups, draw)
        else:
            splits[split] = make_split(task, texts, labels)
    check_splits(task, splits, str(request.path), for_training=request.for_training)
    return splits


def groups_of(table: FileTable, column: str | None) -> np.ndarray | None:
    """Numbers (n,), equal for rows that stay together; a row without a value is a group of its own.

    None without such a column. Raises LimbeckError for one that does not exist.
    """
    if column is None:
        return None
    table.need([column], "group column")
    numbers: dict[Any, int] = {}
    return np.array(
        [
            numbers.setdefault(row if value in (None, "") else repr(value), len(numbers))
            for row, value in enumerate(table.columns[column])
        ],
        dtype=np.int64,
    )


# ---- files ----


def read_tables(request: DataRequest) -> dict[str, FileTable]:
    """The table of each split that has a file. Raises LimbeckError as `read_table` and `files_of`."""
    return {
        split: read_table(file) for split, file in files_of(request.path, request.files).items()
    }


def files_of(path: Path, named: Mapping[str, Path], more: Sequence[str] = ()) -> dict[str, Path]:
    """The file of each split: the files of a folder, or one file with the ones given for dev and test.

    `more` are endings in addition to the usual ones. Raises LimbeckError as `split_files`.
    """
    return split_files(path, more) if path.is_dir() else {"train": path, **named}


def split_files(folder: Path, more: Sequence[str] = ()) -> dict[str, Path]:
    """The file of each split in a folder; `more` are endings in addition to the usual ones.

    Raises:
        LimbeckError: there is no file for train, or there are several for one split.
    """
    files = split_places(folder, "files", lambda path: _stem_of_rows(path, more))
    if "train" not in files:
        raise LimbeckError(
            f"{folder} has no train file; it holds {', '.join(glue.contents(folder))}",
            f"expected train with one of {known_endings(*more)}, and dev (or validation) and test if there are any",
        )
    return files


def split_places(folder: Path, what: str, name_of: Callable[[Path], str | None]) -> dict[str, Path]:
    """The entries of a folder with a split's name, by split; `name_of` gives each one's split, or None.

    Raises:
        LimbeckError: there are several for one split.
    """
    places = [(name_of(path), path) for path in sorted(folder.iterdir())]
    found = {}
    for split, names in _SPLIT_NAMES.items():
        there = [path for name, path in places if name in names]
        if len(there) > 1:
            raise LimbeckError(
                f"{folder} has several {split} {what}: {', '.join(path.name for path in there)}",
                "keep one of them",
            )
        if there:
            found[split] = there[0]
    return found


def has_own_files(folder: Path) -> bool:
    """Whether the folder holds a train file of a type that is read here."""
    return any(_stem_of_rows(path) == "train" for path in folder.iterdir())


def _stem_of_rows(path: Path, more: Sequence[str] = ()) -> str | None:
    """The name of a file of rows without its endings."""
    of_rows = ending_of(path) in (*FORMS, *more) and path.is_file()
    return stem_of(path) if of_rows else None


def own_name(path: Path) -> str:
    """The name of a user's own data, by default their file's or folder's."""
    path = path.resolve()
    name = stem_of(path) if path.is_file() else path.name
    return f"own-{name}" if name in TASKS else name


def may_be_own(path: Path) -> bool:
    """Whether a place may hold rows of a task of any name: a file, or a folder without tasks of GLUE."""
    return path.is_file() or (
        path.is_dir() and glue.task_of_folder(path) is None and not glue.tasks_inside(path)
    )


def is_own(path: Path) -> bool:
    """Whether a place holds a user's own rows: a file, or a folder with a train file that is no task's of GLUE."""
    return may_be_own(path) and (path.is_file() or has_own_files(path))


# ---- columns and labels ----


def named_columns(
    tables: Mapping[str, FileTable], request: DataRequest, *, need_label: bool = True
) -> tuple[list[str], str | None]:
    """Names of the text columns and of the label column in the files; the latter None only where none is needed.

    Raises:
        LimbeckError: columns that are not named, or not there.
    """
    train, known = tables["train"], request.known
    texts, label = list(request.text_columns), request.label_column
    if known is not None:
        aliases = IMDB_COLUMNS if known.name == "imdb" else {}
        wanted = (*known.text_columns, "label")
        named = [name if name in train.columns else aliases.get(name, name) for name in wanted]
        texts, label = texts or named[:-1], label or named[-1]
    elif label is None and need_label:
        every = chain.from_iterable(table.columns for table in tables.values())
        label = usual_label([*dict.fromkeys(every)], [*train.class_names])
    if not texts and (label is not None or not need_label):
        texts = usual_texts(train.words, label)
    low, high = (1, 2) if known is None else (len(known.text_columns),) * 2
    found = miscounted_texts(texts, low, high) if texts else unnamed_texts(train)
    problems = [] if found is None else [found]
    if label is None and need_label:
        there = f"columns of {train.path.name}: {', '.join(train.columns)}"
        problems.append(Problem("no label column is named", f"--label-column NAME; {there}"))
    if label is not None and label in texts:
        problems.append(Problem(f"column {label!r} is named as text and as label", "name another"))
    raise_problems(problems)
    missing = [table.missing(texts, "text column") for table in tables.values()]
    if label is not None and not any(label in table.columns for table in tables.values()):
        missing.append(train.missing([label], "label column"))
    raise_problems([problem for problem in missing if problem is not None])
    return texts, label


def our_columns(texts: int) -> tuple[str, ...]:
    """Names for one or two text columns that have no other names."""
    return ("sentence",) if texts == 1 else ("sentence1", "sentence2")


def written_labels(table: FileTable, column: str, split: str) -> list[Any] | None:
    """The label column as it is written; None of a split without labels."""
    if column not in table.columns:
        return None
    values = table.named(column)
    # A test file may keep the column and leave it blank, or filled with the Hub's sign for secret labels.
    if split == "test" and any(all(value in secret for value in values) for secret in _SECRET):
        return None
    return values


def _need_labels(train: FileTable, labels: Mapping[str, list[Any] | None], column: str) -> None:
    """Raise LimbeckError where neither train nor dev has any label; rows of train may go without."""
    if labels.get("dev") or any(value is not None for value in labels["train"] or ()):
        return
    train.need([column], "label column")
    raise LimbeckError(
        f"{train.path}: all of {len(train)} rows have no label in {column}",
        "give a folder that also has a labeled dev file, or label some rows: the dev split is made of them; or let "
        f"the teacher label held-out rows: limbeck distill --label-column {metrics.TEACHER_LABEL}",
    )


def _new_task(name: str, texts: int, labels: LabelColumn) -> Task:
    """The task that the columns make."""
    metrics: tuple[str, ...] = ("pearson", "spearman")
    primary = "pearson+spearman"
    if labels.names:
        with_f1 = ("f1",) if len(labels.names) == 2 else ()
        metrics, primary = ("accuracy", *with_f1, "matthews"), "accuracy"
    return Task(name, name, our_columns(texts), labels.names, metrics, primary, said=labels.said)


def _known_labels(task: Task, values: list[Any], path: Path) -> list[Any]:
    """Labels of a known task as ids or numbers: written as names, ids or digits."""
    ids: dict[object, Any] = {}
    for number, label in enumerate(task.labels):
        ids |= {label: number, number: number, str(number): number}
    if task.name == "imdb":
        ids |= {alias: ids[label] for alias, label in _IMDB_CLASSES.items()}
    read: Callable[[Any], Any] = finite if task.regression else ids.get
    found = [None if value is None else read(value) for value in values]
    for row, (known, value) in enumerate(zip(found, values, strict=True), start=1):
        if known is None and value is not None:
            wanted = f"one of {', '.join(task.labels)}, or their numbers"
            raise LimbeckError(
                f"{path}, row {row}: the label is {value!r}",
                f"expected {'a number' if task.regression else wanted}",
            )
    return found


# ---- the first rows of a file, before it is read completely ----


_FIRST_ROWS = 100
_MOST_CLASSES = 20


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a file.

    Attributes:
        columns: values by column, without missing ones.
        class_columns: columns whose class names a Parquet file states.
        plain: whether the file is plain text, with one column for the line.
    """

    columns: Mapping[str, Sequence[Any]]
    class_columns: tuple[str, ...]
    plain: bool = False

    @classmethod
    def of(cls, source: str | Path) -> "FirstRows | None":
        """Read them from a file or the train file of a folder; None if no file can be read."""
        try:
            path = files.at_home(given.place_of(source))
            if not is_own(path):
                return None
            file = split_files(path)["train"] if path.is_dir() else path
            with closing(open_rows(file)) as found:
                rows = found.take(_FIRST_ROWS)
        except (LimbeckError, OSError):  # reported when the rows are read
            return None
        columns = {
            name: [value for value in rows.values(name) if value not in (None, "")]
            for name in found.columns
        }
        classes = tuple(found.class_names)
        return cls(columns, classes, form_of(file) == "text") if len(rows) else None

    @property
    def words(self) -> list[str]:
        """The columns that hold text."""
        return [
            name
            for name, values in self.columns.items()
            if values and all(isinstance(value, str) for value in values)
        ]

    @property
    def like_labels(self) -> list[str]:
        """Columns of few values that repeat, or of numbers with fractions."""
        return [name for name, values in self.columns.items() if _is_like_label(values)]


def _is_like_label(values: Sequence[Any]) -> bool:
    if not all(isinstance(value, str | int | float) for value in values):
        return False
    several = len({*values})
    fractions = all("." in str(value) and finite(value) is not None for value in values)
    return several > 1 and (fractions or several <= min(_MOST_CLASSES, len(values) // 2))
