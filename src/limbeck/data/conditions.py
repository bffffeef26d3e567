"""Data conditions of a run: fewer training rows, and rows with a wrong label.

Part of the data stage, after the rows are loaded. The training split alone is touched. Everything
is a function of the rows and the condition's own seed, so runs with several seeds, and a teacher
and its student, share their rows (CR-ILD, §5 and Appendix C: ill-conditioned data).
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

import numpy as np
from datasets import ClassLabel, Dataset, Value

from limbeck.data.splits import stacked
from limbeck.support.errors import LimbeckError
from limbeck.tasks.abstract_type import labelled_rows, no_unlabelled
from limbeck.tasks.task import Task

# Keeps the draws of one seed apart.
_ROWS, _NOISE = 1, 2


class Conditions(NamedTuple):
    """What is done to the training rows, as a recipe's keys of the same names say it."""

    train_rows: int | None = None
    train_rows_seed: int = 0
    stratified: bool = False
    label_noise: float = 0.0
    label_noise_seed: int = 0

    def apply(self, rows: Dataset, task: Task, *, labels_read: bool = True) -> Dataset:
        """The training rows under these conditions: first fewer of them, then the noise.

        They are conditions of the labelled rows; those without a label stay behind these, as they are.

        Args:
            labels_read: False where nobody looks at the labels, so that a row counts with or without one.

        Raises:
            LimbeckError: more rows are asked for than there are, or classes where there are none.
        """
        labelled, others = divided(rows, task) if labels_read else (rows, None)
        if others is not None and (self.train_rows is not None or self.label_noise):
            self._check_enough(labelled, "training rows with a label")
            return stacked(self.apply(labelled, task), others)
        if self.train_rows is not None:
            self._check_enough(rows, "training rows")
            rows = self._fewer(rows, task, self.train_rows)
        if self.label_noise:
            labels = self._classes(rows, task, "label_noise: there is no other class to give")
            noisy = with_noise(labels, len(task.labels), self.label_noise, self.label_noise_seed)
            rows = _with_labels(rows, task.label_column, noisy)
        return rows

    def relabelled(self, rows: int) -> int:
        """How many of that many training rows get another class: the exact share, half up."""
        share = Decimal(str(self.label_noise)) * rows
        return int(share.quantize(Decimal(1), ROUND_HALF_UP))

    def _check_enough(self, rows: Dataset, what: str) -> None:
        if self.train_rows is not None and self.train_rows > len(rows):
            raise LimbeckError(
                f"train_rows: {self.train_rows} of {len(rows)} {what}",
                "ask for fewer" if len(rows) else "leave it out",
            )

    def _fewer(self, rows: Dataset, task: Task, wanted: int) -> Dataset:
        if not self.stratified:
            return rows.shuffle(seed=self.train_rows_seed).select(range(wanted))
        labels = self._classes(rows, task, "stratified: there are no classes to keep in proportion")
        return rows.select(stratified_rows(labels, wanted, self.train_rows_seed).tolist())

    def _classes(self, rows: Dataset, task: Task, trouble: str) -> np.ndarray:
        """The rows' class ids."""
        labels = None if task.regression else rows[task.label_column][:]
        if labels is None or not all(isinstance(label, int) for label in labels):
            raise LimbeckError(f"{trouble}: {task.name} has no class for each row", "leave it out")
        return np.asarray(labels, dtype=np.int64)


def divided(rows: Dataset, task: Task) -> tuple[Dataset, Dataset | None]:
    """The labelled rows and the others; None where there are no others, or the task type takes none."""
    column = rows.features.get(task.label_column)
    readable = isinstance(column, Value | ClassLabel) or task.kind.several_classes
    if no_unlabelled(task.kind) is not None or not readable:
        return rows, None
    labelled = labelled_rows(rows.with_format("numpy")[task.label_column][:])
    if labelled.all():
        return rows, None
    chosen = (np.flatnonzero(which) for which in (labelled, ~labelled))
    first, second = (rows.select(places) for places in chosen)
    return first, second


def stratified_rows(labels: np.ndarray, wanted: int, seed: int) -> np.ndarray:
    """Row numbers (wanted), in random order, with the classes in proportion.

    Each class gets its exact share rounded down; the rows then missing go to the largest remainders
    (ties to the lower class id), so no class is more than one row off.
    """
    classes, counts = np.unique(labels, return_counts=True)
    quotas, remainders = np.divmod(counts * wanted, len(labels))
    quotas[np.argsort(-remainders, kind="stable")[: wanted - quotas.sum()]] += 1
    generator = np.random.default_rng([seed, _ROWS])
    chosen = [
        generator.permutation(np.flatnonzero(labels == label))[:quota]
        for label, quota in zip(classes, quotas, strict=True)
    ]
    return generator.permutation(np.concatenate(chosen))


def with_noise(labels: np.ndarray, classes: int, rate: float, seed: int) -> np.ndarray:
    """The labels, a share of them, the exact number, replaced by another class sampled uniformly."""
    count = Conditions(label_noise=rate).relabelled(len(labels))
    if count and classes < 2:
        raise LimbeckError("label_noise: there is a single class", "leave label_noise out")
    generator = np.random.default_rng([seed, _NOISE])
    rows = generator.permutation(len(labels))[:count]
    noisy = labels.copy()
    # Adding 1..classes−1 round the circle reaches every other class, and never the old one.
    noisy[rows] = (noisy[rows] + generator.integers(1, max(classes, 2), size=count)) % classes
    return noisy


def _with_labels(rows: Dataset, column: str, labels: np.ndarray) -> Dataset:
    """The same rows with other class ids, columns and features in their places."""
    order, feature = rows.column_names, rows.features[column]
    changed = rows.remove_columns(column).add_column(column, labels.tolist(), feature=feature)
    return changed.select_columns(order)
