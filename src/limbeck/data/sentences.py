"""`--kind embedding`: sentences to embed, and scored pairs of them.

A source of the data stage, beside `own_kinds`. Training rows are a text a line, a table with one text column or
two, or tuples of a query with what belongs to it and what does not (`own_tuples`); the dev split is a table with two
and a similarity, or a folder in BEIR's layout (`retrieval_rows`). Rows have two texts or more; of a single sentence all
but the first are empty. Of a tuple the first two have the similarity 1, unless nobody says what belongs to its query;
others of train have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset, DatasetDict, List, Value

from limbeck.data.beir import is_beir
from limbeck.data.files import form_of, opened_text
from limbeck.data.on_disk import OnDisk
from limbeck.data.own import files_of
from limbeck.data.own_tuples import NAMING, USUAL, Texts, Tuples, texts_of, tuples_of
from limbeck.data.reader import DataRequest, Loaded, data_reader
from limbeck.data.retrieval_rows import retrieval_splits, retrieval_task, retrieval_tuples
from limbeck.data.splits import check_splits, make_split
from limbeck.data.table import FileTable, read_table
from limbeck.embedding.folder import QUERY
from limbeck.support.errors import LimbeckError
from limbeck.tasks import EMBEDDING
from limbeck.tasks.candidates import FIRST
from limbeck.tasks.metrics import TEACHER_EMBEDDING, TEACHER_LABEL
from limbeck.tasks.task import Task

TEXTS = ("sentence1", "sentence2")
SCORE = "score"
# As the usual sets call them; the first that is whole counts.
_USUAL_TEXTS = (
    TEXTS,
    ("sentence",),
    ("text",),
    ("text1", "text2"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("sentence_A", "sentence_B"),
)
_USUAL_SCORES = (SCORE, "similarity_score", "similarity", "relatedness_score", "label")


class Texted(NamedTuple):
    """The rows of a file: texts by column, the similarity of the first two, and whether the first one asks."""

    texts: Texts
    scores: Sequence[float]
    asks: bool = False
    taught: Sequence[Sequence[float]] | None = None
    """A teacher's embedding of each first text."""

    def without(self, held: frozenset[str]) -> Texted:
        """The rows of which no text is among those that are held out."""
        kept = [
            row for row, texts in enumerate(zip(*self.texts, strict=True)) if held.isdisjoint(texts)
        ]
        texts = [[column[row] for row in kept] for column in self.texts]
        return self._replace(texts=texts, scores=[self.scores[row] for row in kept])


@data_reader("sentences")
class Sentences(OnDisk):
    """Files of sentences, and of scored pairs."""

    takes_dev = True

    def reads(self, request: DataRequest) -> bool:
        """What is to be embedded."""
        return super().reads(request) and request.task_type is EMBEDDING

    def read(self, request: DataRequest) -> Loaded:
        """Lines of text, or the columns that are named, or those that have usual names."""
        self.known(request)  # a known task has an answer of its own
        if request.labelling.classes or request.labelling.holds:
            raise LimbeckError("classes, labels: sentences to embed have none", "leave them out")
        path = request.path
        searched = path if is_beir(path) and request.division.dev is None else request.dev_set
        if searched is not None and request.division.test is not None:
            raise LimbeckError(
                f"test: {request.division.test}, and {searched} is scored by what is retrieved",
                "put its test queries into the folder, as qrels/test.tsv, or name scored pairs as dev and test",
            )
        read = _read_files(request, searched)
        if request.label_column == TEACHER_LABEL and "train" in read:
            held = [
                text for split in ("dev", "test") if split in read for text in read[split].texts
            ]
            read["train"] = read["train"].without(frozenset(chain(*held)))
        width = max([len(found.texts) for found in read.values()] + [len(TEXTS)])
        task = _task(request.new_name, width)
        if searched is not None:
            task = retrieval_task(task)
        splits = DatasetDict({split: _split(task, found) for split, found in read.items()})
        if searched is not None:
            alone = searched != path or not request.for_training
            splits |= retrieval_splits(task, searched, request.max_rows, alone=alone)
        if request.for_training and "dev" not in splits:
            raise LimbeckError(
                f"{request.text!r}: sentences alone, and nothing to score embeddings on",
                "name a file of scored pairs (columns sentence1, sentence2, score), or a folder of queries and a "
                "corpus in BEIR's layout: --dev PATH",
            )
        check_splits(task, splits, request.text, for_training=request.for_training)
        return task, splits


def _task(name: str, texts: int) -> Task:
    columns = (*TEXTS, *(f"sentence{number}" for number in range(3, texts + 1)))
    metrics = ("spearman", "pearson")
    return Task(name, name, columns, (), metrics, "spearman", label_column=SCORE, kind=EMBEDDING)


def _split(task: Task, found: Texted) -> Dataset:
    texts, rows = found.texts, len(found.texts[0])
    blank = [[""] * rows] * (len(task.text_columns) - len(texts))
    columns = dict(zip(task.text_columns, [*texts, *blank], strict=True))
    split = make_split(task, columns, found.scores)
    if found.taught is not None:
        feature = List(Value("float32"), length=len(found.taught[0]))
        split = split.add_column(TEACHER_EMBEDDING, list(found.taught), feature=feature)
    return split.add_column(FIRST, [QUERY] * rows, feature=Value("string")) if found.asks else split


def _asked(found: Tuples) -> Texted:
    """Queries with what belongs to them, and what does not, or with passages of which nobody says it."""
    return Texted(found.texts, [1.0 if found.graded else math.nan] * len(found.texts[0]), asks=True)


def _read_files(request: DataRequest, searched: Path | None) -> dict[str, Texted]:
    """The rows of each split, of those that are not searched."""
    path = request.path
    if searched == path:
        if not request.for_training:
            return {}
        return {"train": _asked(retrieval_tuples(path, request.max_rows))}
    named = {} if searched is not None else request.files
    files = files_of(path, named)
    if not request.for_training and [*files] == ["train"]:
        files = {"dev": path}
    return {split: _read(file, split, request) for split, file in files.items()}


def _read(path: Path, split: str, request: DataRequest) -> Texted:
    """A file's rows; of plain text whose first line names its columns those of a tab-separated table."""
    plain = form_of(path) == "text"
    headed = plain and _has_heading(path, request.text_columns)
    if plain and not headed:
        if split != "train":
            raise LimbeckError(
                f"{path} is plain text, and the {split} split is scored",
                "give a table with the columns sentence1, sentence2 and score; plain text is one where its first line "
                "names them, with tabs between",
            )
        (sentences,) = read_table(path, request.max_rows).columns.values()
        return Texted([list(sentences)], [math.nan] * len(sentences))
    table = read_table(path, request.max_rows, "tsv" if headed else None)
    if split != "train":
        names = _text_columns(table, request.text_columns, pairs=True)
        texts = [texts_of(table, name) for name in names]
        taught = table.columns.get(TEACHER_EMBEDDING)
        return Texted(
            texts,
            _scores(table, request.label_column),
            taught=None if taught is None else [*taught],
        )
    named = _named(table, request.text_columns)
    found = tuples_of(table, named) if len(named) != 1 else None
    if found is not None:
        return _asked(found)
    columns = [*named] or _text_columns(table, (), pairs=False)
    return Texted([texts_of(table, name) for name in columns], [math.nan] * len(table))


def _has_heading(path: Path, named: Sequence[str]) -> bool:
    """Whether the first line of plain text names columns, tabs between them, as SICK's files are released."""
    try:
        with opened_text(path) as file:
            names = file.readline().rstrip("\r\n").split("\t")
    except (UnicodeDecodeError, OSError):  # said where the lines are read
        return False
    usual = (tuple(named),) if named else _USUAL_TEXTS
    return len(names) > 1 and any({*texts} <= {*names} for texts in usual)


def _named(table: FileTable, named: Sequence[str]) -> Sequence[str]:
    """Text columns that are named. Raises LimbeckError for one that is not there."""
    lost = [name for name in named if name not in table.columns]
    if lost:
        raise LimbeckError(
            f"{table.path} has no {' and '.join(map(repr, lost))}",
            f"{NAMING}; columns that are there: {', '.join(table.columns)}",
        )
    return named


def _text_columns(table: FileTable, named: Sequence[str], *, pairs: bool) -> tuple[str, ...]:
    """The names of one or two text columns; of two for pairs, the first two of those that are named."""
    there = [*table.columns]
    given = tuple(named)
    if len(given) > 1 and all(name in there for name in given):
        return given[:2]
    usual = [names for names in _USUAL_TEXTS if all(name in there for name in names)]
    found = [names for names in usual if len(names) == 2 or not pairs]
    if found and (pairs or not given):
        return found[0]
    if not pairs:
        raise LimbeckError(
            f"{table.path} has no text column of a usual name among {', '.join(there)}",
            f"name it: {NAMING}; or rename: {USUAL}",
        )
    raise LimbeckError(
        f"{table.path} has no {' and '.join(map(repr, given)) or 'two text columns of a usual name'}",
        f"name two text columns: --text-columns …; columns that are there: {', '.join(there)}",
    )


def _scores(table: FileTable, named: str | None) -> list[float]:
    """The similarity of each pair."""
    there = [*table.columns]
    known = [name for name in ((named,) if named else _USUAL_SCORES) if name in there]
    if not known:
        raise LimbeckError(
            f"{table.path} has no column of similarities" + (f" {named!r}" if named else ""),
            f"name it: --label-column NAME; columns that are there: {', '.join(there)}",
        )
    values = [*table.columns[known[0]]]
    found = [_number(value) for value in values]
    wrong = [row for row, value in enumerate(found, start=1) if value is None]
    if wrong:
        raise LimbeckError(
            f"{table.path}, row {wrong[0]}: {known[0]} is {values[wrong[0] - 1]!r:.80}, expected a number",
            "fix or remove that row",
        )
    return [value for value in found if value is not None]


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
