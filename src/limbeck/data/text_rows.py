"""Rows of text without labels: of files, folders and datasets, to be labelled or trained on. Part of `limbeck.data`.

The columns are found by the names that a task's own data have; all others, a label's too, are left alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict, Features, Value

from limbeck.data import beir, candidates, glue, load, own, row_ids, stream
from limbeck.data.files import CONLL, TEXT_COLUMN, ending_of, form_of
from limbeck.data.own_kinds import WORDS, read_conll
from limbeck.data.splits import in_memory, stacked
from limbeck.data.table import (
    ArrowColumn,
    FileTable,
    read_table,
    taken,
    unnamed_texts,
    usual_label,
    usual_texts,
)
from limbeck.support import given
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.tasks import TEXT, abstract_type, text
from limbeck.tasks.task import TASKS, Task


@dataclass(frozen=True)
class TextRows:
    """Rows of text.

    Attributes:
        columns: by the names that a labeller knows, in the order in which a model reads them.
        source: where they are from.
        names: the user's names of the columns, which are written.
        blank: number of blank rows, which were left out.
        without_target: rows without the text that a decoder is to write, left out where there has to be one.
    """

    columns: Mapping[str, pa.ChunkedArray]
    source: tuple[str, ...]
    names: tuple[str, ...]
    blank: int = 0
    without_target: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @cached_property
    def ids(self) -> np.ndarray:
        """`row_ids` of all rows, in their order."""
        return row_ids.ids_of_columns([*self.columns.values()])

    @cached_property
    def first(self) -> np.ndarray:
        """The places of the rows that are the first of their id, in order: every different row once."""
        return np.sort(np.unique(self.ids, return_index=True)[1])

    def take(self, places: np.ndarray) -> dict[str, list[str]]:
        """The texts at some places, by column."""
        # In millions of rows only these and the rows between them are read.
        first = int(places.min(initial=len(self)))
        chosen, count = pa.array(places - first), int(places.max(initial=-1)) + 1 - first
        return {
            name: column.slice(first, max(count, 0)).take(chosen).to_pylist()
            for name, column in self.columns.items()
        }


def read_text_rows(
    source: str | Path, *, task: str | None = None, text_columns: Sequence[str] = ()
) -> TextRows:
    """All rows of a source, of all its splits.

    Args:
        source: a file (CSV, TSV, JSON lines, Parquet, or plain text with one row per line), a folder of such files
            or a pattern of their names, the reference of rows that were given as objects, or what `load_task` reads: a
            folder in GLUE's layout, `hub`, `pocket`, ….
        task: a known task with these columns; required unless the source is a file of the user's own.
        text_columns: the columns of text, one or two. If left out, the columns with usual names
            (`limbeck.data.table`), or the only one. Every pair of a query and a candidate is a row.

    Raises:
        LimbeckError: nothing is there, it cannot be read, or its text columns are not known or not text.
    """
    known = TASKS.get(task) if task is not None else None
    if not (given.is_reference(source) or _means_files(source, known, text_columns)):
        return _of_task(source, task, text_columns)
    parts = [_of_file(file, known, text_columns) for file in row_files([str(source)])]
    found = joined(parts)
    return replace(found, source=(str(source),)) if given.is_reference(source) else found


def row_files(sources: Sequence[str], setting: str = "data") -> list[Path]:
    """The files that are named, each once. Raises LimbeckError for one that is not there."""
    return [Path(file) for file in dict.fromkeys(stream.named_files(sources, setting))]


def _means_files(source: str | Path, known: Task | None, text_columns: Sequence[str]) -> bool:
    """Whether a source is a file, a pattern, or a folder of which every file of rows is read."""
    path = at_home(given.place_of(source))
    if path.is_dir():
        return bool(text_columns or (known is None and not beir.is_beir(path)))
    return path.is_file() or bool(stream.matching(str(source)))


def joined(parts: Sequence[TextRows]) -> TextRows:
    """Rows under each other, with the first one's names.

    Raises:
        LimbeckError: one has a text where another has a pair.
    """
    widths = {len(part.columns): part.source[0] for part in parts}
    if len(widths) > 1:
        raise LimbeckError(
            f"{widths[1]} has one text in a row, {widths[2]} has two",
            "label them apart, or name the columns with --text-columns",
        )
    names = [*parts[0].columns]
    below = zip(*(part.columns.values() for part in parts), strict=True)
    columns = {name: _stacked(same) for name, same in zip(names, below, strict=True)}
    sources = tuple(source for part in parts for source in part.source)
    return TextRows(columns, sources, parts[0].names, sum(part.blank for part in parts))


def _stacked(columns: Iterable[pa.ChunkedArray]) -> pa.ChunkedArray:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.large_string())


def _of_task(source: str | Path, task: str | None, text_columns: Sequence[str]) -> TextRows:
    found, splits = load.load_task(task, source, text_columns=text_columns, for_training=False)
    parts = []
    for split in splits.values():
        table = split.with_format("arrow")[:]
        columns = {name: _strings(table[name]) for name in found.text_columns}
        names = tuple(text_columns or found.text_columns)
        parts.append(TextRows(columns, (str(source),), names))
    return replace(joined(parts), source=(str(source),))


def _strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise LimbeckError(
            f"rows of {column.type} cannot be labelled", "label rows of one text or a pair of texts"
        )
    return column.cast(pa.large_string())


# ---- the texts of files ----


def read_unlabelled(
    sources: Sequence[str], task: Task, *, text_columns: Sequence[str] | None = None
) -> list[TextRows]:
    """The texts of files, folders and patterns of files (`more/*.csv`), in the order in which they are named.

    Blank rows are left out.

    Args:
        sources: paths, patterns, or references of rows that were given as objects.
        task: the task with these text columns; a known task's files may also have the columns of its release.
        text_columns: names of the columns in the files, where the task's own data have others.

    Raises:
        LimbeckError: a file does not exist, has no known type, lacks the columns, or has values that are not text.
    """
    files = row_files(sources, "unlabelled")
    return [_of_file(file, task, text_columns or ()) for file in files]


def _of_file(file: Path, task: Task | None, named: Sequence[str]) -> TextRows:
    """The texts of a file, with the columns of a task or of training."""
    table = _spelled(file) if task is None else read_table(file)
    names: Sequence[str]
    if form_of(file) == "text":  # one text per line, whatever the task calls its column
        names = [TEXT_COLUMN]
    elif task is not None and task.kind.candidates is not None:
        table, given = candidates.with_pairs(table, named)
        names = given or _columns_of(task, table)
    else:
        # Texts of an unknown task are pairs if they look like pairs.
        table = candidates.pairs_in(table)
        names = named or _columns_of(task, table)
    ours = own.our_columns(len(names)) if task is None else task.text_columns
    if len(names) != len(ours):
        reads = "rows have one or two" if task is None else f"task {task.name!r} reads {len(ours)}"
        raise LimbeckError(
            f"{file}: {len(names)} text column{'s' * (len(names) > 1)} ({', '.join(names)}), and {reads}",
            "--text-columns names the columns to read; plain text has one",
        )
    table.need(names, "text column", "name the columns that contain the text (--text-columns)")
    fix = "write it as text, or remove the row"
    texts = (table.text(name, gaps=True, fix=fix) for name in names)
    called = named or (names if task is None else ours)
    return _with_text(file, dict(zip(ours, texts, strict=True)), called)


def _spelled(file: Path) -> FileTable:
    """A file's columns, words that were tagged as one text."""
    if ending_of(file) in CONLL:
        texts = [" ".join(words) for words in read_conll(file)[0]]
        return FileTable(file, {TEXT_COLUMN: ArrowColumn(texts)}, False, {})
    table = read_table(file)
    rows = [*table.columns.get(WORDS, ())]
    if not any(isinstance(words, list) for words in rows):
        return table
    texts = [" ".join(filter(None, words)) if isinstance(words, list) else words for words in rows]
    return replace(table, columns={WORDS: ArrowColumn(texts)})


def _columns_of(task: Task | None, table: FileTable) -> Sequence[str]:
    """A task's own text columns, or its release's if a table has these; without a task the columns of training."""
    if task is None:
        columns = [*table.columns]
        label = usual_label(columns, [*table.class_names]) if len(columns) > 1 else None
        if found := usual_texts(table.words, label):
            return found
        raise LimbeckError(unnamed_texts(table))
    released = [glue.LAYOUTS[task.name].text] if task.name in glue.LAYOUTS else []
    if task.name == "imdb":
        released.append((own.IMDB_COLUMNS["text"],))
    every = (names for names in (task.text_columns, *released) if {*names} <= {*table.columns})
    return next(every, task.text_columns)


def _with_text(
    path: Path, columns: Mapping[str, pa.ChunkedArray], names: Sequence[str]
) -> TextRows:
    """Leave out the rows whose columns are all blank."""
    blank = None
    for column in columns.values():
        here = pc.equal(pc.utf8_trim_whitespace(column), pa.scalar("", pa.large_string()))
        blank = here if blank is None else pc.and_(blank, here)
    count = int(pc.sum(blank).as_py() or 0)
    if count:
        kept = pc.indices_nonzero(pc.invert(blank)).to_numpy()
        if not len(kept):
            raise LimbeckError(f"{path} holds no text", "check that the right file is named")
        columns = {name: taken(column, kept) for name, column in columns.items()}
    return TextRows(columns, (str(path),), tuple(names), count)


# ---- rows with the text that a decoder learns to write, in addition to the input texts ----


def read_target_rows(
    source: str | Path,
    *,
    task: str | None = None,
    text_columns: Sequence[str] = (),
    label_column: str | None = None,
) -> tuple[Task, TextRows]:
    """All labeled rows of a source, of all its splits, the target's text as their last column.

    Args:
        source: what `load_task` reads.
        task: a known task, or the name of one's own, with which prompts begin.
        text_columns: of a file of one's own.
        label_column: of a file of one's own.

    Raises:
        LimbeckError: it cannot be read, no row has a label, or a text column is called `target`.
    """
    found, splits = load.load_task(
        task, source, text_columns=text_columns, label_column=label_column, kind=TEXT.name,
        for_training=False,
    )  # fmt: skip
    if text.TARGET in found.text_columns:
        raise LimbeckError(
            f"{source}: a text column is called {text.TARGET!r}, as the column of the decoder's target text",
            "rename the column",
        )
    columns: dict[str, list[str]] = {name: [] for name in (*found.text_columns, text.TARGET)}
    without = 0
    for rows in splits.values():
        told = _told(found, rows)
        without += len(rows) - len(told)
        part = told[:]
        for name in found.text_columns:
            columns[name] += part[name]
        columns[text.TARGET] += row_ids.targets_of(found, part) if len(told) else []
    if not columns[text.TARGET]:
        raise LimbeckError(
            f"{source}: no row has a label, and a text-to-text teacher is run on each token of a row's target",
            "give labeled rows; `limbeck predict` writes the model's own answers",
        )
    arrays = {
        name: pa.chunked_array([pa.array(own, pa.large_string())]) for name, own in columns.items()
    }
    names = (*(text_columns or found.text_columns), text.TARGET)
    return found, TextRows(arrays, (str(source),), names, without_target=without)


def _told(task: Task, rows: Dataset) -> Dataset:
    """The rows that have a label; a test split may lack the column."""
    if task.label_column not in rows.column_names:
        return rows.select([])
    known = abstract_type.labelled_rows(rows.with_format("numpy")[task.label_column][:])
    return rows if known.all() else rows.select(np.flatnonzero(known))


# ---- rows without labels in addition to the labeled ones ----


Duplicates = Literal["refuse", "drop"]
_SHOWN = 3


@dataclass(frozen=True)
class UnlabelledRows:
    """What became of the rows without a label.

    Attributes:
        kept: number of training rows, including the task's own data.
        scored: how many were left out because dev or test holds their texts.
        repeated: how many of the files were left out as their texts are another training row's.
        blank: how many of the files were left out as they hold no text.
    """

    kept: int = 0
    scored: int = 0
    repeated: int = 0
    blank: int = 0


def with_unlabelled(
    task: Task, splits: DatasetDict, files: Sequence[TextRows], duplicates: Duplicates
) -> tuple[DatasetDict, UnlabelledRows]:
    """The splits with the files' rows in train, below its own, each with a number (`index`) of its own.

    Labeled rows stay as they are. Rows without a label, from the files or from train, that are also in dev or test
    raise an error, or are left out with `duplicates="drop"`.

    Raises:
        LimbeckError: such rows, with their number and the first of them; nothing is left.
    """
    train = splits["train"]
    labelled = abstract_type.labelled_rows(train.with_format("numpy")[task.label_column][:])
    if labelled.all() and not files:
        return splits, UnlabelledRows()
    table: pa.Table = train.with_format("arrow")[:]
    own = TextRows({name: table[name] for name in task.text_columns}, ("the training rows",), ())
    parts = [own, *files]
    ids = np.concatenate([part.ids for part in parts])
    known = np.concatenate([labelled, np.zeros(len(ids) - len(own), dtype=bool)])
    in_split = {
        name: ~known & np.isin(ids, row_ids.ids_of(task, rows))
        for name, rows in splits.items()
        if name != "train"
    }
    scored = np.any([np.zeros(len(ids), dtype=bool), *in_split.values()], axis=0)
    if scored.any() and duplicates == "refuse":
        raise _also_scored(parts, scored, in_split, int((~known).sum()))
    first = np.zeros(len(ids), dtype=bool)
    first[np.unique(ids, return_index=True)[1]] = True
    from_files = np.arange(len(ids)) >= len(own)
    repeated = from_files & ~first & ~scored
    keep = ~scored & ~repeated
    kept = np.split(keep, np.cumsum([len(part) for part in parts])[:-1])
    if not kept[0].all():
        train = train.select(np.flatnonzero(kept[0]))
    if files:
        train = stacked(train, _rows(task, train, files, kept[1:]))
    if not len(train):
        raise LimbeckError("unlabelled: no row is left to train on", "name files of other rows")
    counts = int((keep & ~known).sum()), int(scored.sum()), int(repeated.sum())
    blank = sum(file.blank for file in files)
    return DatasetDict({**splits, "train": train}), UnlabelledRows(*counts, blank)


def _also_scored(
    parts: Sequence[TextRows],
    scored: np.ndarray,
    in_split: Mapping[str, np.ndarray],
    unlabelled: int,
) -> LimbeckError:
    """Says how many rows without a label are scored on, in which splits, and the first of them."""
    total, shown = int(scored.sum()), []
    starts = np.cumsum([0, *map(len, parts)])
    for row in np.flatnonzero(scored)[:_SHOWN].tolist():
        at = int(np.searchsorted(starts, row, side="right")) - 1
        texts = parts[at].take(np.array([row - starts[at]])).values()
        name = Path(parts[at].source[0]).name
        shown.append(f"{name}: {' | '.join(text for (text,) in texts)!r:.80}")
    said = ", ".join(
        f"{int(rows.sum())} in {name}" for name, rows in in_split.items() if rows.any()
    )
    return LimbeckError(
        f"unlabelled: {total} of {unlabelled} rows are rows of the splits that are scored, text by text "
        f"({said}): {'; '.join(shown)}" + ("; …" if total > len(shown) else ""),
        "remove them; or set unlabelled_duplicates=drop, which skips them and reports it",
    )


def _rows(
    task: Task, train: Dataset, files: Sequence[TextRows], kept: Sequence[np.ndarray]
) -> Dataset:
    """The rows of the files that are kept, as training rows without a label."""
    places = [np.flatnonzero(mask) for mask in kept]
    count = sum(map(len, places))
    columns: dict[str, Any] = {
        name: _stacked(
            [_chosen(file.columns[name], rows) for file, rows in zip(files, places, strict=True)]
        )
        for name in task.text_columns
    }
    numbers = train.with_format("numpy")["index"][:]
    first = int(numbers.max()) + 1 if len(numbers) else 0
    columns["index"] = pa.array(np.arange(first, first + count))
    wide = {name: Value("large_string") for name in task.text_columns}
    features = Features({name: wide.get(name, kind) for name, kind in train.features.items()})
    of_labels = features.arrow_schema.field(task.label_column).type
    columns[task.label_column] = pa.array([abstract_type.absent_label(task)] * count, of_labels)
    return in_memory({name: columns[name] for name in features}, features)


def _chosen(column: pa.ChunkedArray, places: np.ndarray) -> pa.ChunkedArray:
    return column if len(places) == len(column) else taken(column, places)
