"""Training rows without labels beside the labelled ones: compared by text with the others, put below.

Part of `limbeck.data`. A row of dev or test among them would be trained on and scored on; one that is among
the labelled rows already, or comes twice, adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict, DatasetInfo, Features, Value
from datasets.table import InMemoryTable

from limbeck.data.candidate_files import pairs_in
from limbeck.data.files import ending_of, form_of, opened_text, readable
from limbeck.data.glue import LAYOUTS, read_tsv
from limbeck.data.own import IMDB_COLUMNS
from limbeck.data.pairs import with_pairs
from limbeck.data.row_ids import row_ids
from limbeck.data.splits import digest_of, stacked
from limbeck.data.stream import matching, no_file
from limbeck.data.table import read_table, taken
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.support.given import is_reference, place_of
from limbeck.support.settings import MAX_ROWS
from limbeck.tasks.abstract_type import absent_label, labelled_rows
from limbeck.tasks.task import Task

# Files of rows without labels: CSV, TSV, JSON lines, Parquet or a text a line, as columns of text
# and nothing else. The columns are found by the names that the task's own data have, and all
# others, a label's too, are left alone. Text lies in files, not in memory, if there is much of it
# (`column`).


_PATTERN = frozenset("*?[")


@dataclass(frozen=True)
class TextFile:
    """The texts of one file.

    Attributes:
        path: where they lie.
        columns: the task's text columns, each with a text per row.
        blank: rows of the file that hold no text, or null, and are left out.
    """

    path: Path
    columns: tuple[pa.ChunkedArray, ...]
    blank: int

    def __len__(self) -> int:
        return len(self.columns[0])


def read_unlabelled(
    sources: Sequence[str],
    task: Task,
    *,
    text_columns: Sequence[str] | None = None,
    max_rows: int = MAX_ROWS,
) -> list[TextFile]:
    """The texts of files and patterns of files (`more/*.csv`), in the order in which they are named.

    Args:
        sources: paths, patterns, or references of rows that were given as objects.
        task: whose text columns they are; a known task's files may also have those of its release.
        text_columns: names of the columns in the files, where the task's own data have others.
        max_rows: of one file; more are refused.

    Raises:
        LimbeckError: a file that is not there, or is of no known type, or lacks the columns, or holds what is no text.
    """
    return [_read(path, task, text_columns, max_rows) for path in text_files(sources)]


def text_files(sources: Sequence[str]) -> list[Path]:
    """The files that are meant, each once. Raises LimbeckError for one that is not there."""
    found: dict[Path, None] = {}
    for source in sources:
        path = at_home(place_of(source))
        if is_reference(source):
            found |= dict.fromkeys(sorted(path.glob("*.parquet")))
        elif path.is_dir():
            raise LimbeckError(
                f"unlabelled: {source} is a folder",
                f"name files, or a pattern of them: {source.rstrip('/')}/*.csv",
            )
        elif path.exists():
            found[path] = None
        elif matches := matching(source):
            found |= dict.fromkeys(matches)
        else:
            raise LimbeckError(no_file("unlabelled", source))
    return list(found)


def is_meant(source: str, file: Path) -> bool:
    """Whether a file's name fits a pattern as in `matching`; the file need not be there."""
    if not _PATTERN & set(source):
        return False
    return _fits(at_home(source).resolve().parts, file.resolve().parts)


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Part by part, of which `**` stands for any number."""
    if not pattern or not parts:
        return not parts and all(one == "**" for one in pattern)
    if pattern[0] == "**":
        return _fits(pattern[1:], parts) or _fits(pattern, parts[1:])
    return fnmatch(parts[0], pattern[0]) and _fits(pattern[1:], parts[1:])


def _read(path: Path, task: Task, text_columns: Sequence[str] | None, max_rows: int) -> TextFile:
    columns: tuple[pa.ChunkedArray, ...]
    if form_of(path) == "text":
        columns = (_lines(path, task, max_rows),)
    elif ending_of(path) == ".tsv" and not text_columns and _is_release(path, task):
        # An unlabelled row too many is better than a label that is no one's business here.
        layout = replace(LAYOUTS[task.name], label="", no_label=None)
        rows = read_tsv(path, layout)
        columns = tuple(
            pa.chunked_array([pa.array(rows.columns[name], pa.large_string())])
            for name in layout.text
        )
    else:
        columns = _columns(path, task, text_columns, max_rows)
    return _with_text(path, columns)


def _is_release(path: Path, task: Task) -> bool:
    """Whether only the strict reader of GLUE's own files reads this one: it may lack a header, or have broken lines."""
    layout = LAYOUTS.get(task.name)
    if layout is None:
        return False
    with readable(path), opened_text(path) as file:
        header = [name.strip() for name in file.readline().split("\t")]
    if all(name in header for name in layout.text):
        return layout.broken_lines
    return bool(layout.headerless) and not set(task.text_columns) <= set(header)


def _lines(path: Path, task: Task, max_rows: int) -> pa.ChunkedArray:
    """A text a line, whatever the task calls its column."""
    if len(task.text_columns) > 1:
        raise LimbeckError(
            f"unlabelled: {path} is plain text, and task {task.name!r} reads pairs",
            f"give a table with the columns {' and '.join(task.text_columns)}",
        )
    (column,) = read_table(path, max_rows).columns.values()
    assert column.text is not None  # lines are text
    return column.text


def _columns(
    path: Path, task: Task, text_columns: Sequence[str] | None, max_rows: int
) -> tuple[pa.ChunkedArray, ...]:
    candidates = task.kind.candidates is not None
    # Texts whose task nobody knows are pairs wherever they look like it; a task's candidates may be columns too.
    table = read_table(path, max_rows)
    if candidates:
        table, text_columns = with_pairs(table, text_columns or ())
    else:
        table = pairs_in(table)
    known = [list(text_columns)] if text_columns else _names_of(task)
    names = next((names for names in known if set(names) <= set(table.columns)), None)
    if names is None:
        wanted = " or ".join(", ".join(map(repr, names)) for names in known)
        raise LimbeckError(
            f"{path} has no text column{'s' if len(known[0]) > 1 else ''} {wanted}",
            f"columns that are there: {', '.join(table.columns)}; name those that hold the text "
            "(--text-columns), as in all files of a task",
        )
    found = []
    for name in names:
        text = table.columns[name].text_or_gaps
        if text is None:
            rows = enumerate(table.columns[name], start=1)
            row, value = next(pair for pair in rows if not isinstance(pair[1], str | None))
            raise LimbeckError(
                f"unlabelled: {path}, row {row}: {name} is {value!r:.80}, expected text",
                "write it as text, or remove the row",
            )
        found.append(pc.fill_null(text, "") if text.null_count else text)
    return tuple(found)


def _names_of(task: Task) -> list[list[str]]:
    """The names that a task's text columns go by."""
    names = [list(task.text_columns)]
    if task.name in LAYOUTS:
        names.append(list(LAYOUTS[task.name].text))
    if task.name == "imdb":
        names.append([IMDB_COLUMNS["text"]])
    return [one for place, one in enumerate(names) if one not in names[:place]]


def _with_text(path: Path, columns: tuple[pa.ChunkedArray, ...]) -> TextFile:
    """Without the rows in which no column says anything."""
    blank = None
    for column in columns:
        here = pc.equal(pc.utf8_trim_whitespace(column), pa.scalar("", pa.large_string()))
        blank = here if blank is None else pc.and_(blank, here)
    count = int(pc.sum(blank).as_py() or 0)
    if not count:
        return TextFile(path, columns, 0)
    if count == len(columns[0]):
        raise LimbeckError(
            f"unlabelled: {path} holds no text", "check that the right file is named"
        )
    kept = pc.indices_nonzero(pc.invert(blank)).to_numpy()
    return TextFile(path, tuple(taken(column, kept) for column in columns), count)


Duplicates = Literal["refuse", "drop"]
_PIECE = 65_536
_SHOWN = 3


@dataclass(frozen=True)
class UnlabelledRows:
    """What became of the rows without a label.

    Attributes:
        kept: how many are trained on, those of the task's own data included.
        scored: how many were left out because dev or test holds their texts.
        repeated: how many of the files were left out as their texts are another training row's.
        blank: how many of the files were left out as they hold no text.
    """

    kept: int = 0
    scored: int = 0
    repeated: int = 0
    blank: int = 0


def with_unlabelled(
    task: Task, splits: DatasetDict, files: Sequence[TextFile], duplicates: Duplicates
) -> tuple[DatasetDict, UnlabelledRows]:
    """The splits with the files' rows in train, below its own, each with a number (`index`) of its own.

    Labelled rows stay as they are. Of rows without a label, from the files or from train, those that dev or test
    holds too are refused, or left out with `duplicates="drop"`.

    Raises:
        LimbeckError: such rows, with their number and the first of them; nothing is left.
    """
    train = splits["train"]
    labelled = labelled_rows(train.with_format("numpy")[task.label_column][:])
    if labelled.all() and not files:
        return splits, UnlabelledRows()
    compared = _Compared.of(task, splits, labelled, files)
    scored = int(compared.is_scored(compared.unlabelled).sum())
    if scored and duplicates == "refuse":
        raise compared.refusal()
    keep_own = labelled | ~compared.is_scored(compared.own)
    if not keep_own.all():
        train = train.select(np.flatnonzero(keep_own))
    kept, repeated = compared.fresh()
    splits = DatasetDict({**splits, "train": train})
    if files:
        splits["train"] = stacked(train, _rows(task, train, files, kept))
    left = int((keep_own & ~labelled).sum()) + sum(int(mask.sum()) for mask in kept)
    if not len(splits["train"]):
        raise LimbeckError("unlabelled: no row is left to train on", "name files of other rows")
    blank = sum(file.blank for file in files)
    return splits, UnlabelledRows(left, scored, repeated, blank)


def ids_of(task: Task, rows: Dataset) -> np.ndarray:
    """The ids of a split's rows, int64 (n,), by their texts in the order of the task's columns."""
    return _ids(_texts(task, rows))


def _texts(task: Task, rows: Dataset) -> list[pa.ChunkedArray]:
    table: pa.Table = rows.with_format("arrow")[:]
    return [table.column(name) for name in task.text_columns]


def _ids(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """The ids of rows, a piece at a time: Python's texts take ten times the room."""
    found = [
        row_ids([column.slice(start, _PIECE).to_pylist() for column in columns])
        for start in range(0, len(columns[0]), _PIECE)
    ]
    return np.concatenate(found) if found else np.array([], dtype=np.int64)


@dataclass(frozen=True)
class _Compared:
    """The rows of a run by what they say.

    Attributes:
        texts: the text columns of the training rows.
        labelled: which of these have a label, (n,) of bool.
        own: their ids, int64 (n,).
        files: the files of rows without labels.
        of_files: of each file the ids of its rows.
        scored: by split that is scored, the ids of its rows.
    """

    texts: Sequence[pa.ChunkedArray]
    labelled: np.ndarray
    own: np.ndarray
    files: Sequence[TextFile]
    of_files: Sequence[np.ndarray]
    scored: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls, task: Task, splits: DatasetDict, labelled: np.ndarray, files: Sequence[TextFile]
    ) -> _Compared:
        texts = _texts(task, splits["train"])
        scored = {name: ids_of(task, rows) for name, rows in splits.items() if name != "train"}
        of_files = [_ids(file.columns) for file in files]
        return cls(texts, labelled, _ids(texts), files, of_files, scored)

    @property
    def unlabelled(self) -> np.ndarray:
        """The ids of all rows without a label, those of the training rows first."""
        return np.concatenate([self.own[~self.labelled], *self.of_files])

    def is_scored(self, ids: np.ndarray) -> np.ndarray:
        """Which of some rows dev or test holds, (n,) of bool."""
        if not self.scored:
            return np.zeros(len(ids), dtype=bool)
        return np.isin(ids, np.concatenate([*self.scored.values()]))

    def fresh(self) -> tuple[list[np.ndarray], int]:
        """By file which rows are neither scored on nor repeat a training row; and how many repeat one."""
        joined = np.concatenate([self.own, *self.of_files])
        first = np.zeros(len(joined), dtype=bool)
        first[np.unique(joined, return_index=True)[1]] = True
        masks, start, repeated = [], len(self.own), 0
        for file in self.of_files:
            new, scored = first[start : start + len(file)], self.is_scored(file)
            masks.append(new & ~scored)
            repeated += int((~new & ~scored).sum())
            start += len(file)
        return masks, repeated

    def refusal(self) -> LimbeckError:
        """Says how many rows without a label are scored on, in which splits, and the first of them."""
        unlabelled = self.unlabelled
        counts = {
            name: int(np.isin(unlabelled, there).sum()) for name, there in self.scored.items()
        }
        total = int(self.is_scored(unlabelled).sum())
        shown = list(self._examples())
        said = ", ".join(f"{count} in {name}" for name, count in counts.items() if count)
        return LimbeckError(
            f"unlabelled: {total} of {len(unlabelled)} rows are rows of the splits that are scored, text by text "
            f"({said}): {'; '.join(shown)}" + ("; …" if total > len(shown) else ""),
            "remove them; or set unlabelled_duplicates=drop, which leaves them out and says so",
        )

    def _examples(self) -> Iterator[str]:
        """The first few of them, by file and text."""
        sources = [("the training rows", self.texts, self.is_scored(self.own) & ~self.labelled)]
        sources += [
            (file.path.name, file.columns, self.is_scored(ids))
            for file, ids in zip(self.files, self.of_files, strict=True)
        ]
        left = _SHOWN
        for name, columns, mask in sources:
            for row in np.flatnonzero(mask)[:left]:
                left -= 1
                texts = " | ".join(column[int(row)].as_py() for column in columns)
                yield f"{name}: {texts!r:.80}"


def _rows(
    task: Task, train: Dataset, files: Sequence[TextFile], kept: Sequence[np.ndarray]
) -> Dataset:
    """The rows of the files that are kept, as training rows without a label."""
    places = [np.flatnonzero(mask) for mask in kept]
    count = sum(map(len, places))
    columns: dict[str, Any] = {
        name: pa.chunked_array(
            [
                chunk
                for file, chosen in zip(files, places, strict=True)
                for chunk in _chosen(file.columns[number], chosen).chunks
            ],
            pa.large_string(),
        )
        for number, name in enumerate(task.text_columns)
    }
    numbers = train.with_format("numpy")["index"][:]
    first = int(numbers.max()) + 1 if len(numbers) else 0
    columns["index"] = pa.array(np.arange(first, first + count))
    wide = {name: Value("large_string") for name in task.text_columns}
    features = Features({name: wide.get(name, kind) for name, kind in train.features.items()})
    of_labels = features.arrow_schema.field(task.label_column).type
    columns[task.label_column] = pa.array([absent_label(task)] * count, of_labels)
    table = pa.table({name: columns[name] for name in features}).cast(features.arrow_schema)
    info = DatasetInfo(features=features)
    return Dataset(InMemoryTable(table), info=info, fingerprint=digest_of(table))


def _chosen(column: pa.ChunkedArray, places: np.ndarray) -> pa.ChunkedArray:
    return column if len(places) == len(column) else taken(column, places)
