"""Queries with candidates: lists of them, one pair per row, and tuples of texts that match. Part of `limbeck.data`.

    {"query": "…", "passages": ["…", "…"], "labels": [1, 0], "scores": [7.2, -3.1]}
    {"query": "…", "positive": ["…"], "negative": ["…", "…"]}

`labels` are the relevance of each passage, `scores` are a teacher's, and either may be left out. `documents` and
`docs` are other names of `passages`. The second form is sentence-transformers': 1 for positive passages, 0 for
negative ones. Rerankers read one row per pair; embedding models read tuples of a query, a passage that belongs to
it and passages that do not.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from limbeck.data.table import ArrowColumn, FileTable
from limbeck.support.errors import LimbeckError
from limbeck.tasks.metrics import by_query

QUERY, PASSAGE, LABEL, SCORE = "query", "passage", "label", "score"
"""The columns of the pairs."""
POSITIVE, NEGATIVE = "positive", "negative"
"""The columns of triplets, in addition to the query's."""
_PASSAGES = ("passages", "documents", "docs")
LISTED_TEXTS = tuple((QUERY, name) for name in _PASSAGES)
"""The columns of texts, under each of their names, where a row is a query with its passages."""
_LABELS, _SCORES = "labels", "scores"
_FIX = 'write {"query": "…", "passages": ["…", "…"], "labels": [1, 0]}, one object per line'
GRADE_FIX = "a grade is a number of 0 or more, 0 for an irrelevant passage"

Columns = Mapping[str, ArrowColumn]
Numbers = tuple[float | None, float | None]
"""A candidate's grade and score."""


def holds_candidates(names: Sequence[str]) -> bool:
    """Whether a table with columns of these names has a query and lists of candidates in each row."""
    return QUERY in names and any(one in names for one in (*_PASSAGES, POSITIVE))


def pairs_in(table: FileTable) -> FileTable:
    """With a row for every pair of a query and one of its candidates, where the rows are lists of these."""
    of_lists = table.typed and holds_candidates([*table.columns])
    return replace(table, columns=pairs_of(table.columns, table.path)) if of_lists else table


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


# ---- a row for each pair ----


def pairs_of(columns: Columns, path: Path) -> dict[str, ArrowColumn]:
    """A row for each candidate: `query`, `passage`, and `label` and `score` where a line has any.

    A candidate without a label or a score has None there.

    Args:
        columns: of a table for which `holds_candidates` is true.
        path: its file, for messages.

    Raises:
        LimbeckError: a text is missing; labels or scores are not finite numbers, one for each passage; or a passage
            occurs twice among a query's candidates.
    """
    seen: dict[tuple[str, str], Numbers] = {}
    for row, values in enumerate(zip(*columns.values(), strict=True), start=1):
        line, where = dict(zip(columns, values, strict=True)), f"{path}, row {row}"
        query = line[QUERY]
        if not isinstance(query, str) or not query.strip():
            raise LimbeckError(f"{where}: the query is {query!r:.60}, expected text", _FIX)
        # Rows of a positive and a negative may repeat each other's passages; a list of passages may not.
        repeats = all(line.get(name) is None for name in _PASSAGES)
        for passage, numbers in _graded(line, where, margins=repeats):
            if (query, passage) not in seen:
                seen[query, passage] = numbers
            elif not repeats or seen[query, passage] != numbers:
                raise LimbeckError(
                    f"{where}: a passage occurs twice among the candidates of {query!r:.60}: {passage!r:.60}",
                    "remove one of them: a query's candidates are different texts",
                )
    texts = zip(*seen, strict=True)
    numbers_of_all = zip(*seen.values(), strict=True)
    found = dict(zip((QUERY, PASSAGE, LABEL, SCORE), (*texts, *numbers_of_all), strict=True))
    return {
        name: ArrowColumn(values)
        for name, values in found.items()
        if any(value is not None for value in values)
    }


def _graded(line: dict[str, Any], where: str, *, margins: bool) -> Iterator[tuple[str, Numbers]]:
    """A line's passages, each with its grade and its score.

    Args:
        line: a row by its columns.
        where: place of the row, for messages.
        margins: whether it may have one number per negative (`margins`) instead of scores.
    """
    labels: Sequence[float | None]
    name = next((name for name in _PASSAGES if line.get(name) is not None), None)
    if name is not None:
        passages = _texts(line[name], name, where)
        labels = _numbers(line, _LABELS, len(passages), where)
        if any(label is not None and label < 0 for label in labels):
            raise LimbeckError(f"{where}: a label is below 0", "0 is for irrelevant passages")
    else:
        names = [one for one in negative_columns([*line]) if line[one] not in (None, "")]
        if line.get(POSITIVE) is None and not names:
            raise LimbeckError(f"{where}: there are no passages", _FIX)
        positive = _texts(line.get(POSITIVE), POSITIVE, where)
        negative = [
            text for one in names or [NEGATIVE] for text in _texts(line.get(one), one, where)
        ]
        passages = positive + negative
        labels = [1.0] * len(positive) + [0.0] * len(negative)
    scores = line.get(_SCORES)
    if margins and (not isinstance(scores, list) or len(scores) == len(passages) - 1):
        line = line | {_SCORES: None}
    numbers = zip(labels, _numbers(line, _SCORES, len(passages), where), strict=True)
    return zip(passages, numbers, strict=True)


def negative_columns(names: Sequence[str]) -> list[str]:
    """The names that are columns of negatives, in the order of their numbers."""
    found = [(name, re.fullmatch(rf"{NEGATIVE}_?([0-9]{{0,9}})", name)) for name in names]
    numbered = [(int(match[1] or 0), name) for name, match in found if match is not None]
    return [name for _, name in sorted(numbered)]


def _texts(value: Any, name: str, where: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        raise LimbeckError(f"{where}: {name} is {value!r:.60}, expected a list of texts", _FIX)
    wrong = [text for text in texts if not isinstance(text, str) or not text.strip()]
    if wrong:
        raise LimbeckError(f"{where}: {name} holds {wrong[0]!r:.60}, expected text", "fill the gap")
    return texts


def _numbers(line: dict[str, Any], name: str, size: int, where: str) -> list[float | None]:
    values = line.get(name)
    if values is None:
        return [None] * size
    if not isinstance(values, list) or len(values) != size:
        found = len(values) if isinstance(values, list) else repr(values)[:40]
        raise LimbeckError(
            f"{where}: {found} {name} for {size} passages", f"give {name} as a list, one a passage"
        )
    for value in values:
        if value is not None and (type(value) not in (int, float) or not math.isfinite(value)):
            raise LimbeckError(
                f"{where}: {name} holds {value!r:.40}", "expected a finite number, or null"
            )
    return [None if value is None else float(value) for value in values]


# ---- tuples ----


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


class Texted(NamedTuple):
    """Rows of texts to embed.

    Attributes:
        texts: by column.
        scores: similarity of the first two texts of a row: 1 for a query and a passage that belongs to it, NaN if
            unknown.
        first: role of the first text of each row, a query or a passage; None for sentences.
        taught: a teacher's embedding of each first text.
        translated: the two texts of a row are translations of each other.
    """

    texts: Texts
    scores: Sequence[float]
    first: Sequence[str] | None = None
    taught: Sequence[Sequence[float]] | None = None
    translated: bool = False

    @classmethod
    def of_queries(cls, rows: Iterable[Sequence[str]], *, graded: bool = True) -> "Texted":
        """Rows of a query and its passages, of which the first belongs to it, unless they are not `graded`."""
        texts = [list(column) for column in zip_longest(*rows, fillvalue="")]
        count = len(texts[0])
        return cls(texts, [1.0 if graded else math.nan] * count, [QUERY] * count)

    def without(self, held: frozenset[str]) -> "Texted":
        """The rows of sentences without any held-out text."""
        rows = enumerate(zip(*self.texts, strict=True))
        kept = [row for row, texts in rows if held.isdisjoint(texts)]
        texts = [[column[row] for row in kept] for column in self.texts]
        first = self.first and [self.first[row] for row in kept]
        return self._replace(texts=texts, scores=[self.scores[row] for row in kept], first=first)


def tuples_of(table: FileTable, named: Sequence[str]) -> Texted | None:
    """The tuples of a table; None where its texts are to be taken one by one.

    Args:
        table: as in its file, with lists of candidates.
        named: text columns that are given, the query's first; two or more.

    Raises:
        LimbeckError: a text is missing, or nothing states which texts are relevant.
    """
    there = [*table.columns]
    if not named and holds_candidates(there) and _has_lists(table):
        return _of_pairs(replace(table, columns=pairs_of(table.columns, table.path)))
    names = tuple_columns(there, named)
    if len(names) == 2 and names[1] == PASSAGE and (LABEL in there or SCORE in there):
        return _of_pairs(table)
    if len(names) < 2:
        return None
    columns = [tuple_texts(table, name, blank=place > 1) for place, name in enumerate(names)]
    return Texted.of_queries(zip(*columns, strict=True))


def _has_lists(table: FileTable) -> bool:
    """Whether a row may have several candidates, in lists."""
    return any(isinstance(next(iter(column), None), list) for column in table.columns.values())


def tuple_columns(there: Sequence[str], named: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns of tuples, the given ones or the ones with usual names; () if the table has no such columns."""
    if named:
        return tuple(named)
    pair = next(((q, p) for q in _QUERIES for p in _POSITIVES if q in there and p in there), ())
    return (*pair, *negative_columns(there)) if pair else ()


def tuple_texts(table: FileTable, column: str, *, blank: bool = True) -> list[str]:
    """A column of text; raises LimbeckError for a value that is not text, or without `blank` for blank text."""
    fix = (
        f"fill the gap or take the row out, or name other columns: {NAMING}; there are {', '.join(table.columns)}; "
        f'write lists next to a text {QUERY!r}: {{"query": "…", "positive": ["…"], "negative": ["…", "…"]}}'
    )
    return table.texts(column, gaps=blank, blank=blank, fix=fix)


def _of_pairs(table: FileTable) -> Texted:
    """Rows of a query and one of its candidates; without grades all passages of a query count as positive."""
    queries, passages = (tuple_texts(table, name, blank=False) for name in (QUERY, PASSAGE))
    graded = LABEL in table.columns
    grades = table.numbers(LABEL, gaps=True, fix=GRADE_FIX) if graded else []
    if not all(map(math.isnan, grades)):
        return tuples_of_grades(queries, passages, grades)
    groups = by_query(np.unique(queries, return_inverse=True)[1])
    rows = (
        [queries[places[0]], *dict.fromkeys(passages[place] for place in places)]
        for places in sorted(groups, key=lambda places: int(places[0]))
    )
    return Texted.of_queries(rows, graded=False)


def tuples_of_grades(
    queries: Sequence[str], passages: Sequence[str], grades: Sequence[float]
) -> Texted:
    """Every passage with a grade above 0 with its query and all passages of grade 0.

    Raises:
        LimbeckError: nothing is relevant.
    """
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
            "give grades: 1 for a passage that answers the query, otherwise 0",
        )
    return Texted.of_queries(rows)
