"""A labeller's outputs about the rows of one shard. Part of `limbeck.outputs`.

Batches are made within the shard alone, so that its content never depends on where an earlier start was stopped.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from limbeck.outputs import shards
from limbeck.outputs.columns import PROBABILITIES, OutputColumn, OutputLayout, column_of_values
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.manifest import ShardRecord
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASK_TYPES
from limbeck.teachers.labeller import Labeller, RowsMissingError, costs_of, truncated_by

Texts = Mapping[str, Sequence[str]]
"""Text columns by name, each with the text of every row."""


@dataclass(frozen=True)
class ShardRows:
    """The rows of a shard that is to be made.

    Attributes:
        number: the shard's.
        ids: of the rows, int64 (n,).
        texts: their text columns.
    """

    number: int
    ids: np.ndarray
    texts: Texts

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, places: Collection[int]) -> "ShardRows":
        """The other rows."""
        kept = [place for place in range(len(self)) if place not in places]
        return ShardRows(self.number, self.ids[kept], texts_at(self.texts, kept))


@dataclass(frozen=True)
class MadeShard:
    """A shard that has been written, its columns, and its cost: seconds, and a labeller's counts."""

    record: ShardRecord
    layout: OutputLayout
    costs: Mapping[str, float]


@dataclass(frozen=True)
class ScoredTexts:
    """A labeller's outputs for the rows that have any, in the rows' order.

    Attributes:
        layout: their columns.
        values: by output, (n, …).
        truncated: the number of rows that the labeller reported as truncated.
        reasons: by position, why rows have no outputs.
    """

    layout: OutputLayout
    values: dict[str, np.ndarray]
    truncated: int = 0
    reasons: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardContent:
    """The common parts of shards from any labeller.

    Attributes:
        outputs: the labeller's that are stored.
        batch_size: rows in one call.
        text_names: the names of the text columns in the store; () for a store without texts.
        drop_missing: whether a shard contains only the rows that have outputs, if there are any.
    """

    outputs: tuple[str, ...]
    batch_size: int
    text_names: tuple[str, ...]
    drop_missing: bool


def make_shard(
    files: StoreFiles,
    labeller: Labeller,
    rows: ShardRows,
    content: ShardContent,
    advance: Callable[[int], None] = lambda rows: None,
) -> MadeShard:
    """Label a shard's rows and write them; the manifest does not name it yet.

    Raises:
        LimbeckError: as `score_rows`, and where the shard cannot be written.
    """
    began, before = time.perf_counter(), costs_of(labeller)
    score = score_answered if content.drop_missing else score_rows
    scored = score(labeller, rows.texts, content.outputs, content.batch_size, advance)
    missing = tuple((int(rows.ids[at]), why) for at, why in sorted(scored.reasons.items()))
    record = _written(files, labeller, rows.without(scored.reasons), content, scored, missing)
    spent = {name: now - before.get(name, 0.0) for name, now in costs_of(labeller).items()}
    return MadeShard(record, scored.layout, spent | {"seconds": time.perf_counter() - began})


def make_empty_shard(
    files: StoreFiles,
    labeller: Labeller,
    rows: ShardRows,
    content: ShardContent,
    layout: OutputLayout,
    reasons: Mapping[int, str],
) -> MadeShard:
    """Write a shard whose rows all lack outputs: it has the columns of the other shards.

    Args:
        layout: those columns.
        reasons: why, by the rows' ids.
    """
    missing = tuple((row, reasons[row]) for row in rows.ids.tolist())
    scored = ScoredTexts(layout, {one.name: _no_values(one) for one in layout.columns})
    none = rows.without(range(len(rows)))
    return MadeShard(_written(files, labeller, none, content, scored, missing), layout, {})


def _no_values(column: OutputColumn) -> np.ndarray:
    """Empty outputs, for no rows."""
    if not column.fixed:
        return np.empty(0, dtype=object)
    return np.empty((0, *column.sizes()), dtype=column.dtype)


def _written(
    files: StoreFiles,
    labeller: Labeller,
    rows: ShardRows,
    content: ShardContent,
    scored: ScoredTexts,
    missing: tuple[tuple[int, str], ...],
) -> ShardRecord:
    """Write a labeller's outputs for some rows, and return which rows of the shard are missing."""
    label = shards.labels_of(scored.values, labeller.classes, labeller.kind)
    named = content.text_names
    texts = dict(zip(named, rows.texts.values(), strict=True)) if named else {}
    table = shards.shard_table(rows.ids, texts, label, scored.layout, scored.values)
    return shards.write_shard(files, shards.shard_name(rows.number), table).model_copy(
        update={"missing": missing, "truncated": scored.truncated}
    )


def score_answered(
    labeller: Labeller,
    texts: Texts,
    outputs: Sequence[str],
    batch_size: int,
    advance: Callable[[int], None] = lambda rows: None,
) -> ScoredTexts:
    """As `score_rows`, for the rows that have outputs.

    The other rows of such a batch are computed once more, without it: a labeller that reports a missing row keeps
    their outputs. If another one is then missing, as with a teacher that samples or is busy, it is left out too.

    Raises:
        RowsMissingError: no row has outputs.
    """
    reasons: dict[int, str] = {}
    left = list(range(rows_in(texts)))
    while True:
        try:
            found = score_rows(labeller, texts_at(texts, left), outputs, batch_size, advance)
            return replace(found, reasons=reasons)
        except RowsMissingError as error:
            reasons |= {left[at]: why for at, why in error.reasons.items()}
            left = [place for place in left if place not in reasons]
            if not left:
                raise RowsMissingError(reasons) from None
            advance = _counted_before


def _counted_before(rows: int) -> None:
    """Rows that are computed again were counted the first time."""


def rows_in(texts: Texts) -> int:
    """How many rows there are."""
    return len(next(iter(texts.values())))


def texts_at(texts: Texts, places: Sequence[int]) -> dict[str, list[str]]:
    """The texts of some rows."""
    return {name: [column[place] for place in places] for name, column in texts.items()}


def score_rows(
    labeller: Labeller,
    texts: Texts,
    outputs: Sequence[str],
    batch_size: int,
    advance: Callable[[int], None] = lambda rows: None,
) -> ScoredTexts:
    """A labeller's outputs about some rows; batches hold rows of like length, the longest first.

    Args:
        outputs: the names of the labeller's outputs that are kept.
        advance: called with the number of rows done since the last call.

    Raises:
        RowsMissingError: rows without outputs, after all other rows were computed.
        LimbeckError: an output that is missing, not finite, or of another number of rows or classes.
    """
    columns = [*texts.values()]
    count = len(columns[0])
    order = np.argsort([-sum(map(len, row)) for row in zip(*columns, strict=True)], kind="stable")
    found: dict[str, np.ndarray] = {}
    missing: dict[int, str] = {}
    truncated = 0
    for start in range(0, count, batch_size):
        places = order[start : start + batch_size]
        rows = [{name: column[place] for name, column in texts.items()} for place in places]
        try:
            scores = labeller.score(rows)
        except RowsMissingError as error:
            missing |= {int(places[at]): reason for at, reason in error.reasons.items()}
            continue
        truncated += len(truncated_by(labeller))
        for name in outputs:
            value = checked(labeller, name, scores, len(rows))
            if name not in found:
                found[name] = np.empty((count, *value.shape[1:]), dtype=value.dtype)
            elif (value.shape[1:], value.dtype) != (found[name].shape[1:], found[name].dtype):
                raise LimbeckError(
                    f"{labeller.name}: {name} is {value.dtype} {value.shape[1:]} of some rows and "
                    f"{found[name].dtype} {found[name].shape[1:]} of others",
                    "a labeller must return the same outputs for all rows",
                )
            found[name][places] = value
        advance(len(rows))
    if missing:
        raise RowsMissingError(missing)
    layout = OutputLayout(tuple(column_of_values(name, found[name]) for name in outputs))
    return ScoredTexts(layout, found, truncated)


_ROUNDING = 1e-2
"""For probabilities in bf16."""


def checked(
    labeller: Labeller, name: str, scores: Mapping[str, np.ndarray], count: int
) -> np.ndarray:
    """One output of a batch.

    Raises:
        LimbeckError: the problem with it.
    """
    if not isinstance(scores, Mapping):
        raise LimbeckError(
            f"{labeller.name}: score returned a {type(scores).__name__}, no outputs by their names",
            'return {"probabilities": array of a row for each text}',
        )
    if name not in scores:
        raise LimbeckError(
            f"{labeller.name}: it returned {', '.join(scores) or 'nothing'} instead of {name}",
            "request the returned outputs with --outputs",
        )
    value = np.asarray(scores[name])
    if len(value) != count:
        raise LimbeckError(
            f"{labeller.name}: {name} of {len(value)} rows instead of {count}",
            "a labeler must return one value per row",
        )
    parts = value if value.dtype == object else [value]
    if not all(np.isfinite(part).all() for part in parts):
        raise LimbeckError(
            f"{labeller.name}: {name} holds a value that is not finite, or beyond the type it is stored in",
            "check the model, and use --precision fp32 if it does not work in bf16",
        )
    known = TASK_TYPES.get(labeller.kind) if labeller.kind in TASK_TYPES else None
    if name in shards.DECIDING and known and known.problem_of(False) is not None:
        _check_deciding(labeller, name, value)
    return value


def _check_deciding(labeller: Labeller, name: str, value: np.ndarray) -> None:
    """Raise LimbeckError for outputs (B, …) that are not one for each class, or are no probabilities."""
    width = len(labeller.classes) or 1
    if value.dtype == object or value.shape[1:] != (width,):
        classes = f"{width} classes" if labeller.classes else "no classes, but one number per row"
        raise LimbeckError(
            f"{labeller.name}: {name} is {value.shape}, and it has {classes}",
            f"return an array of shape ({len(value)}, {width})",
        )
    if name == PROBABILITIES and not ((value >= 0) & (value <= 1 + _ROUNDING)).all():
        raise LimbeckError(
            f"{labeller.name}: {name} from {value.min():g} to {value.max():g}, which are no probabilities",
            "return them as logits, or between 0 and 1",
        )
