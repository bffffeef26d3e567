"""What types of task read and give back: thresholds, results, rules. Part of `limbeck.tasks`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from limbeck.functional.labels import NO_LABEL
from limbeck.support.errors import LimbeckError

# From which probability on a row is of a class, where it may be of several.
#
# A threshold is half-way between two probabilities that were seen, so that a runtime whose numbers
# differ in the last digits decides alike.


USUAL = 0.5
THRESHOLDS = "label_thresholds"
"""Where a shipped model's configuration holds them, in the order of its classes."""

# A float32 model's probabilities of one text in two batches differ by less.
_ROUNDING = 1e-6

ThresholdRule = Literal["one", "by_class"]
"""Tuned: one for all classes, by micro F1, or one for each, by its own F1."""
Thresholds = ThresholdRule | float | tuple[float, ...]
"""The rule for thresholds, or their values: one for all classes, or one per class in id order."""


def decided(given: Thresholds, probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The thresholds (C,), given or tuned on these rows: probabilities (n, C) and labels of 0 and 1 (n, C)."""
    count = probabilities.shape[1]
    if given == "one":
        return np.full(count, best_threshold(probabilities.reshape(-1), labels.reshape(-1)))
    if given == "by_class":
        pairs = zip(probabilities.T, labels.T, strict=True)
        return np.array([best_threshold(*pair) for pair in pairs])
    return np.broadcast_to(np.asarray(given, dtype=np.float64), (count,)).copy()


def cross_decided(
    given: Thresholds, probabilities: np.ndarray, labels: np.ndarray, parts: int = 5
) -> np.ndarray:
    """By row the thresholds (n, C) for a score on the rows that tune them: each part's are tuned on the other parts.

    Given thresholds hold for all rows. The parts hold each class as evenly as its rows allow: rows are dealt out in
    the order of their rarest class.
    """
    rows = len(labels)
    if not isinstance(given, str) or rows < 2:
        return np.broadcast_to(decided(given, probabilities, labels), probabilities.shape)
    has = labels == 1
    rarest = np.where(has, has.sum(axis=0), rows + 1).argmin(axis=1)
    order = np.argsort(np.where(has.any(axis=1), rarest, labels.shape[1]), kind="stable")
    part = np.empty(rows, dtype=np.int64)
    part[order] = np.arange(rows) % min(parts, rows)
    found = np.empty(probabilities.shape)
    for one in range(min(parts, rows)):
        others = part != one
        found[~others] = decided(given, probabilities[others], labels[others])
    return found


def thresholds_of(config: Any) -> tuple[float, ...] | None:
    """The thresholds in a model's configuration, in the order of its classes; None without any.

    Raises:
        LimbeckError: other than a probability for each class.
    """
    found = getattr(config, THRESHOLDS, None)
    if found is None:
        return None
    numbers = (
        [one for one in found if type(one) in (int, float) and 0 <= one <= 1]
        if isinstance(found, list)
        else []
    )
    if len(numbers) != config.num_labels or len(numbers) != len(found):
        raise LimbeckError(
            f"{THRESHOLDS} in config.json is {found!r:.80}, and there are {config.num_labels} classes",
            "give each class a number from 0 to 1, in the order of id2label, or take the key out",
        )
    return tuple(map(float, numbers))


def best_threshold(probabilities: np.ndarray, right: np.ndarray) -> float:
    """From which probability on F1 is largest: probabilities (m,), and which are right, 0 or 1 (m,).

    Of equally good ones the nearest to ½, which is also the answer where nothing is right.
    """
    order = np.argsort(-probabilities, kind="stable")
    ranked, hits = probabilities[order], np.cumsum(right[order])
    wanted = hits[-1] if len(hits) else 0
    if not wanted:
        return USUAL
    # Rows of equal probability up to rounding stay together: no threshold between them.
    ends = np.flatnonzero(np.append(np.diff(ranked) < -_ROUNDING, True))
    scores = 2 * hits[ends] / (ends + 1 + wanted)
    below = np.append(ranked[ends[:-1] + 1], 0.0)
    between = (ranked[ends] + below) / 2
    best = between[np.isclose(scores, scores.max(), rtol=1e-12, atol=0)]
    return float(best[np.abs(best - USUAL).argmin()])


# The parts of a task that task types read, and their results.


Rows = dict[str, list[Any]]
Batch = Mapping[str, Tensor]
Labels = Sequence[Any] | np.ndarray
"""The label column of some rows."""
Kept = Mapping[str, Sequence[Any]]
"""Predictions and labels by row, as `Results.predictions` holds them."""

NO_PROMPTS: Mapping[str, str] = MappingProxyType({})
"""No prefixes besides a model's own."""

MOST_PROBABILITIES = 5_000_000
"""Numbers that a file of predictions may hold next to classes; as text they take ten times the bytes."""


class Labelled(Protocol):
    """The part of a task that a model's head needs: class names in id order, () without."""

    @property
    def labels(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def regression(self) -> bool: ...  # noqa: D102


class TaskLike(Labelled, Protocol):
    """The part of a task that a kind reads (`limbeck.data.Task`)."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def text_columns(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def label_column(self) -> str: ...  # noqa: D102
    @property
    def primary(self) -> str: ...  # noqa: D102
    @property
    def thresholds(self) -> Thresholds: ...  # noqa: D102
    @property
    def metrics(self) -> tuple[str, ...]: ...  # noqa: D102
    def scores(self, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]: ...  # noqa: D102


@dataclass(frozen=True)
class Results:
    """A split's scores, and each example's prediction and label.

    `predictions` holds lists of equal length, `index`, `prediction` and `label`, and for classes of a
    head `probabilities`; JSON can keep them. `thresholds`: with several labels per row, the thresholds that the
    predictions were made by, in id order.
    """

    scores: dict[str, float]
    predictions: dict[str, list[Any]]
    thresholds: tuple[float, ...] = ()


class ScoredSplit(NamedTuple):
    """A split that is scored: as it is encoded and as it was loaded, and the tokenizer that encoded it."""

    encoded: Dataset
    rows: Dataset
    tokenizer: Any


class HardRule(NamedTuple):
    """How much each class counts (C,), None for all alike; and the focal loss's γ, 0 for plain labels."""

    class_weights: Tensor | None = None
    gamma: float = 0.0


PLAIN = HardRule()


# How a task type is to compare soft labels.


class AtTemperature(TypedDict):
    """What every soft label of `limbeck.functional` takes."""

    temperature: float
    scale_by_t2: bool


class SoftRule(NamedTuple):
    """How a soft label is compared: `soft_cross_entropy` or `soft_kl`, and at what temperature.

    `tempered`: a regression's outputs are divided by it too.
    """

    compare: str = "soft_cross_entropy"
    temperature: float = 1.0
    scale_by_t2: bool = False
    tempered: bool = False

    @property
    def at(self) -> AtTemperature:
        """The temperature and its scaling, as keyword arguments of a loss."""
        return AtTemperature(temperature=self.temperature, scale_by_t2=self.scale_by_t2)


# Columns of encoded rows and of batches that limbeck adds.


EXAMPLE_WEIGHTS = "example_weights"
"""The column of a batch with the weight of each example (B,), for the terms that learn from a
teacher's logits; without it all count alike."""

CUT = "__truncated__"
"""The column in which `TaskType.encode` marks truncated examples."""

ROW = "row"
"""The column with the row of the split that an encoded example is part of, if one row can
become several; the examples are then numbered again."""


# Inputs that a task type rejects: outputs of another shape, no rows, no labels.


def check_outputs(task: TaskLike, outputs: np.ndarray, expected: tuple[int, ...]) -> None:
    """Raise LimbeckError for outputs of another shape, or that are not finite."""
    if outputs.shape != expected:
        wanted = expected[-1] if len(expected) > 1 else 1
        raise LimbeckError(
            f"task {task.name!r}: predictions of shape {outputs.shape}, expected {expected}",
            f"use a model with {wanted} output{'s' if wanted > 1 else ''}",
        )
    need_finite(task, outputs, "predictions")


def need_finite(task: TaskLike, outputs: np.ndarray, what: str) -> None:
    """Raise LimbeckError for outputs that are not finite."""
    if not np.isfinite(outputs).all():
        raise LimbeckError(
            f"task {task.name!r}: the {what} hold values that are not finite",
            "the model has diverged: lower lr, or train in fp32",
        )


def need_rows(task: TaskLike, labels: Labels) -> None:
    """Raise LimbeckError for no rows at all."""
    if len(labels) == 0:
        raise LimbeckError(f"task {task.name!r}: there are no labels", "check the split")


def need_labels(batch: Batch, names: Sequence[str]) -> None:
    """Raise LimbeckError for a batch without labels."""
    missing = [name for name in names if name not in batch]
    if missing:
        raise LimbeckError(
            f"the batch has no {' and no '.join(missing)}", "score or train on labeled rows"
        )


# Outputs and labels of batches as arrays and padded columns.


def as_array(outputs: Tensor) -> np.ndarray:
    """Outputs of a batch on the CPU, floats in float32."""
    moved = outputs.detach().cpu()
    return (moved.float() if moved.is_floating_point() else moved).numpy()


def join(outputs: Iterable[np.ndarray]) -> np.ndarray:
    """Outputs of several batches under each other, narrower ones widened with −100."""
    parts = list(outputs)
    if parts[0].ndim < 2:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    widened = [
        np.pad(
            part,
            [(0, 0), (0, width - part.shape[1]), *[(0, 0)] * (part.ndim - 2)],
            constant_values=NO_LABEL,
        )
        for part in parts
    ]
    return np.concatenate(widened)


def pad_column(
    values: Sequence[Sequence[int]], width: int, fill: int, *, left: bool = False
) -> Tensor:
    """Lists of different lengths as one int64 tensor (B, width)."""
    padded = torch.full((len(values), width), fill, dtype=torch.int64)
    for row, value in enumerate(values):
        start = width - len(value) if left else 0
        padded[row, start : start + len(value)] = torch.tensor(value, dtype=torch.int64)
    return padded


def columns_of(encoded: Any, rows: Rows) -> Rows:
    """A tokenizer's columns, the rows' numbers, and which of them lost text."""
    return {**encoded, "index": rows["index"], CUT: truncated(encoded)}


def truncated(encoded: Any) -> list[bool]:
    """Which examples of a tokenizer's output lost text."""
    # Both texts' leftovers hang on the encoding, so nothing is tokenised twice to count them.
    return [bool(encoding.overflowing) for encoding in encoded.encodings]
