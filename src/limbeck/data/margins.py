"""A teacher's margins: how much higher it scores what answers a query than what does not. Part of `limbeck.data`.

Files of triplets, as sentence-transformers publishes them for its MarginMSELoss, hold differences of two scores and no
score. Along the triplets of a query these differences fix its passages' scores, but for one number that is added to
all; a query whose triplets share no passage falls apart into lists, each with a number of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from limbeck.data.label_column import row_of_numbers, structured
from limbeck.data.own_tuples import texts_of, tuple_columns
from limbeck.data.row_ids import row_ids
from limbeck.data.table import FileTable
from limbeck.support.errors import LimbeckError

COLUMNS = ("margin", "margins", "score", "scores", "label", "labels")
"""What a file of triplets may call them; the first that is there counts."""

# Two margins, each rounded to two digits, that ought to be one.
_TOLERANCE = 2e-2
# A teacher worth learning from is above 0 nearly everywhere.
_LEAST_POSITIVE = 0.25
_SCORED = '{"query": "…", "passages": ["…", "…"], "scores": [7.2, -3.1]}'
_FIX = (
    "a margin is the score of the positive minus that of the negative, a number for each negative"
)


class ListScores(NamedTuple):
    """Scores that are known among the rows of a list.

    Attributes:
        ids: of a query with a passage (`row_ids`), each once, ascending, int64 (n,).
        values: float32 (n, 1); of rows of one list their differences say something, and nothing else does.
        lists: which list each is of, int64 (n,).
    """

    ids: np.ndarray
    values: np.ndarray
    lists: np.ndarray


class _Triplets(NamedTuple):
    """By negative: the ids of both pairs, and the number of the file's row."""

    first: np.ndarray
    second: np.ndarray
    rows: np.ndarray


def margins_of(table: FileTable, named: Sequence[str] = ()) -> ListScores | None:
    """The scores that a file's margins come to; None where it has no triplets with a number for each negative.

    Args:
        table: as it lies in its file.
        named: columns of query, positive and negatives; fewer than three are of pairs, and say nothing here.

    Raises:
        LimbeckError: a text or a number is none, or the margins contradict each other or their sign.
    """
    there = [*table.columns]
    names = tuple_columns(there, named if len(named) > 2 else ())
    column = next((name for name in COLUMNS if name in there), None)
    if len(names) < 3 or column is None or not set(names) <= set(there):
        return None
    negatives = _negatives(table, names[2:])
    cells = [structured(value) for value in table.columns[column]]
    if not _is_margin(cells[0], negatives[0]):
        return None
    margins = np.array([*_margins(table, column, cells, negatives)])
    _check_sign(table, column, margins)
    return _scores(table, column, _triplets(table, names, negatives), margins)


def _is_margin(cell: Any, negatives: list[str]) -> bool:
    """Whether there is a number for each negative; one more is a score for each passage."""
    return not isinstance(cell, list) or len(cell) == len(negatives)


def _negatives(table: FileTable, names: Sequence[str]) -> list[list[str]]:
    """The negatives of each row; "" and null are none."""
    if all(table.columns[name].text_or_gaps is not None for name in names):
        columns = [texts_of(table, name) for name in names]
        return [[text for text in texts if text] for texts in zip(*columns, strict=True)]
    rows = zip(*(table.columns[name] for name in names), strict=True)
    return [[*_texts_in(table, row, cells)] for row, cells in enumerate(rows, start=1)]


def _texts_in(table: FileTable, row: int, cells: Sequence[Any]) -> Iterator[str]:
    for cell in cells:
        for text in cell if isinstance(cell, list) else [cell]:
            if text is not None and not isinstance(text, str):
                raise LimbeckError(
                    f"{table.path}, row {row}: a negative is {text!r:.60}, expected text",
                    "fill the gap, or leave the row out",
                )
            if text:
                yield text


def _margins(
    table: FileTable, column: str, cells: list[Any], negatives: list[list[str]]
) -> Iterator[float]:
    """A number for each negative of each row."""
    for row, (cell, texts) in enumerate(zip(cells, negatives, strict=True), start=1):
        numbers = [*row_of_numbers(cell if isinstance(cell, list) else [cell], typed=table.typed)]
        known = [number for number in numbers if number is not None and np.isfinite(number)]
        if len(known) != len(numbers) or len(numbers) != len(texts):
            raise LimbeckError(
                f"{table.path}, row {row}: {column} is {cell!r:.80}, with {len(texts)} negatives: expected as many "
                "finite numbers",
                f"fill the gap, or leave the row out; {_FIX}",
            )
        yield from known


def _check_sign(table: FileTable, column: str, margins: np.ndarray) -> None:
    above = int((margins > 0).sum())
    if len(margins) > 1 and (margins == margins[0]).all():
        raise LimbeckError(
            f"{table.path}: {column} is {margins[0]:g} in all rows, so it is no teacher's difference of scores",
            f"name the teacher's column margin; {_FIX}",
        )
    if above < _LEAST_POSITIVE * len(margins):
        raise LimbeckError(
            f"{table.path}: {column} is above 0 in {above} of {len(margins)} triplets",
            f"turn its sign; {_FIX}",
        )


def _triplets(table: FileTable, names: Sequence[str], negatives: list[list[str]]) -> _Triplets:
    counts = [len(texts) for texts in negatives]
    queries = texts_of(table, names[0], blank=False)
    positives = _positives(table, names[1])
    every = [query for query, count in zip(queries, counts, strict=True) for _ in range(count)]
    second = row_ids([every, [text for texts in negatives for text in texts]])
    first = np.repeat(row_ids([queries, positives]), counts)
    return _Triplets(first, second, np.repeat(np.arange(len(counts)), counts))


def _positives(table: FileTable, name: str) -> list[str]:
    """The positive of each row, perhaps as a list of one."""
    if table.columns[name].text is not None:
        return texts_of(table, name, blank=False)
    found = [
        cell[0] if isinstance(cell, list) and len(cell) == 1 else cell
        for cell in table.columns[name]
    ]
    for row, text in enumerate(found, start=1):
        if not isinstance(text, str) or not text.strip():
            raise LimbeckError(
                f"{table.path}, row {row}: {name} is {text!r:.80}, expected one text",
                f"write a row for each positive, or give the scores themselves: {_SCORED}; {_FIX}",
            )
    return found


def _scores(table: FileTable, column: str, of: _Triplets, margins: np.ndarray) -> ListScores:
    """What the margins come to along each list, 0 at its first passage."""
    ids, places = np.unique(np.concatenate([of.first, of.second]), return_inverse=True)
    first, second = places[: len(margins)], places[len(margins) :]
    edges = coo_array((np.ones(len(margins)), (first, second)), shape=(len(ids), len(ids)))
    count, lists = connected_components(edges, directed=False)
    # Backwards, so that of two triplets the first has the last word.
    values = _along(first[::-1], second[::-1], margins[::-1], lists, count)
    apart = np.abs(values[first] - values[second] - margins)
    wrong = apart > _TOLERANCE * np.maximum(1.0, np.abs(margins))
    if wrong.any():
        one = int(wrong.argmax())
        raise LimbeckError(
            f"{table.path}, row {of.rows[one] + 1}: {column} is {margins[one]:g}, and other triplets of this query "
            f"come to {values[first[one]] - values[second[one]]:g} "
            f"({int(wrong.sum())} such triplets)",
            "keep the margins of one teacher; of a triplet that stands twice keep one",
        )
    return ListScores(ids, values.astype(np.float32)[:, None], lists.astype(np.int64))


def _along(
    first: np.ndarray, second: np.ndarray, margins: np.ndarray, lists: np.ndarray, count: int
) -> np.ndarray:
    """Scores (n,) of which `first` is above `second` by its margin, 0 at a passage of each of `count` lists (n,)."""
    values = np.full(len(lists), np.nan)
    starts = np.empty(count, dtype=np.int64)
    starts[lists[first]] = first
    values[starts] = 0.0
    while np.isnan(values).any():  # once for each step away from the start
        onward = ~np.isnan(values[first]) & np.isnan(values[second])
        values[second[onward]] = values[first[onward]] - margins[onward]
        back = np.isnan(values[first]) & ~np.isnan(values[second])
        values[first[back]] = values[second[back]] + margins[back]
    return values
