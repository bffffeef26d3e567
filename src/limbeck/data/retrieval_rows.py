"""A folder in BEIR's layout as rows of texts to embed, scored by what is retrieved. Part of `limbeck.data`.

Read by the reader of sentences, as the dev split of embedding models and as data of their own.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from datasets import Dataset, DatasetDict, Value

from limbeck.data.beir import RetrievalSet, beir_splits, read_beir
from limbeck.data.candidate_files import PASSAGE, QUERY
from limbeck.data.own_tuples import Tuples, tuples_of_grades
from limbeck.data.pairs import read_beir_pairs
from limbeck.data.splits import make_split
from limbeck.support.errors import LimbeckError
from limbeck.tasks.candidates import FIRST
from limbeck.tasks.retrieval import GRADES, JUDGED, RETRIEVAL_FEATURES, RETRIEVAL_METRICS
from limbeck.tasks.task import Task

_SCORED = ("dev", "test")


def retrieval_task(task: Task) -> Task:
    """The same, scored by what is retrieved."""
    return replace(task, metrics=RETRIEVAL_METRICS, primary=RETRIEVAL_METRICS[0])


def retrieval_splits(
    task: Task, folder: Path, max_rows: int, *, alone: bool = False
) -> DatasetDict:
    """The splits dev and test of a folder, those that are there.

    Args:
        task: whose text columns the rows have.
        folder: in BEIR's layout.
        max_rows: of each file.
        alone: it is read to score alone, so that the test split is dev where there is no other.

    Raises:
        LimbeckError: as `read_beir`; there is neither.
    """
    there = [split for split in _SCORED if split in beir_splits(folder)]
    if not there:
        raise LimbeckError(
            f"{folder} has no qrels/dev.tsv and no qrels/test.tsv to score embeddings on",
            "add one of them",
        )
    read = {one: _rows(task, read_beir(folder, one, max_rows)) for one in there}
    return DatasetDict({"dev": read["test"]} if alone and there == ["test"] else read)


def retrieval_tuples(folder: Path, max_rows: int) -> Tuples:
    """The train split of a folder as tuples: what was judged, and near passages as negatives."""
    splits = read_beir_pairs(folder, max_rows)
    if "train" not in splits:
        raise LimbeckError(
            f"{folder} has no qrels/train.tsv to learn from",
            "name a file of sentences, pairs or triplets as data, and the folder as dev",
        )
    queries, passages, grades = splits["train"]
    return Tuples(tuples_of_grades({QUERY: queries, PASSAGE: passages}, grades))


def _rows(task: Task, found: RetrievalSet) -> Dataset:
    """Queries, then the corpus."""
    first = len(found.queries)
    places = {name: first + place for place, name in enumerate(found.corpus)}
    texts = [*found.queries.values(), *found.corpus.values()]
    blank = [""] * len(texts)
    columns = dict.fromkeys(task.text_columns, blank) | {task.text_columns[0]: texts}
    rows = make_split(task, columns, [math.nan] * len(texts))
    qrels = [found.qrels[query] for query in found.queries]
    none: list[list] = [[]] * len(found.corpus)
    judged = [[places[name] for name in grades] for grades in qrels] + none
    values = [[*grades.values()] for grades in qrels] + none
    rows = rows.add_column(JUDGED, judged, feature=RETRIEVAL_FEATURES[JUDGED])
    rows = rows.add_column(GRADES, values, feature=RETRIEVAL_FEATURES[GRADES])
    kinds = [QUERY] * first + [PASSAGE] * len(found.corpus)
    return rows.add_column(FIRST, kinds, feature=Value("string"))
