"""Queries with what belongs to them and what does not, as embedding models learn from them. Part of `limbeck.data`.

Tables as sentence-transformers reads them: a query, a passage that belongs to it, perhaps passages that do not, a
column each. And rerankers' files: lists of candidates, or a pair on each row. With grades every relevant passage makes
a tuple with those that are not; without, a query makes one with all of its passages. All end as texts in columns:
query, positive, negatives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from limbeck.data.candidate_files import (
    LABEL,
    PASSAGE,
    QUERY,
    SCORE,
    holds_candidates,
    negative_columns,
    pairs_of,
)
from limbeck.data.table import FileTable
from limbeck.support.errors import LimbeckError
from limbeck.tasks.metrics import by_query

_QUERIES = ("anchor", QUERY, "question")
_POSITIVES = ("positive", "answer", PASSAGE)

NAMING = "--text-columns COLUMN for sentences, --text-columns QUERY POSITIVE [NEGATIVE …] for pairs and triplets"
"""How columns of texts are named."""
USUAL = (
    f"sentence or text for sentences, {', '.join(_QUERIES)} with {', '.join(_POSITIVES)}, and negative or negative_1, "
    "negative_2, … for pairs and triplets"
)
"""The names by which they are found, in words."""

Texts = list[list[str]]
"""Texts by column: the queries, their positives, then negatives; "" where a row has no more."""


class Tuples(NamedTuple):
    """Texts by column, the queries first, and whether it is known which passages belong to their query.

    Where it is, the first passage of each row does and no other.
    """

    texts: Texts
    graded: bool = True


def tuples_of(table: FileTable, named: Sequence[str]) -> Tuples | None:
    """The tuples of a table; None where its texts are to be taken one by one.

    Args:
        table: as it lies in its file, lists of candidates and all.
        named: text columns that are asked for, the query's first; two or more.

    Raises:
        LimbeckError: a text is none, or nobody says what is relevant.
    """
    there = [*table.columns]
    if not named and holds_candidates(there) and _has_lists(table):
        pairs = pairs_of(table.columns, table.path)
        return _of_pairs(replace(table, columns=pairs))
    names = tuple_columns(there, named)
    if len(names) == 2 and names[1] == PASSAGE and (LABEL in there or SCORE in there):
        return _of_pairs(table)
    return Tuples(_columns(table, names)) if len(names) > 1 else None


def _has_lists(table: FileTable) -> bool:
    """Whether a row may have several candidates, in lists."""
    return any(isinstance(next(iter(column), None), list) for column in table.columns.values())


def tuple_columns(there: Sequence[str], named: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns of tuples, those that are named or those of usual names; none where there are none."""
    if named:
        return tuple(named)
    pair = next(((q, p) for q in _QUERIES for p in _POSITIVES if q in there and p in there), ())
    return (*pair, *negative_columns(there)) if pair else ()


def _columns(table: FileTable, names: Sequence[str]) -> Texts:
    return [texts_of(table, name, blank=place > 1) for place, name in enumerate(names)]


def texts_of(table: FileTable, column: str, *, blank: bool = True) -> list[str]:
    """A column of text; raises LimbeckError for a value that is none, or without `blank` one that says nothing."""
    values: list[Any] = [*table.columns[column]]
    if blank:
        values = ["" if value is None else value for value in values]
    for row, text in enumerate(values, start=1):
        if not isinstance(text, str) or not (blank or text.strip()):
            raise LimbeckError(
                f"{table.path}, row {row}: {column} is {text!r:.80}, expected text",
                _fix(text, [*table.columns]),
            )
    return values


def _fix(value: Any, there: Sequence[str]) -> str:
    """What to do about a value that is no text."""
    if isinstance(value, list):
        return f'write lists beside a text {QUERY!r}: {{"query": "…", "positive": ["…"], "negative": ["…", "…"]}}'
    return (
        f"fill the gap or take the row out, or name other columns: {NAMING}; there are "
        f"{', '.join(there)}"
    )


def _of_pairs(table: FileTable) -> Tuples:
    """Of a table with a query and one of its candidates on each row."""
    columns = {
        QUERY: texts_of(table, QUERY, blank=False),
        PASSAGE: texts_of(table, PASSAGE, blank=False),
    }
    grades = [
        _grade(value, table.path, row) for row, value in enumerate(table.columns.get(LABEL, ()), 1)
    ]
    if all(map(math.isnan, grades)):
        return Tuples(_all_passages(columns), graded=False)
    return Tuples(tuples_of_grades(columns, grades))


def _all_passages(columns: Mapping[str, list[str]]) -> Texts:
    """Every query with its passages, each once."""
    queries, passages = columns[QUERY], columns[PASSAGE]
    groups = by_query(np.unique(queries, return_inverse=True)[1])
    return _by_column(
        [queries[places[0]], *dict.fromkeys(passages[place] for place in places)]
        for places in sorted(groups, key=lambda places: int(places[0]))
    )


def _by_column(rows: Iterable[list[str]]) -> Texts:
    """Rows of different lengths as columns."""
    return [list(column) for column in zip_longest(*rows, fillvalue="")]


def tuples_of_grades(columns: Mapping[str, list[str]], grades: Sequence[float]) -> Texts:
    """Every passage with a grade above 0 with its query and all passages of grade 0.

    Raises:
        LimbeckError: nothing is relevant.
    """
    queries, passages = columns[QUERY], columns[PASSAGE]
    judged = np.asarray(grades, dtype=np.float64)
    rows: Texts = []
    for places in by_query(np.unique(queries, return_inverse=True)[1]):
        negatives = [passages[place] for place in places if judged[place] == 0]
        rows += [
            [queries[place], passages[place], *negatives] for place in places if judged[place] > 0
        ]
    if not rows:
        raise LimbeckError(
            "no query has a passage with a grade above 0, so that nothing belongs together",
            "give grades: 1 for what answers the query, else 0",
        )
    return _by_column(rows)


def _grade(value: Any, path: Path, row: int) -> float:
    """A number; NaN where nobody judged."""
    if value in (None, ""):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise LimbeckError(
            f"{path}, row {row}: {LABEL} is {value!r:.60}",
            "a grade is a number of 0 or more, 0 for what is not relevant",
        ) from None
