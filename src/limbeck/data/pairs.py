"""`--data FILE --kind pair-score`: a user's own queries with their candidates. Part of `limbeck.data`.

Candidates in lists (`candidate_files`), tables with a pair in each row, and folders in BEIR's layout. A dev split is
made of whole queries. All files end as rows of a query, a passage and a grade; NaN is the grade of a candidate of train
that nobody judged, 0 of one of dev or test.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import DatasetDict
from scipy import sparse

from limbeck.data.beir import RetrievalSet, beir_splits, is_beir, read_beir
from limbeck.data.candidate_files import (
    LABEL,
    NEGATIVE,
    PASSAGE,
    POSITIVE,
    QUERY,
    SCORE,
    holds_candidates,
    pairs_in,
    pairs_of,
)
from limbeck.data.files import form_of, opened_text, parquet_file
from limbeck.data.on_disk import OnDisk
from limbeck.data.own import files_of, split_files
from limbeck.data.own_tuples import tuple_columns
from limbeck.data.reader import DataRequest, Loaded, data_reader
from limbeck.data.splits import Division, SplitRows, check_splits, hold_out, make_split, take
from limbeck.data.table import FileTable, read_table
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import PAIR_SCORE
from limbeck.tasks.metrics import TEACHER_LABEL, by_query
from limbeck.tasks.pair_score import METRICS_OF_RANKS
from limbeck.tasks.task import Task

_USUAL = (QUERY, PASSAGE)


class Pairs(NamedTuple):
    """The rows of one split; `labels` is None where no row has a grade, and holds NaN for those without."""

    queries: list[str]
    passages: list[str]
    labels: list[float] | None


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

    def read(self, request: DataRequest) -> Loaded:
        """Train, dev and test as the files have them, else out of whole queries; dev may be a folder that is named."""
        if request.labelling.classes or request.labelling.holds == "classes":
            raise LimbeckError("classes, labels: grades of candidates are numbers", "leave it out")
        if request.division.group_column is not None:
            raise LimbeckError(
                "group_column: the candidates of a query stay together anyway", "leave it out"
            )
        path, scored = request.path, request.dev_set
        named = {} if scored is not None else request.files
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


def _loaded(request: DataRequest, splits: dict[str, Pairs]) -> Loaded:
    name = request.new_name
    task = Task(name, name, _USUAL, (), METRICS_OF_RANKS, METRICS_OF_RANKS[0], kind=PAIR_SCORE)
    found = DatasetDict()
    for split, pairs in splits.items():
        if list(splits) == ["train"] and not request.for_training:
            found["dev"] = _split(task, _judged(pairs))
        elif split == "train" and pairs.labels is not None:
            parts = _held_out(pairs, request.seed, request.division.beside(splits))
            found["train"] = _split(task, _taken(pairs, parts.train))
            for held in ("dev", "test"):
                if len(rows := getattr(parts, held)):
                    found[held] = _split(task, _judged(_taken(pairs, rows)))
        else:
            found[split] = _split(task, pairs if split == "train" else _judged(pairs))
    check_splits(task, found, str(request.path), for_training=request.for_training)
    return task, found


def _split(task: Task, pairs: Pairs) -> Any:
    texts = dict(zip(_USUAL, (pairs.queries, pairs.passages), strict=True))
    return make_split(task, texts, pairs.labels)


def _judged(pairs: Pairs) -> Pairs:
    """What nobody judged counts as not relevant, as in TREC's scores."""
    labels = pairs.labels
    if labels is None:
        return pairs
    return pairs._replace(labels=[0.0 if math.isnan(label) else label for label in labels])


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
    dev, test = (
        np.sort(
            np.concatenate([np.array([], dtype=np.int64), *(groups[useful[one]] for one in part)])
        )
        for part in (drawn.dev, drawn.test)
    )
    return SplitRows(np.setdiff1d(np.arange(len(labels)), np.concatenate([dev, test])), dev, test)


def _taken(pairs: Pairs, rows: np.ndarray) -> Pairs:
    columns: dict[str, Sequence[Any]] = {
        QUERY: pairs.queries,
        PASSAGE: pairs.passages,
        LABEL: pairs.labels or [],
    }
    return Pairs(*take(columns, rows).values())


# ---- files ----


def _has_lists(path: Path) -> bool:
    """Whether a file, or the train file of a folder, holds lists of candidates; quick, and without an error."""
    if path.is_dir():
        try:
            path = split_files(path)["train"]
        except LimbeckError:
            return False
    if not path.is_file():  # to open a pipe may wait for ever
        return False
    try:
        if form_of(path) == "parquet":
            with parquet_file(path) as whole:
                return holds_candidates(whole.schema_arrow.names)
        if form_of(path) != "jsonl":
            return False
        with opened_text(path) as file:
            first = json.loads(next((line for line in file if line.strip()), "0"))
        return isinstance(first, dict) and holds_candidates([*first])
    except (OSError, ValueError, RecursionError):
        return False


def _read(path: Path, request: DataRequest, *, split: str) -> Pairs:
    table, named = with_pairs(read_table(path, request.max_rows), request.text_columns)
    texts = list(named or _USUAL)
    label = request.label_column or LABEL
    problems = []
    if len(texts) != 2 or len(set(texts)) < 2 or label in texts:
        problems.append(
            Problem(
                f"columns {', '.join([*texts, label])}: a pair is a query, a passage and a grade",
                "name two text columns, the query's first, and another for the label; of triplets --text-columns QUERY "
                "POSITIVE NEGATIVE",
            )
        )
    there = f"columns that are there: {', '.join(table.columns)}"
    missing = [name for name in texts if name not in table.columns]
    # Of the usual name a file may have none: its scores teach.
    if label not in table.columns and (request.label_column or SCORE not in table.columns):
        graded = split == "dev" or (split == "train" and label != TEACHER_LABEL)
        missing += [label] if graded else []
    if missing:
        problems.append(
            Problem(
                f"{path} has no column {', '.join(map(repr, missing))}",
                f"name --text-columns QUERY PASSAGE and --label-column; {there}",
            )
        )
    if problems:
        raise LimbeckError(problems)
    queries, passages = (_texts(table, name) for name in texts)
    _each_once(path, queries, passages)
    return Pairs(queries, passages, _grades(table, label))


def with_pairs(table: FileTable, named: Sequence[str]) -> tuple[FileTable, Sequence[str]]:
    """A row for each candidate, of lists and of triplets in columns; and its text columns as far as they are named."""
    there = [*table.columns]
    if len(named) < 3 and (named or (table.typed and holds_candidates(there))):
        return pairs_in(table), named
    columns = tuple_columns(there, named)
    if len(columns) < 3 or not set(columns) <= set(there):
        return table, named
    names = (QUERY, POSITIVE, *(f"{NEGATIVE}_{place}" for place in range(1, len(columns) - 1)))
    texts = {name: table.columns[old] for name, old in zip(names, columns, strict=True)}
    return replace(table, columns=pairs_of(texts, table.path)), ()


def _texts(table: FileTable, name: str) -> list[str]:
    values = list(table.columns[name])
    for row, value in enumerate(values, start=1):
        if not isinstance(value, str) or not value.strip():
            raise LimbeckError(
                f"{table.path}, row {row}: {name} is {value!r:.80}, expected text", "fill the gap"
            )
    return values


def _each_once(path: Path, queries: Sequence[str], passages: Sequence[str]) -> None:
    seen: dict[tuple[str, str], int] = {}
    for row, pair in enumerate(zip(queries, passages, strict=True), start=1):
        if pair in seen:
            raise LimbeckError(
                f"{path}, row {row}: the same query and passage as in row {seen[pair]}: {pair[0]!r:.60}",
                "take one of them out: a query's candidates are different texts",
            )
        seen[pair] = row


def _grades(table: FileTable, name: str) -> list[float] | None:
    if name not in table.columns:
        return None
    found = [
        math.nan if value in (None, "") else _grade(value, table.path, row, name)
        for row, value in enumerate(table.columns[name], start=1)
    ]
    return None if all(map(math.isnan, found)) else found


def _grade(value: Any, path: Path, row: int, name: str) -> float:
    try:
        grade = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        grade = math.nan
    if not 0 <= grade < math.inf:
        raise LimbeckError(
            f"{path}, row {row}: {name} is {value!r:.60}",
            "a grade is a number of 0 or more, 0 for what is not relevant",
        )
    return grade


# A folder in BEIR's layout as queries with candidates: what was judged, and passages that share
# words with it. Grades name little but what is relevant, and a reranker learns from what only
# looks so. The nearest passages by TF-IDF stand beside what was judged.


NEAREST = 20
"""Passages beside what was judged of a query: the nearest by TF-IDF that were not judged."""
_SPLITS = ("train", "dev", "test")
_AT_ONCE = 256

Columns = tuple[list[str], list[str], list[float]]


def read_beir_pairs(folder: Path, max_rows: int) -> dict[str, Columns]:
    """By split queries, passages and grades, a row a pair; what was not judged has grade 0.

    Raises:
        LimbeckError: as `read_beir`; there is none of the splits.
    """
    found = beir_splits(folder)
    known = [split for split in _SPLITS if split in found]
    if not known:
        raise LimbeckError(
            f"{folder} has qrels of {', '.join(found)}",
            f"name the files {', '.join(f'{split}.tsv' for split in _SPLITS)}",
        )
    return {split: _pairs(read_beir(folder, split, max_rows)) for split in known}


def _pairs(found: RetrievalSet) -> Columns:
    ids = [*found.corpus]
    near = nearest([*found.queries.values()], [*found.corpus.values()], NEAREST)
    queries: list[str] = []
    passages: list[str] = []
    grades: list[float] = []
    for (query, text), places in zip(found.queries.items(), near, strict=True):
        judged = _with_candidates(found.qrels[query], [ids[place] for place in places])
        # Passages of other ids may have one text; the first, which was judged, speaks for it.
        texts: dict[str, float] = {}
        for passage, grade in judged.items():
            texts.setdefault(found.corpus[passage], grade)
        queries += [text] * len(texts)
        passages += texts
        grades += texts.values()
    return queries, passages, grades


def _with_candidates(judged: dict[str, float], near: list[str]) -> dict[str, float]:
    return judged | {name: 0.0 for name in near if name not in judged}


def nearest(queries: list[str], corpus: list[str], count: int) -> np.ndarray:
    """Places of the passages with the greatest cosine of TF-IDF to each query, (queries, count or fewer)."""
    # Here and not at the top: slow to import, and few runs read such folders.
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    passages = words.fit_transform(corpus)
    asked = sparse.csr_matrix(words.transform(queries))
    kept = min(count, len(corpus))
    found = []
    for start in range(0, len(queries), _AT_ONCE):
        scores = (asked[start : start + _AT_ONCE] @ passages.T).toarray()
        found.append(np.argsort(-scores, axis=1, kind="stable")[:, :kept])
    return np.concatenate(found)
