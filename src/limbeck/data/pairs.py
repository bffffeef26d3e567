"""`--data FILE --kind pair-score`: a user's own queries with their candidates. Part of `limbeck.data`.

Candidates in lists (`candidates`), tables with a pair in each row, and folders in BEIR's layout. A dev split is made of
whole queries. All files end as rows of a query, a passage and a grade; NaN is the grade of a candidate of train that
nobody judged, 0 of one of dev or test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from datasets import Dataset, DatasetDict

from limbeck.data.beir import is_beir, read_beir_pairs
from limbeck.data.candidates import (
    GRADE_FIX,
    LABEL,
    PASSAGE,
    QUERY,
    SCORE,
    holds_candidates,
    with_pairs,
)
from limbeck.data.files import form_of, open_rows
from limbeck.data.own import files_of, split_files
from limbeck.data.reader import DataRequest, Loaded, OnDisk, data_reader
from limbeck.data.splits import Division, SplitRows, check_splits, hold_out, make_split, take
from limbeck.data.table import read_table
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import PAIR_SCORE
from limbeck.tasks.metrics import TEACHER_LABEL, by_query
from limbeck.tasks.pair_score import METRICS_OF_RANKS
from limbeck.tasks.task import Task

_USUAL = (QUERY, PASSAGE)


class Pairs(NamedTuple):
    """The rows of one split; `labels` is None where no row has a grade, and holds NaN for those without."""

    queries: Sequence[str]
    passages: Sequence[str]
    labels: Sequence[float] | None


@data_reader("queries with candidates")
class OwnPairs(OnDisk):
    """Files of candidates, tables of pairs, and folders in BEIR's layout."""

    takes_dev = True
    divides = True

    def reads(self, request: DataRequest) -> bool:
        """What is asked for as pairs, or says by its layout that it holds some."""
        if not super().reads(request) or request.known is not None:
            return False
        if request.kind is None:
            return is_beir(request.path) or _has_lists(request.path)
        return request.task_type is PAIR_SCORE

    def read_rows(self, request: DataRequest) -> Loaded:
        """Train, dev and test as the files have them, else out of whole queries; dev may be a folder that is named."""
        if request.labelling.classes or request.labelling.holds == "classes":
            raise LimbeckError("classes, labels: grades of candidates are numbers", "leave it out")
        if request.division.group_column is not None:
            raise LimbeckError(
                "group_column: the candidates of a query stay together anyway", "leave it out"
            )
        path, scored = request.path, request.dev_set
        named = request.files if scored is None else {}
        if is_beir(path):
            return _loaded(request, _of_folder(path, request.max_rows))
        files = files_of(path, named)
        splits = {split: _read(file, request, split=split) for split, file in files.items()}
        if scored is not None:
            splits |= _dev_of_folder(scored, request.max_rows)
        return _loaded(request, splits)


def _of_folder(folder: Path, max_rows: int) -> dict[str, Pairs]:
    """The splits of a folder in BEIR's layout."""
    read = read_beir_pairs(folder, max_rows)
    return {name: Pairs(*columns) for name, columns in read.items()}


def _dev_of_folder(folder: Path, max_rows: int) -> dict[str, Pairs]:
    """Dev and test of a folder that is named as dev; test is dev where there is no other.

    Raises:
        LimbeckError: it has neither.
    """
    found = _of_folder(folder, max_rows)
    found.pop("train", None)
    if not found:
        raise LimbeckError(
            f"{folder} has no qrels/dev.tsv and no qrels/test.tsv to score a reranker on",
            "add one of them",
        )
    return found if "dev" in found else {"dev": found["test"]}


def _loaded(request: DataRequest, read: Mapping[str, Pairs]) -> Loaded:
    name = request.new_name
    task = Task(name, name, _USUAL, (), METRICS_OF_RANKS, METRICS_OF_RANKS[0], kind=PAIR_SCORE)
    splits = dict(read)
    if [*splits] == ["train"] and not request.for_training:
        splits = {"dev": splits["train"]}
    elif (pairs := splits.get("train")) is not None and pairs.labels is not None:
        parts = _held_out(pairs, request.seed, request.division.beside(splits))
        splits |= {
            split: Pairs(*take(pairs._asdict(), rows).values())
            for split, rows in parts._asdict().items()
            if split == "train" or len(rows)
        }
    found = DatasetDict({split: _split(task, split, pairs) for split, pairs in splits.items()})
    check_splits(task, found, str(request.path), for_training=request.for_training)
    return task, found


def _split(task: Task, split: str, pairs: Pairs) -> Dataset:
    """As rows; what nobody judged counts as not relevant where it is scored, as in TREC's scores."""
    texts = dict(zip(_USUAL, pairs[:2], strict=True))
    labels = pairs.labels
    if labels is not None and split != "train":
        labels = np.nan_to_num(labels).tolist()
    return make_split(task, texts, labels)


def _held_out(pairs: Pairs, seed: int, division: Division) -> SplitRows:
    """Rows of train, dev and test: whole queries that have something relevant, and something else beside it."""
    labels = np.asarray(pairs.labels)
    groups = by_query(np.unique(pairs.queries, return_inverse=True)[1])
    useful = [
        place
        for place, rows in enumerate(groups)
        if len(rows) > 1 and (np.nan_to_num(labels[rows]) > 0).any()
    ]
    shares = [division.dev_share, division.test_share]
    if len(useful) < 1 + sum(share != 0 for share in shares) and any(shares):
        raise LimbeckError(
            f"{len(useful)} queries have several candidates and one of them relevant, too few to keep some back as a "
            "dev split",
            "give a folder with train and dev files, or more queries",
        )
    drawn = hold_out(useful, False, seed, division)
    none = np.array([], dtype=np.int64)
    dev, test = (
        np.sort(np.concatenate([none, *(groups[useful[one]] for one in part)]))
        for part in (drawn.dev, drawn.test)
    )
    return SplitRows(np.setdiff1d(np.arange(len(labels)), np.concatenate([dev, test])), dev, test)


# ---- files ----


def _has_lists(path: Path) -> bool:
    """Whether a file, or the train file of a folder, holds lists of candidates; quick, and without an error."""
    try:
        file = split_files(path)["train"] if path.is_dir() else path
        # To open a pipe may wait for ever.
        if not file.is_file() or form_of(file) not in ("parquet", "jsonl"):
            return False
        with closing(open_rows(file)) as source:
            return holds_candidates(source.columns)
    except (LimbeckError, OSError):  # said where the rows are read
        return False


def _read(path: Path, request: DataRequest, *, split: str) -> Pairs:
    table, named = with_pairs(read_table(path, request.max_rows), request.text_columns)
    texts, label = list(named or _USUAL), request.label_column or LABEL
    problems = []
    if len(texts) != 2 or len({*texts, label}) < 3:
        problems.append(
            Problem(
                f"columns {', '.join([*texts, label])}: a pair is a query, a passage and a grade",
                "name two text columns, the query's first, and another for the label; of triplets --text-columns QUERY "
                "POSITIVE NEGATIVE",
            )
        )
    # Of the usual name a file may have none: its scores teach.
    needed = request.label_column is not None or SCORE not in table.columns
    graded = split == "dev" or (split == "train" and label != TEACHER_LABEL)
    wanted = [*texts, label] if needed and graded else texts
    fix = "name --text-columns QUERY PASSAGE and --label-column"
    if problem := table.missing(wanted, fix=fix):
        problems.append(problem)
    if problems:
        raise LimbeckError(problems)
    queries, passages = (table.texts(name, blank=False, fix="fill the gap") for name in texts)
    _each_once(path, queries, passages)
    if label not in table.columns:
        return Pairs(queries, passages, None)
    grades = table.numbers(label, gaps=True, least=0, fix=GRADE_FIX)
    return Pairs(queries, passages, None if np.isnan(grades).all() else grades)


def _each_once(path: Path, queries: Sequence[str], passages: Sequence[str]) -> None:
    seen: dict[tuple[str, str], int] = {}
    for row, pair in enumerate(zip(queries, passages, strict=True), start=1):
        if pair in seen:
            raise LimbeckError(
                f"{path}, row {row}: the same query and passage as in row {seen[pair]}: {pair[0]!r:.60}",
                "take one of them out: a query's candidates are different texts",
            )
        seen[pair] = row
