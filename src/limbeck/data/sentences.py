"""`--kind embedding`: sentences to embed, and scored pairs of them. Part of `limbeck.data`.

Training rows are one text per line, a table with one text column or two, or tuples of a query with matching texts and
others (`candidates`). The dev split is a table with two and a similarity, or a folder in BEIR's layout. Rows
have two texts or more; for a single sentence all but the first are empty. In a tuple the first two have the similarity
1, unless it is unknown which text belongs to its query; other rows of train have no similarity.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from datasets import Dataset, DatasetDict, List, Value

from limbeck.data import beir, candidates, files, own
from limbeck.data.reader import DataRequest, Loaded, OnDisk, data_reader
from limbeck.data.splits import check_splits, make_split
from limbeck.data.table import FileTable, read_table
from limbeck.support.errors import LimbeckError
from limbeck.tasks import EMBEDDING, metrics, retrieval
from limbeck.tasks.candidates import FIRST
from limbeck.tasks.task import Task

TEXTS = ("sentence1", "sentence2")
SCORE = "score"
# Names in the usual sets; the first complete pair counts.
_USUAL_TEXTS = (
    TEXTS,
    ("sentence",),
    ("text",),
    ("text1", "text2"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("sentence_A", "sentence_B"),
)
_SIMILARITIES = (SCORE, "similarity_score", "similarity", "relatedness_score")
_USUAL_SCORES = (*_SIMILARITIES, "label")
_SEARCHED = ("dev", "test")


@data_reader("sentences")
class Sentences(OnDisk):
    """Files of sentences, and of scored pairs."""

    takes_dev = True

    def reads(self, request: DataRequest) -> bool:
        """Requests for texts to embed."""
        return super().reads(request) and request.task_type is EMBEDDING

    def read_rows(self, request: DataRequest) -> Loaded:
        """Lines of text, or the given columns, or columns that have usual names."""
        if request.labelling.classes or request.labelling.holds:
            raise LimbeckError(
                "classes, labels: sentences to embed have no classes", "leave them out"
            )
        path = request.path
        searched = path if beir.is_beir(path) and request.division.dev is None else request.dev_set
        if searched is not None and request.division.test is not None:
            raise LimbeckError(
                f"test: {request.division.test}, and {searched} is scored by its retrieved passages",
                "put its test queries into the folder, as qrels/test.tsv, or name scored pairs as dev and test",
            )
        read = _read_files(request, searched)
        if request.label_column == metrics.TEACHER_LABEL and "train" in read:
            held = [
                text for split in ("dev", "test") if split in read for text in read[split].texts
            ]
            read["train"] = read["train"].without(frozenset(chain(*held)))
        width = max([len(found.texts) for found in read.values()] + [len(TEXTS)])
        task = _task(request.new_name, width)
        if searched is not None:
            task = replace(
                task, metrics=retrieval.RETRIEVAL_METRICS, primary=retrieval.RETRIEVAL_METRICS[0]
            )
        elif translated := [one for one, found in read.items() if found.translated]:
            if graded := [one for one in read if one not in ("train", *translated)]:
                raise LimbeckError(
                    f"{translated[0]} holds translations, and {graded[0]} pairs with similarities: one score "
                    "cannot judge both",
                    f"give both the columns {' and '.join(retrieval.TRANSLATED)}, or score one of the files "
                    "afterwards: limbeck evaluate RUN --data FILE",
                )
            names = retrieval.TRANSLATION_METRICS
            task = replace(task, metrics=names, primary=names[0])
        splits = DatasetDict({split: _split(task, found) for split, found in read.items()})
        if searched is not None:
            alone = searched != path or not request.for_training
            splits |= _searched_splits(task, searched, alone=alone)
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


def _split(task: Task, found: candidates.Texted) -> Dataset:
    texts, rows = found.texts, len(found.texts[0])
    blank = [[""] * rows] * (len(task.text_columns) - len(texts))
    columns = dict(zip(task.text_columns, [*texts, *blank], strict=True))
    split = make_split(task, columns, found.scores)
    if found.taught is not None:
        feature = List(Value("float32"), length=len(found.taught[0]))
        split = split.add_column(metrics.TEACHER_EMBEDDING, list(found.taught), feature=feature)
    if found.first is None:
        return split
    return split.add_column(FIRST, list(found.first), feature=Value("string"))


# ---- folders in BEIR's layout ----


def _searched_splits(task: Task, folder: Path, *, alone: bool) -> DatasetDict:
    """The splits dev and test of a folder; read to score `alone`, the test split is dev where there is no other.

    Raises:
        LimbeckError: as `read_beir`; there is neither.
    """
    there = beir.beir_splits(folder)
    read = {one: _searched(task, folder, one) for one in _SEARCHED if one in there}
    return DatasetDict(beir.scored_splits(folder, read, alone=alone))


def _searched(task: Task, folder: Path, split: str) -> Dataset:
    """Queries, then the corpus, with the places and grades of the judged passages."""
    found = beir.read_beir(folder, split)
    first = len(found.queries)
    places = {name: first + place for place, name in enumerate(found.corpus)}
    kinds = [candidates.QUERY] * first + [candidates.PASSAGE] * len(found.corpus)
    texts = [[*found.queries.values(), *found.corpus.values()]]
    rows = _split(task, candidates.Texted(texts, [math.nan] * len(kinds), kinds))
    qrels = [found.qrels[query] for query in found.queries] + [{}] * len(found.corpus)
    judged = [[places[name] for name in grades] for grades in qrels]
    values = [[*grades.values()] for grades in qrels]
    rows = rows.add_column(
        retrieval.JUDGED, judged, feature=retrieval.RETRIEVAL_FEATURES[retrieval.JUDGED]
    )
    return rows.add_column(
        retrieval.GRADES, values, feature=retrieval.RETRIEVAL_FEATURES[retrieval.GRADES]
    )


# ---- files ----


def _read_files(request: DataRequest, searched: Path | None) -> dict[str, candidates.Texted]:
    """The rows of each split, except splits that are searched."""
    path = request.path
    if searched == path:
        return {"train": _judged(path)} if request.for_training else {}
    files = own.files_of(path, request.files if searched is None else {})
    if not request.for_training and [*files] == ["train"]:
        files = {"dev": path}
    return {
        split: _train(file, request.text_columns) if split == "train" else _scored(file, request)
        for split, file in files.items()
    }


def _judged(folder: Path) -> candidates.Texted:
    """The train split of a folder: judged passages, and near passages as negatives."""
    splits = beir.read_beir_pairs(folder)
    if "train" not in splits:
        raise LimbeckError(
            f"{folder} has no qrels/train.tsv to learn from",
            "name a file of sentences, pairs or triplets as data, and the folder as dev",
        )
    return candidates.tuples_of_grades(*splits["train"])


def _train(path: Path, named: Sequence[str]) -> candidates.Texted:
    """Lines of text, tuples, or texts one by one."""
    table = read_table(path)
    columns: Sequence[str] = [*table.columns]
    if files.form_of(path) != "text":
        table.need(named, fix=candidates.NAMING)
        found = candidates.tuples_of(table, named) if len(named) != 1 else None
        if found is not None:
            return found
        usual = (names for names in _USUAL_TEXTS if {*names} <= {*table.columns})
        columns = named or next(usual, ())
    if not columns:
        raise LimbeckError(
            f"{path} has no text column of a usual name among {', '.join(table.columns)}",
            f"name it: {candidates.NAMING}; or rename: {candidates.USUAL}",
        )
    return candidates.Texted(
        [candidates.tuple_texts(table, name) for name in columns], [math.nan] * len(table)
    )


def _scored(path: Path, request: DataRequest) -> candidates.Texted:
    """Pairs with their similarity."""
    if files.form_of(path) == "text":
        raise LimbeckError(
            f"{path} is plain text, and its split is scored",
            "give a table with the columns sentence1, sentence2 and score; one with tabs ends in .tsv",
        )
    table = read_table(path)
    graded = request.label_column or any(name in table.columns for name in _SIMILARITIES)
    if not graded and {*retrieval.TRANSLATED} <= {*table.columns}:
        sides = [candidates.tuple_texts(table, name) for name in retrieval.TRANSLATED]
        return candidates.Texted(sides, [1.0] * len(table), translated=True)
    texts = [
        candidates.tuple_texts(table, name) for name in _pair_columns(table, request.text_columns)
    ]
    taught = table.columns.get(metrics.TEACHER_EMBEDDING)
    scores = _scores(table, request.label_column)
    return candidates.Texted(texts, scores, taught=None if taught is None else [*taught])


def _pair_columns(table: FileTable, named: Sequence[str]) -> Sequence[str]:
    """The two text columns of scored pairs, the first two of the given columns if they exist."""
    if len(named) > 1 and {*named} <= {*table.columns}:
        return named[:2]
    known = (*_USUAL_TEXTS, retrieval.TRANSLATED)
    usual = (names for names in known if len(names) == 2 and {*names} <= {*table.columns})
    if (found := next(usual, None)) is None:
        what = " and ".join(map(repr, named)) or "two text columns of a usual name"
        raise LimbeckError(
            f"{table.path} has no {what}",
            f"name two text columns: --text-columns …; columns that are there: {', '.join(table.columns)}",
        )
    return found


def _scores(table: FileTable, named: str | None) -> list[float]:
    """The similarity of each pair."""
    wanted = (named,) if named else _USUAL_SCORES
    known = next((name for name in wanted if name in table.columns), None)
    if known is None:
        raise LimbeckError(
            f"{table.path} has no column of similarities" + (f" {named!r}" if named else ""),
            f"name it: --label-column NAME; columns that are there: {', '.join(table.columns)}",
        )
    return table.numbers(known, fix="fix or remove that row")
