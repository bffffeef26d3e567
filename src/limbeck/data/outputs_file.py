"""A teacher's outputs in a file of the user's own: texts, and numbers for each class. Part of `limbeck.data`.

CSV, TSV, JSON lines or Parquet. Read strictly: a class at another place would teach the wrong thing in silence. Files
of triplets, as sentence-transformers publishes them for its MarginMSELoss, hold differences of two scores and no score.
Along the triplets of a query these differences fix its passages' scores, but for one number that is added to all; a
query whose triplets share no passage falls apart into lists, each with a number of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from limbeck.data import label_column
from limbeck.data.candidates import pairs_in, tuple_columns, tuple_texts
from limbeck.data.row_ids import row_ids
from limbeck.data.table import ArrowColumn, FileTable, read_table
from limbeck.support.errors import LimbeckError

What = Literal["logits", "votes", "probabilities", "score"]
QUANTITIES: tuple[What, ...] = get_args(What)
"""Possible quantities of outputs; of several the first here is read. Votes precede shares, which few votes make 0."""
MARGIN: Literal["margin"] = "margin"
"""The quantity of a file of triplets: differences of two scores."""
EMBEDDING: Literal["embedding"] = "embedding"
ROW = "row"

# Rounded to three digits, probabilities of ten classes still add up to 1 within it.
_TOLERANCE = 5e-3


@dataclass(frozen=True)
class FileOutputs:
    """Outputs about the rows of a file.

    Attributes:
        what: `logits`, `votes` (counts per class), `probabilities`, `score` (a number), `margin` (a score, known up to
            a number that is added to all of a list), or `embedding`, of each text separately.
        classes: names of the values' columns; () for a score.
        ids: of the rows (`row_ids`), each once, ascending, int64 (n,).
        values: float32 (n, C), or (n, 1).
        lists: of margins the list that each row is of, int64 (n,).
    """

    what: What | Literal["margin", "embedding"]
    classes: tuple[str, ...]
    ids: np.ndarray
    values: np.ndarray
    lists: np.ndarray | None = None


def read_outputs_file(
    path: Path,
    text_columns: Sequence[str],
    *,
    classes: Sequence[str] = (),
    order: Sequence[str] = (),
    several: bool = False,
    candidates: bool = False,
) -> FileOutputs:
    """Read a file of outputs.

    Values are in a column `logits`, `probabilities`, `votes` or `score`: a number (score), a list, or names with
    numbers ({"yes": 0.9, "no": 0.1}); or in a column for each class, `probabilities.yes` and `probabilities.no`.

    Args:
        text_columns: of the data: the file has them too, or a column `row` of row ids.
        classes: the data's, for messages; () where the answer is a number.
        order: class order of a list's values, which have no names.
        several: a row may be of several classes, so that the probabilities are independent.
        candidates: a row is a query with a passage, so that the file may hold margins of triplets; their columns are
            `text_columns` where these are three or more.

    Raises:
        LimbeckError: missing values, or values that are not such numbers; names that are not the data's classes.
    """
    whole = read_table(path)
    if candidates and (margins := margins_of(whole, text_columns)) is not None:
        return margins
    table = pairs_in(whole)
    for what in quantities(several=several):
        by_class = [name for name in table.columns if name.startswith(f"{what}.")]
        if what in table.columns or by_class:
            break
    else:
        raise LimbeckError(
            f"{path}: no column of outputs among {', '.join(table.columns)}",
            f"name it {', '.join(QUANTITIES[:-1])} (a list, or a column for each class: probabilities.CLASS), or "
            "score; of a query with its candidates scores, a list with the number of each passage",
        )
    ids = _ids(table, text_columns)
    names: tuple[str, ...] = ()
    if what == "score":
        rows: list[Any] = [[value] for value in table.columns[what]]
    elif what in table.columns:
        names, rows = _lists(table, what, classes, order)
    else:
        names = tuple(name.partition(".")[2] for name in by_class)
        rows = [*map(list, zip(*(table.columns[name] for name in by_class), strict=True))]
    values = label_column.numbers_of(table, what, rows, len(names) or 1)
    absent = [name for name in classes if names and name not in names]
    # Other names are reported when they are compared with the data's.
    if absent and {*names} <= {*classes}:
        raise LimbeckError(
            f"{path}: {what} of {', '.join(names)}, and the data's classes are {', '.join(classes)}: there are no "
            f"outputs of {', '.join(absent)}",
            f"name a column {what}.{absent[0]}, or its number in each row's mapping",
        )
    _check(path, what, values, several=several)
    return FileOutputs(what, names, *_each_once(path, ids, values.astype(np.float32)))


def quantities(*, several: bool) -> list[What]:
    """`QUANTITIES` as rows with one label, or with several, are read: of those votes are the last choice."""
    return sorted(QUANTITIES, key=lambda what: several and what == "votes")


def check_votes(place: str | Path, what: str, *, several: bool) -> None:
    """Raise LimbeckError for votes about rows with several labels."""
    if what == "votes" and several:
        raise LimbeckError(
            f"{place} holds votes, and for rows with several labels they do not state how many votes there were",
            "write each class's share of votes as probabilities",
        )


def _ids(table: FileTable, text_columns: Sequence[str]) -> np.ndarray:
    absent = [name for name in text_columns if name not in table.columns]
    if not absent:
        return row_ids([list(table.columns[name]) for name in text_columns])
    if ROW not in table.columns:
        raise LimbeckError(
            f"{table.path}: it has no column {', '.join(absent)} to find rows by; it has "
            f"{', '.join(table.columns)}, and the data's texts are in {', '.join(text_columns)}",
            "name its text columns as the data's are named",
        )
    try:
        return np.array([int(value) for value in table.columns[ROW]], dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        raise LimbeckError(
            f"{table.path}: column {ROW!r} holds a value that is no row id",
            "take limbeck.data.row_ids",
        ) from None


def _lists(
    table: FileTable, what: str, classes: Sequence[str], order: Sequence[str]
) -> tuple[tuple[str, ...], list[Any]]:
    """Names and rows of a column of lists, or of mappings."""
    rows = [label_column.structured(value) for value in table.columns[what]]
    if all(isinstance(row, Mapping) for row in rows):
        names = tuple(map(str, rows[0]))
        for number, row in enumerate(rows, start=1):
            if set(row) != set(rows[0]):
                raise LimbeckError(
                    f"{table.path}, row {number}: {what} of {', '.join(row)}, in row 1 of {', '.join(names)}",
                    "give every class a number in every row",
                )
        return names, [[row[name] for name in rows[0]] for row in rows]
    if not order:
        known = f"; the data's classes are {', '.join(classes)}" if classes else ""
        raise LimbeckError(
            f"{table.path}: {what} are lists, which do not state the class of each number{known}",
            "give their order: output_classes='[CLASS, CLASS, …]'",
        )
    return tuple(order), rows


def _check(path: Path, what: str, values: np.ndarray, *, several: bool) -> None:
    check_votes(path, what, several=several)
    wrong = {"a number that is not finite": ~np.isfinite(values).all(axis=1)}
    if what in ("probabilities", "votes"):
        wrong["a number below 0"] = (values < 0).any(axis=1)
    if what == "probabilities" and several:
        wrong["a number above 1"] = (values > 1).any(axis=1)
    elif what == "probabilities":
        wrong["a sum that is not 1"] = np.abs(values.sum(axis=1) - 1) > _TOLERANCE
    if what == "votes":
        wrong["no vote at all"] = values.sum(axis=1) == 0
    for reason, rows in wrong.items():
        if rows.any():
            first = int(rows.argmax())
            raise LimbeckError(
                f"{path}, row {first + 1}: {what} are {values[first].tolist()!s:.120}, with {reason} "
                f"({int(rows.sum())} of {len(values)} rows)",
                "check what wrote the file, or leave these rows out; raw scores are logits",
            )


def _each_once(
    path: Path, ids: np.ndarray, values: np.ndarray, alike: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Ids ascending, with their values; for a row that occurs twice the first.

    Args:
        alike: the tolerance between values of one row, as a share of their norm.

    Raises:
        LimbeckError: they differ by more.
    """
    found, first, place = np.unique(ids, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[place] != np.arange(len(ids)))
    kept = values[first[place[again]]]
    apart = np.linalg.norm(values[again] - kept, axis=1) > alike * np.linalg.norm(kept, axis=1)
    if apart.any():
        row = int(again[apart.argmax()])
        raise LimbeckError(
            f"{path}, row {row + 1}: the text of row {int(first[place[row]]) + 1} again, with other outputs "
            f"({int(apart.sum())} such rows)",
            "keep one of them, or their mean",
        )
    return found, values[first]


# Texts with their embeddings in a file of the user's own: a teacher of which only outputs
# exist. A column `embedding` with a list of numbers in each row, next to its text, as
# `limbeck predict` writes it.


TEXTS = ("sentence", "text", "query", "passage")
"""What its texts may be called; the first that is there counts."""

# Tolerance of an embedding of one text, read in two batches or in bf16.
_ALIKE = 2e-2


def read_embeddings_file(path: Path, named: Sequence[str] = ()) -> FileOutputs | None:
    """Read a file of embeddings; None where it has no column of them.

    Args:
        named: the column of its texts, if it has no usual name.

    Raises:
        LimbeckError: no column of texts, embeddings that are no finite numbers or of different widths, or of one
            text several that differ.
    """
    table = read_table(path)
    if EMBEDDING not in table.columns:
        return None
    usual = named if len(named) == 1 else TEXTS
    column = next((name for name in usual if name in table.columns), None)
    if column is None:
        raise LimbeckError(
            f"{path}: embeddings, and no column {' or '.join(usual)} of the texts that they are of; it has "
            f"{', '.join(table.columns)}",
            f"rename the column of texts: {', '.join(TEXTS)}",
        )
    first = label_column.structured(table.columns[EMBEDDING][0])
    if not isinstance(first, list) or not first:
        raise LimbeckError(
            f"{path}, row 1: {EMBEDDING} is {first!r:.80}, expected a list of numbers",
            "write a list of floats in each row",
        )
    found = np.empty((len(table), len(first)), dtype=np.float32)
    start = 0
    for piece in table.columns[EMBEDDING].pieces():
        found[start : start + len(piece)] = _embeddings(table, piece, len(first), start)
        start += len(piece)
    _check(path, EMBEDDING, found, several=False)
    ids = row_ids([list(table.columns[column])])
    return FileOutputs(EMBEDDING, (), *_each_once(path, ids, found, _ALIKE))


def _embeddings(
    table: FileTable, piece: pa.Array | list[Any], width: int, start: int
) -> np.ndarray:
    """The embeddings of a piece of the column (m, d), whose first row is the file's `start`."""
    if isinstance(piece, pa.Array) and pa.types.is_nested(piece.type):
        numbers = piece.flatten()
        same = pc.all(pc.equal(pc.list_value_length(piece), width)).as_py()
        if same and pa.types.is_floating(numbers.type) and len(numbers) == width * len(piece):
            found: np.ndarray = numbers.to_numpy(zero_copy_only=False).reshape(len(piece), width)
            return found
    rows = piece.to_pylist() if isinstance(piece, pa.Array) else piece
    return label_column.numbers_of(
        table, EMBEDDING, [label_column.structured(row) for row in rows], width, start
    )


# ---- margins: how much higher a teacher scores what answers a query than what does not ----


COLUMNS = ("margin", "margins", "score", "scores", "label", "labels")
"""Column names of a file of triplets; the first that exists counts."""

# Two margins, each rounded to two digits, that ought to be one.
_MARGINS_APART = 2e-2
# A useful teacher's margin is above 0 nearly everywhere.
_LEAST_POSITIVE = 0.25
_SCORED = '{"query": "…", "passages": ["…", "…"], "scores": [7.2, -3.1]}'
_FIX = "a margin is the positive's score minus the negative's, one number per negative"


def margins_of(table: FileTable, named: Sequence[str] = ()) -> FileOutputs | None:
    """The scores that a file's margins come to; None where it has no triplets with a number for each negative.

    Args:
        table: as in its file.
        named: columns of query, positive and negatives; fewer than three are of pairs, and are ignored here.

    Raises:
        LimbeckError: a text or a number is missing, or the margins contradict each other or their sign.
    """
    there = [*table.columns]
    names = tuple_columns(there, named if len(named) > 2 else ())
    column = next((name for name in COLUMNS if name in there), None)
    if len(names) < 3 or column is None or not set(names) <= set(there):
        return None
    negatives = [
        [text for one in cells for text in (one if isinstance(one, list) else [one])]
        for cells in zip(*(table.columns[name] for name in names[2:]), strict=True)
    ]
    negatives = [[text for text in texts if text not in ("", None)] for texts in negatives]
    cells = [label_column.structured(value) for value in table.columns[column]]
    # One number more is a score for each passage.
    if isinstance(cells[0], list) and len(cells[0]) != len(negatives[0]):
        return None
    margins = _margins(table, column, cells, negatives)
    counts = [len(texts) for texts in negatives]
    queries = tuple_texts(table, names[0], blank=False)
    repeated = [query for query, count in zip(queries, counts, strict=True) for _ in range(count)]
    first = np.repeat(row_ids([queries, _positives(table, names[1])]), counts)
    pairs = first, row_ids([repeated, [text for texts in negatives for text in texts]])
    rows = np.repeat(np.arange(len(counts)), counts)
    return _scores(table, column, pairs, margins, rows)


def _margins(
    table: FileTable, column: str, cells: list[Any], negatives: list[list[Any]]
) -> np.ndarray:
    """A number for each negative of each row."""
    found: list[float] = []
    for row, (cell, texts) in enumerate(zip(cells, negatives, strict=True), start=1):
        numbers = [
            *label_column.row_of_numbers(
                cell if isinstance(cell, list) else [cell], typed=table.typed
            )
        ]
        known = [number for number in numbers if number is not None and np.isfinite(number)]
        if len(known) != len(numbers) or len(numbers) != len(texts):
            raise LimbeckError(
                f"{table.path}, row {row}: {column} is {cell!r:.80}, with {len(texts)} negatives: expected as many "
                "finite numbers",
                f"fill the gap, or leave the row out; {_FIX}",
            )
        found += known
    margins = np.array(found)
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
    return margins


def _positives(table: FileTable, name: str) -> list[str]:
    """The positive of each row, perhaps as a list of one."""
    column = table.columns[name]
    single = [one[0] if isinstance(one, list) and len(one) == 1 else one for one in column]
    fix = f"write a row for each positive, or give the scores themselves: {_SCORED}; {_FIX}"
    return replace(table, columns={name: ArrowColumn(single)}).texts(name, blank=False, fix=fix)


def _scores(
    table: FileTable,
    column: str,
    pairs: tuple[np.ndarray, np.ndarray],
    margins: np.ndarray,
    rows: np.ndarray,
) -> FileOutputs:
    """The sums of the margins along each list, 0 at its first passage.

    Args:
        pairs: by margin the ids of the query with its positive, and with its negative.
        rows: by margin the number of the file's row.
    """
    ids, places = np.unique(np.concatenate(pairs), return_inverse=True)
    first, second = places[: len(margins)], places[len(margins) :]
    edges = coo_array((np.ones(len(margins)), (first, second)), shape=(len(ids), len(ids)))
    count, lists = connected_components(edges, directed=False)
    # Backwards, so that the first of two triplets wins.
    values = _along(first[::-1], second[::-1], margins[::-1], lists, count)
    apart = np.abs(values[first] - values[second] - margins)
    wrong = apart > _MARGINS_APART * np.maximum(1.0, np.abs(margins))
    if wrong.any():
        one = int(wrong.argmax())
        raise LimbeckError(
            f"{table.path}, row {rows[one] + 1}: {column} is {margins[one]:g}, and other triplets of this query "
            f"come to {values[first[one]] - values[second[one]]:g} ({int(wrong.sum())} such triplets)",
            "keep the margins of one teacher; keep one of each duplicate triplet",
        )
    scores = values.astype(np.float32)[:, None]
    return FileOutputs(MARGIN, (), ids, scores, lists.astype(np.int64))


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
