"""Queries, a corpus and what of it is relevant, in BEIR's layout. Part of `limbeck.data`.

A folder holds `queries.jsonl` and `corpus.jsonl`, an object a line with `_id` and `text` (of the corpus also a
`title`, which may be empty), and `qrels/SPLIT.tsv` with a header line and the columns query-id, corpus-id, score
(Thakur et al. 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from limbeck.data.table import ArrowColumn, FileTable, read_table
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.settings import MAX_ROWS

QUERIES, CORPUS, QRELS = "queries.jsonl", "corpus.jsonl", "qrels"
_COLUMNS = ("query-id", "corpus-id", "score")

Grades = dict[str, dict[str, float]]
"""By query the grades of the passages that were judged, 0 for not relevant."""


@dataclass(frozen=True)
class RetrievalSet:
    """One split of a folder.

    `queries`: text by id, of those that the split judges. `corpus`: by id title and text in one. `qrels`: their
    grades.
    """

    queries: Mapping[str, str]
    corpus: Mapping[str, str]
    qrels: Grades


def is_beir(path: Path) -> bool:
    """Whether a folder looks like one of these."""
    return path.is_dir() and any((path / name).exists() for name in (QUERIES, CORPUS, QRELS))


def beir_splits(folder: Path) -> list[str]:
    """Which splits a folder judges, in alphabetical order.

    Raises:
        LimbeckError: a file of the layout is missing, all that are in one list.
    """
    wanted = {name: (folder / name).is_file() for name in (QUERIES, CORPUS)}
    splits = sorted(file.stem for file in (folder / QRELS).glob("*.tsv"))
    missing = [name for name, there in wanted.items() if not there]
    missing += [] if splits else [f"{QRELS}/SPLIT.tsv"]
    if missing:
        raise LimbeckError(
            [
                Problem(
                    f"{folder} has no {name}",
                    f"a folder in BEIR's layout holds {QUERIES}, {CORPUS} and {QRELS}/train.tsv, dev.tsv or test.tsv",
                )
                for name in missing
            ]
        )
    return splits


def read_beir(folder: Path, split: str, max_rows: int = MAX_ROWS) -> RetrievalSet:
    """One split's queries, the corpus and the grades.

    Args:
        folder: in BEIR's layout.
        split: the name of a file of `qrels`.
        max_rows: of each file; more are refused.

    Raises:
        LimbeckError: a file is missing or is not as the layout says, an id stands twice, or the grades name a query
            or a passage that is not there.
    """
    splits = beir_splits(folder)
    if split not in splits:
        raise LimbeckError(
            f"{folder} has no {QRELS}/{split}.tsv", f"splits that are there: {', '.join(splits)}"
        )
    queries = _texts(folder / QUERIES, max_rows, titled=False)
    corpus = _texts(folder / CORPUS, max_rows, titled=True)
    place = folder / QRELS / f"{split}.tsv"
    qrels = _grades(place, max_rows)
    strange = {
        QUERIES: [query for query in qrels if query not in queries],
        CORPUS: [one for judged in qrels.values() for one in judged if one not in corpus],
    }
    problems = [
        Problem(
            f"{place}: {len(ids)} ids are not in {name}, the first {ids[0]!r}",
            "take those lines out, or add what they name",
        )
        for name, ids in strange.items()
        if ids
    ]
    if problems:
        raise LimbeckError(problems)
    return RetrievalSet({query: queries[query] for query in qrels}, corpus, qrels)


def _texts(path: Path, max_rows: int, *, titled: bool) -> dict[str, str]:
    table = read_table(path, max_rows)
    ids, texts = (_text(table, name) for name in ("_id", "text"))
    titles = _text(table, "title") if titled and "title" in table.columns else [""] * len(texts)
    found: dict[str, str] = {}
    for row, (name, title, text) in enumerate(zip(ids, titles, texts, strict=True), start=1):
        if name in found:
            raise LimbeckError(f"{path}, row {row}: the id {name!r} stands twice", "take one out")
        whole = f"{title} {text}".strip()
        if not whole:
            raise LimbeckError(f"{path}, row {row}: {name!r} has no text", "fill the gap")
        found[name] = whole
    return found


def _text(table: FileTable, name: str) -> list[str]:
    column = _column(table, name)
    values = list(column)
    row = next((row for row, value in enumerate(values, 1) if not isinstance(value, str)), None)
    if row is not None:
        raise LimbeckError(
            f"{table.path}, row {row}: {name} is {values[row - 1]!r:.60}, expected text",
            'write {"_id": "q1", "text": "…"}, one object per line, ids as text',
        )
    return values


def _column(table: FileTable, name: str) -> ArrowColumn:
    if name not in table.columns:
        raise LimbeckError(
            f"{table.path} has no {name!r}", f"what is there: {', '.join(table.columns)}"
        )
    return table.columns[name]


def _grades(path: Path, max_rows: int) -> Grades:
    table = read_table(path, max_rows)
    columns = [list(_column(table, name)) for name in _COLUMNS]
    found: Grades = {}
    for row, (query, passage, written) in enumerate(zip(*columns, strict=True), start=2):
        where = f"{path}, line {row}"
        try:
            grade = float(written)
        except ValueError:
            grade = math.nan
        if not math.isfinite(grade):
            raise LimbeckError(f"{where}: the score is {written!r}", "expected a number, 0 or more")
        judged = found.setdefault(query, {})
        if passage in judged:
            raise LimbeckError(
                f"{where}: {passage!r} is judged twice for query {query!r}", "take one out"
            )
        # TREC marks what is worse than not relevant with numbers below 0.
        judged[passage] = max(grade, 0.0)
    return found
