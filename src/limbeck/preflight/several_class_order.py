"""Whether a model's classes stand in the data's order, where a row may be of several. Part of `limbeck.preflight`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from limbeck.support.errors import Problem
from limbeck.tasks import Task


def order_of_several(
    task: Task,
    logits: np.ndarray,
    labels: Sequence[Any] | np.ndarray,
    origin: str,
    side: str,
    fix: str,
) -> list[Problem]:
    """Classes that would fit the labels much better in another order, by logits (n, C) and labels of 0 and 1 (n, C).

    The best renaming is the assignment with the highest mean correlation of a logit with a label. It is reported
    when it gains more than three standard errors of a correlation of zero.
    """
    table = correlations(np.asarray(logits, dtype=np.float64), np.asarray(labels, np.float64))
    given, meant = linear_sum_assignment(table, maximize=True)
    now, renamed = np.trace(table) / len(table), table[given, meant].mean()
    if renamed - now <= 3 / np.sqrt(len(logits)):
        return []
    order = ", ".join(
        f"its class {number} means {task.labels[name]!r}"
        for number, name in zip(given.tolist(), meant.tolist(), strict=True)
        if number != name
    )
    return [
        Problem(
            f"{side}: its classes are in another order than the data's: {order} (mean correlation with the labels "
            f"{renamed:.2f} instead of {now:.2f}, {origin})",
            fix,
        )
    ]


def correlations(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Pearson's of each column of the logits with each of the labels (C, C); 0 where one of them is constant."""
    sides = [side - side.mean(axis=0) for side in (logits, labels)]
    spread = [np.sqrt((side**2).sum(axis=0)) for side in sides]
    product = spread[0][:, None] * spread[1][None]
    return sides[0].T @ sides[1] / np.where(product > 0, product, 1)
