"""Candidates of queries, an object a line: a query, its passages, their scores and grades. Part of `limbeck.data`.

    {"query": "…", "passages": ["…", "…"], "labels": [1, 0], "scores": [7.2, -3.1]}
    {"query": "…", "positive": ["…"], "negative": ["…", "…"]}

`labels` say how relevant each passage is, `scores` are a teacher's, and either may be left out. `documents` and
`docs` are other names of `passages`. The second form is that of sentence-transformers: 1 for what is positive, 0 for
what is negative. Below `tables`, which reads such files as a row for each pair.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.data.table import ArrowColumn, FileTable
from limbeck.support.errors import LimbeckError

QUERY, PASSAGE, LABEL, SCORE = "query", "passage", "label", "score"
"""The columns of the pairs."""
_PASSAGES = ("passages", "documents", "docs")
LISTED_TEXTS = tuple((QUERY, name) for name in _PASSAGES)
"""The columns of texts, under each of their names, where a row is a query with its passages."""
_LABELS, _SCORES = "labels", "scores"
POSITIVE, NEGATIVE = "positive", "negative"
"""The columns of triplets, beside the query's."""
_FIX = 'write {"query": "…", "passages": ["…", "…"], "labels": [1, 0]}, one object per line'

Columns = Mapping[str, ArrowColumn]
Numbers = tuple[float | None, float | None]
"""A candidate's grade and score."""


def holds_candidates(names: Sequence[str]) -> bool:
    """Whether a table with columns of these names has a query and lists of candidates in each row."""
    return QUERY in names and any(one in names for one in (*_PASSAGES, POSITIVE))


def pairs_in(table: FileTable) -> FileTable:
    """With a row for every pair of a query and one of its candidates, where the rows are lists of these."""
    if table.typed and holds_candidates([*table.columns]):
        return replace(table, columns=pairs_of(table.columns, table.path))
    return table


def pairs_of(columns: Columns, path: Path) -> dict[str, ArrowColumn]:
    """A row for each candidate: `query`, `passage`, and `label` and `score` where a line has any.

    A candidate without a label or a score has None there.

    Args:
        columns: of a table for which `holds_candidates` says so.
        path: its file, for messages.

    Raises:
        LimbeckError: a text is none; labels or scores are not finite numbers, one for each passage; or a passage
            stands twice among a query's candidates.
    """
    found: dict[str, list[Any]] = {name: [] for name in (QUERY, PASSAGE, LABEL, SCORE)}
    seen: dict[tuple[str, str], Numbers] = {}
    for row, line in enumerate(_lines(columns), start=1):
        where = f"{path}, row {row}"
        query = line[QUERY]
        if not isinstance(query, str) or not query.strip():
            raise LimbeckError(f"{where}: the query is {query!r:.60}, expected text", _FIX)
        passages, labels = _passages(line, where)
        # A row of a positive and a negative says of either what others say too; a list of passages is said once.
        repeats = not any(line.get(name) is not None for name in _PASSAGES)
        if repeats and _are_margins(line.get(_SCORES), len(passages)):
            line = line | {_SCORES: None}
        scores = _numbers(line, _SCORES, len(passages), where)
        for passage, numbers in zip(passages, zip(labels, scores, strict=True), strict=True):
            if (query, passage) in seen:
                if repeats and seen[query, passage] == numbers:
                    continue
                raise LimbeckError(
                    f"{where}: a passage stands twice among the candidates of {query!r:.60}: {passage!r:.60}",
                    "take one of them out: a query's candidates are different texts",
                )
            seen[query, passage] = numbers
            for name, value in zip(found, (query, passage, *numbers), strict=True):
                found[name].append(value)
    some = [name for name, values in found.items() if any(value is not None for value in values)]
    return {name: ArrowColumn(found[name]) for name in some}


def _are_margins(scores: Any, passages: int) -> bool:
    """Whether a positive's row has a number for each negative (`margins`), which are scores of no passage."""
    return not isinstance(scores, list) or len(scores) == passages - 1


def _lines(columns: Columns) -> Iterator[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _passages(line: dict[str, Any], where: str) -> tuple[list[str], Sequence[float | None]]:
    """A line's passages and their grades."""
    name = next((name for name in _PASSAGES if line.get(name) is not None), None)
    if name is not None:
        passages = _texts(line[name], name, where)
        labels = _numbers(line, _LABELS, len(passages), where)
        if any(label is not None and label < 0 for label in labels):
            raise LimbeckError(f"{where}: a label is below 0", "0 is for what is not relevant")
        return passages, labels
    if line.get(POSITIVE) is None and all(line[name] is None for name in negative_columns([*line])):
        raise LimbeckError(f"{where}: there are no passages", _FIX)
    positive = _texts(line.get(POSITIVE), POSITIVE, where)
    named = [name for name in negative_columns([*line]) if line[name] not in (None, "")]
    negative = [
        text for name in named or [NEGATIVE] for text in _texts(line.get(name), name, where)
    ]
    return positive + negative, [1.0] * len(positive) + [0.0] * len(negative)


def negative_columns(names: Sequence[str]) -> list[str]:
    """Those of some names that hold what is not relevant, in the order of their numbers."""
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
    return [None if value is None else _number(value, name, where) for value in values]


def _number(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise LimbeckError(
            f"{where}: {name} holds {value!r:.40}",
            "expected a finite number, or null where there is none",
        )
    return float(value)
