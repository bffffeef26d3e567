"""`--data FILE --kind pair-score`: a user's own queries with their candidates. Part of `limbeck.data`.

Candidates in lists (`candidates`), tables with a pair in each row, and folders in BEIR's layout. A dev split is made of
complete queries. All files end as rows of a query, a passage and a grade; the grade of a candidate without a
judgment is NaN in train, 0 in dev or test.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from datasets import Dataset, DatasetDict

from limbeck.data import beir, candidates, files
from limbeck.data.own import Rows, files_of, made_splits, split_files
from limbeck.data.reader import DataRequest, Loaded, OnDisk, data_reader
from limbeck.data.splits import Division, SplitRows, hold_out, plain_text, with_labels
from limbeck.data.table import read_table
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.tasks import PAIR_SCORE, metrics, pair_score
from limbeck.tasks.task import Task

_USUAL = (candidates.QUERY, candidates.PASSAGE)


@data_reader("queries with candidates")
class OwnPairs(OnDisk):
    """Files of candidates, tables of pairs, and folders in BEIR's layout."""

    takes_dev = True
    divides = True

    def reads(self, request: DataRequest) -> bool:
        """Requests for pairs, and sources whose layout contains pairs."""
        if not super().reads(request) or request.known is not None:
            return False
        if request.kind is None:
            return beir.is_beir(request.path) or _has_lists(request.path)
        return request.task_type is PAIR_SCORE

    def read_rows(self, request: DataRequest) -> Loaded:
        """Train, dev and test as in the files, otherwise split by complete queries; dev may be a given folder."""
        if request.labelling.classes or request.labelling.holds == "classes":
            raise LimbeckError("classes, labels: grades of candidates are numbers", "leave it out")
        if request.division.group_column is not None:
            raise LimbeckError(
                "group_column: the candidates of a query stay together anyway", "leave it out"
            )
        path, scored = request.path, request.dev_set
        named = request.files if scored is None else {}
        if beir.is_beir(path):
            rows = _of_folder(path)
        else:
            files = files_of(path, named)
            rows = {split: _read(file, request, split=split) for split, file in files.items()}
            if scored is not None:
                found = _of_folder(scored)
                found.pop("train", None)
                rows |= beir.scored_splits(scored, found)
        name = request.new_name
        task = Task(
            name,
            name,
            _USUAL,
            (),
            pair_score.METRICS_OF_RANKS,
            pair_score.METRICS_OF_RANKS[0],
            kind=PAIR_SCORE,
        )
        queries = rows["train"].texts[candidates.QUERY] if "train" in rows else []
        groups = np.unique([plain_text(query) for query in queries], return_inverse=True)[1]
        splits = made_splits(request, task, rows, groups, _whole_queries)
        return task, DatasetDict({split: _judged(split, found) for split, found in splits.items()})


def _judged(split: str, rows: Dataset) -> Dataset:
    """Candidates without a judgment count as not relevant where they are scored, as in TREC's scores."""
    if split == "train" or candidates.LABEL not in rows.column_names:
        return rows
    return with_labels(
        rows, candidates.LABEL, np.nan_to_num(rows.with_format("numpy")[candidates.LABEL][:])
    )


def _whole_queries(
    labels: Sequence[float], stratify: bool, seed: int, division: Division, queries: np.ndarray
) -> SplitRows:
    """Rows of train, dev and test: complete queries that have a relevant passage, and another one too."""
    grades = np.nan_to_num(np.asarray(labels))
    useful = [
        rows for rows in metrics.by_query(queries) if len(rows) > 1 and (grades[rows] > 0).any()
    ]
    shares = [division.dev_share, division.test_share]
    if len(useful) < 1 + sum(share != 0 for share in shares):
        raise LimbeckError(
            f"{len(useful)} queries have several candidates and one of them relevant, too few to keep some back as a "
            "dev split",
            "give a folder with train and dev files, or more queries",
        )
    drawn = hold_out(range(len(useful)), stratify, seed, division)
    none = np.array([], dtype=np.int64)
    dev, test = (
        np.sort(np.concatenate([none, *(useful[one] for one in part)]))
        for part in (drawn.dev, drawn.test)
    )
    return SplitRows(np.setdiff1d(np.arange(len(grades)), np.concatenate([dev, test])), dev, test)


# ---- files ----


def _of_folder(folder: Path) -> dict[str, Rows]:
    """The splits of a folder in BEIR's layout."""
    read = beir.read_beir_pairs(folder)
    return {
        split: Rows({candidates.QUERY: queries, candidates.PASSAGE: passages}, grades)
        for split, (queries, passages, grades) in read.items()
    }


def _has_lists(path: Path) -> bool:
    """Whether a file, or the train file of a folder, holds lists of candidates; quick, and without an error."""
    try:
        file = split_files(path)["train"] if path.is_dir() else path
        # To open a pipe may wait for ever.
        if not file.is_file() or files.form_of(file) not in ("parquet", "jsonl"):
            return False
        with closing(files.open_rows(file)) as source:
            return candidates.holds_candidates(source.columns)
    except (LimbeckError, OSError):  # reported when the rows are read
        return False


def _read(path: Path, request: DataRequest, *, split: str) -> Rows:
    table, named = candidates.with_pairs(read_table(path), request.text_columns)
    texts, label = list(named or _USUAL), request.label_column or candidates.LABEL
    problems = []
    if len(texts) != 2 or len({*texts, label}) < 3:
        problems.append(
            Problem(
                f"columns {', '.join([*texts, label])}: a pair is a query, a passage and a grade",
                "name two text columns, the query's first, and another for the label; of triplets --text-columns QUERY "
                "POSITIVE NEGATIVE",
            )
        )
    # A file may lack the column of the usual name: its scores teach.
    needed = request.label_column is not None or candidates.SCORE not in table.columns
    graded = split == "dev" or (split == "train" and label != metrics.TEACHER_LABEL)
    wanted = [*texts, label] if needed and graded else texts
    fix = "name --text-columns QUERY PASSAGE and --label-column"
    if problem := table.missing(wanted, fix=fix):
        problems.append(problem)
    raise_problems(problems)
    queries, passages = (table.texts(name, blank=False, fix="fill the gap") for name in texts)
    _each_once(path, queries, passages)
    rows = Rows({candidates.QUERY: queries, candidates.PASSAGE: passages}, None)
    if label not in table.columns:
        return rows
    grades = table.numbers(label, gaps=True, least=0, fix=candidates.GRADE_FIX)
    return rows if np.isnan(grades).all() else rows._replace(labels=grades)


def _each_once(path: Path, queries: Sequence[str], passages: Sequence[str]) -> None:
    seen: dict[tuple[str, str], int] = {}
    for row, pair in enumerate(zip(queries, passages, strict=True), start=1):
        if pair in seen:
            raise LimbeckError(
                f"{path}, row {row}: the same query and passage as in row {seen[pair]}: {pair[0]!r:.60}",
                "take one of them out: a query's candidates are different texts",
            )
        seen[pair] = row
