"""Candidates of queries, an object a line: a query, its passages, their scores and grades. Part of `limbeck.data`.

    {"query": "…", "passages": ["…", "…"], "labels": [1, 0], "scores": [7.2, -3.1]}
    {"query": "…", "positive": ["…"], "negative": ["…", "…"]}

`labels` say how relevant each passage is, `scores` are a teacher's, and either may be left out. `documents` and
`docs` are other names of `passages`. The second form is that of sentence-transformers: 1 for what is positive, 0 for
what is negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.data.tables import MAX_ROWS, SUFFIXES, FileTable, read_table
from limbeck.errors import LimbeckError

PASSAGES = ("passages", "documents", "docs")
QUERY, LABELS, SCORES, POSITIVE, NEGATIVE = "query", "labels", "scores", "positive", "negative"
_TYPED = (".jsonl", ".json", ".parquet")
_FIX = 'write {"query": "…", "passages": ["…", "…"], "labels": [1, 0]}, one object per line'


@dataclass(frozen=True)
class CandidatePairs:
    """A query and one of its candidates a row, all candidates of a line after each other.

    `labels` and `scores` are None where no line has any, and hold None for candidates without.
    """

    queries: list[str]
    passages: list[str]
    labels: list[float | None] | None
    scores: list[float | None] | None


def holds_candidates(path: Path, max_rows: int = MAX_ROWS) -> bool:
    """Whether a file has candidates in lists; what cannot be read has none."""
    if path.suffix.lower() not in _TYPED:
        return False
    try:
        return is_candidate_table(read_table(path, max_rows))
    except LimbeckError:
        return False


def is_candidate_table(table: FileTable) -> bool:
    """Whether a table's rows are a query and lists of candidates."""
    if QUERY not in table.columns or not table.typed:
        return False
    lists = [name for name in PASSAGES if name in table.columns]
    return bool(lists) or POSITIVE in table.columns


def read_candidates(path: Path, max_rows: int = MAX_ROWS) -> CandidatePairs:
    """All pairs of a file.

    Raises:
        LimbeckError: it cannot be read or is in another layout; a text is none; labels or scores are not finite
            numbers, one for each passage; or a passage stands twice among a query's candidates.
    """
    if path.suffix.lower() not in _TYPED:
        raise LimbeckError(
            f"{path}: candidates stand in lists, which {path.suffix or 'such a file'} has not",
            f"{_FIX}, in a file with one of {', '.join(s for s in SUFFIXES if s in _TYPED)}",
        )
    return candidates_of(read_table(path, max_rows))


def candidates_of(table: FileTable) -> CandidatePairs:
    """All pairs of a table; raises as `read_candidates`."""
    if not is_candidate_table(table):
        raise LimbeckError(
            f"{table.path} has no query with passages; it has {', '.join(table.columns)}", _FIX
        )
    found = CandidatePairs([], [], [], [])
    assert found.labels is not None and found.scores is not None
    seen: set[tuple[str, str]] = set()
    for row, line in enumerate(_lines(table), start=1):
        where = f"{table.path}, row {row}"
        query = line[QUERY]
        if not isinstance(query, str) or not query.strip():
            raise LimbeckError(f"{where}: the query is {query!r:.60}, expected text", _FIX)
        passages, labels = _passages(line, where)
        for passage in passages:
            if (query, passage) in seen:
                raise LimbeckError(
                    f"{where}: a passage stands twice among the candidates of {query!r:.60}: {passage!r:.60}",
                    "take one of them out: a query's candidates are different texts",
                )
            seen.add((query, passage))
        found.queries.extend([query] * len(passages))
        found.passages.extend(passages)
        found.labels.extend(labels)
        found.scores.extend(_numbers(line, SCORES, len(passages), where))
    return CandidatePairs(
        found.queries, found.passages, _or_none(found.labels), _or_none(found.scores)
    )


def _lines(table: FileTable) -> list[dict[str, Any]]:
    columns = {name: list(column) for name, column in table.columns.items()}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _passages(line: dict[str, Any], where: str) -> tuple[list[str], Sequence[float | None]]:
    """A line's passages and their grades."""
    name = next((name for name in PASSAGES if line.get(name) is not None), None)
    if name is not None:
        passages = _texts(line[name], name, where)
        labels = _numbers(line, LABELS, len(passages), where)
        if any(label is not None and label < 0 for label in labels):
            raise LimbeckError(f"{where}: a label is below 0", "0 is for what is not relevant")
        return passages, labels
    positive, negative = (_texts(line.get(one), one, where) for one in (POSITIVE, NEGATIVE))
    return positive + negative, [1.0] * len(positive) + [0.0] * len(negative)


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


def _or_none(values: list[float | None]) -> list[float | None] | None:
    return None if all(value is None for value in values) else values
