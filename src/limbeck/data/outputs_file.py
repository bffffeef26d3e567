"""A teacher's outputs in a file of the user's own: texts, and numbers for each class. Part of `limbeck.data`.

CSV, TSV, JSON lines or Parquet. Read strictly: a class at another place would teach the wrong thing in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from limbeck.data.candidate_files import pairs_in
from limbeck.data.label_column import numbers_of, structured
from limbeck.data.margins import margins_of
from limbeck.data.row_ids import row_ids
from limbeck.data.table import FileTable, read_table
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import MAX_ROWS

What = Literal["logits", "votes", "probabilities", "score"]
QUANTITIES: tuple[What, ...] = get_args(What)
"""What outputs may hold; of several the first here is read. Votes stand before their shares, which few votes make 0."""
MARGIN: Literal["margin"] = "margin"
"""What a file of triplets holds: differences of two scores."""
EMBEDDING: Literal["embedding"] = "embedding"
ROW = "row"

# Rounded to three digits, probabilities of ten classes still add up to 1 within it.
_TOLERANCE = 5e-3


@dataclass(frozen=True)
class FileOutputs:
    """Outputs about the rows of a file.

    Attributes:
        what: `logits`, `votes` (counts a class), `probabilities`, `score` (a number), `margin` (a score, known but for
            a number that is added to all of a list), or `embedding`, of each text by itself.
        classes: names of the values' columns; () of a score.
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
    max_rows: int = MAX_ROWS,
    several: bool = False,
    candidates: bool = False,
) -> FileOutputs:
    """Read a file of outputs.

    Values stand in a column `logits`, `probabilities`, `votes` or `score`: a number (score), a list, or names with
    numbers ({"yes": 0.9, "no": 0.1}); or in a column for each class, `probabilities.yes` and `probabilities.no`.

    Args:
        text_columns: of the data: the file has them too, or a column `row` of row ids.
        classes: the data's, for messages; () where the answer is a number.
        order: of a list's values, which have no names.
        several: a row may be of several classes, so that each probability stands by itself.
        candidates: a row is a query with a passage, so that the file may hold margins of triplets; their columns are
            `text_columns` where these are three or more.

    Raises:
        LimbeckError: what is not there, or is no such number; names that are not the data's classes.
    """
    whole = read_table(path, max_rows)
    margins = margins_of(whole, text_columns) if candidates else None
    if margins is not None:
        return FileOutputs(MARGIN, (), *margins)
    table = pairs_in(whole)
    what, columns = _found(table, several=several)
    ids = _ids(table, text_columns)
    if what == "score":
        values = numbers_of(table, what, [[value] for value in table.columns[what]], 1)
        names: tuple[str, ...] = ()
    elif columns:
        names = tuple(name.partition(".")[2] for name in columns)
        cells = zip(*(table.columns[name] for name in columns), strict=True)
        values = numbers_of(table, what, [*map(list, cells)], len(names))
    else:
        names, rows = _lists(table, what, classes, order)
        values = numbers_of(table, what, rows, len(names))
    if classes and what != "score":
        _check_named(table.path, what, names, classes)
    _check(table.path, what, values, several=several)
    return FileOutputs(what, names, *_each_once(table.path, ids, values.astype(np.float32)))


def quantities(*, several: bool) -> list[What]:
    """`QUANTITIES` as rows with one label, or with several, are read: of those votes are the last choice."""
    return sorted(QUANTITIES, key=lambda what: several and what == "votes")


def check_votes(place: str | Path, what: str, *, several: bool) -> None:
    """Raise LimbeckError for votes about rows with several labels."""
    if what == "votes" and several:
        raise LimbeckError(
            f"{place} holds votes, and of rows with several labels they do not say how many were asked",
            "write each class's share of votes as probabilities",
        )


def _found(table: FileTable, *, several: bool) -> tuple[What, list[str]]:
    """Which quantity the file holds, and its columns by class where there are some."""
    for what in quantities(several=several):
        by_class = [name for name in table.columns if name.startswith(f"{what}.")]
        if what in table.columns or by_class:
            return what, [] if what in table.columns else by_class
    raise LimbeckError(
        f"{table.path}: no column of outputs among {', '.join(table.columns)}",
        f"name it {', '.join(QUANTITIES[:-1])} (a list, or a column for each class: probabilities.CLASS), or score; "
        "of a query with its candidates scores, a list with the number of each passage",
    )


def _ids(table: FileTable, text_columns: Sequence[str]) -> np.ndarray:
    absent = [name for name in text_columns if name not in table.columns]
    if absent and ROW in table.columns:
        found = list(table.columns[ROW])
        try:
            return np.array([int(value) for value in found], dtype=np.int64)
        except (TypeError, ValueError, OverflowError):
            raise LimbeckError(
                f"{table.path}: column {ROW!r} holds what is no row id", "take limbeck.data.row_ids"
            ) from None
    if absent:
        raise LimbeckError(
            f"{table.path}: it has no column {', '.join(absent)} to find rows by; it has "
            f"{', '.join(table.columns)}, and the data's texts are in {', '.join(text_columns)}",
            "name its text columns as the data's are named",
        )
    return row_ids([list(table.columns[name]) for name in text_columns])


def _lists(
    table: FileTable, what: str, classes: Sequence[str], order: Sequence[str]
) -> tuple[tuple[str, ...], list[Any]]:
    """Names and rows of a column of lists, or of mappings."""
    rows = [structured(value) for value in table.columns[what]]
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
            f"{table.path}: {what} are lists, which do not say which number is of which class{known}",
            "say their order: output_classes='[CLASS, CLASS, …]'",
        )
    return tuple(order), rows


def _check_named(path: Path, what: What, names: Sequence[str], classes: Sequence[str]) -> None:
    """Raise LimbeckError where a class of the data has no column: its numbers would look wrong for it."""
    absent = [name for name in classes if name not in names]
    if absent and set(names) <= set(
        classes
    ):  # other names are said where they are held against the data's
        raise LimbeckError(
            f"{path}: {what} of {', '.join(names)}, and the data's classes are {', '.join(classes)}: there are none of "
            f"{', '.join(absent)}",
            f"name a column {what}.{absent[0]}, or its number in each row's mapping",
        )


def _check(path: Path, what: What, values: np.ndarray, *, several: bool) -> None:
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
                f"{path}, row {first + 1}: {what} are {values[first].tolist()}, with {reason} "
                f"({int(rows.sum())} of {len(values)} rows)",
                "check what wrote the file; raw scores are logits",
            )


def _each_once(
    path: Path, ids: np.ndarray, values: np.ndarray, alike: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Ids ascending, with their values; of a row that stands twice the first.

    Args:
        alike: what the values of one row may differ by, as a share of their norm.

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


# Texts with their embeddings in a file of the user's own: a teacher of which nothing else is
# there. A column `embedding` with a list of numbers in each row, beside the text that it is of, as
# `limbeck predict` writes it.


TEXTS = ("sentence", "text", "query", "passage")
"""What its texts may be called; the first that is there counts."""

# What an embedding of one text may differ by, read in two batches or in bf16.
_ALIKE = 2e-2


def read_embeddings_file(
    path: Path, named: Sequence[str] = (), max_rows: int = MAX_ROWS
) -> FileOutputs | None:
    """Read a file of embeddings; None where it has no column of them.

    Args:
        named: the column of its texts, where it has none of a usual name.

    Raises:
        LimbeckError: no column of texts, embeddings that are no finite numbers or of different widths, or of one
            text several that differ.
    """
    table = read_table(path, max_rows)
    if EMBEDDING not in table.columns:
        return None
    column = _text_column(table, named)
    ids = row_ids([list(table.columns[column])])
    return FileOutputs(EMBEDDING, (), *_each_once(path, ids, _embeddings(table), _ALIKE))


def _text_column(table: FileTable, named: Sequence[str]) -> str:
    usual = named if len(named) == 1 else TEXTS
    column = next((name for name in usual if name in table.columns), None)
    if column is None:
        raise LimbeckError(
            f"{table.path}: embeddings, and no column {' or '.join(usual)} of the texts that they are of; it has "
            f"{', '.join(table.columns)}",
            f"rename the column of texts: {', '.join(TEXTS)}",
        )
    return column


def _embeddings(table: FileTable) -> np.ndarray:
    """All of them, float32 (n, d)."""
    first = structured(table.columns[EMBEDDING][0])
    width = len(first) if isinstance(first, list) else 0
    if not width:
        raise LimbeckError(
            f"{table.path}, row 1: {EMBEDDING} is {first!r:.80}, expected a list of numbers",
            "write a list of floats in each row",
        )
    found = np.empty((len(table), width), dtype=np.float32)
    start = 0
    for piece in table.columns[EMBEDDING].pieces():
        values = _values(table, piece, width, start)
        found[start : start + len(values)] = values
        start += len(values)
    wrong = ~np.isfinite(found).all(axis=1)
    if wrong.any():
        raise LimbeckError(
            f"{table.path}, row {int(wrong.argmax()) + 1}: {EMBEDDING} holds a number that is not finite "
            f"({int(wrong.sum())} of {len(found)} rows)",
            "leave these rows out",
        )
    return found


def _values(table: FileTable, piece: pa.Array | list[Any], width: int, start: int) -> np.ndarray:
    """The embeddings of a piece of the column (m, d), whose first row is the file's `start`."""
    if isinstance(piece, pa.Array) and _is_dense(piece, width):
        return piece.flatten().to_numpy(zero_copy_only=False).reshape(len(piece), width)
    rows = piece.to_pylist() if isinstance(piece, pa.Array) else piece
    return numbers_of(table, EMBEDDING, [structured(row) for row in rows], width, start)


def _is_dense(piece: pa.Array, width: int) -> bool:
    """Whether each row is a list of so many floats."""
    kind = piece.type
    if pa.types.is_fixed_size_list(kind):
        same = kind.list_size == width
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = piece.value_lengths().to_numpy(zero_copy_only=False)
        same = bool((lengths == width).all())
    else:
        return False
    known = not piece.null_count and not piece.flatten().null_count
    return same and known and pa.types.is_floating(kind.value_type)
