"""How much of the label each layer holds: a linear classifier on its frozen states.

Part of `limbeck.reporting.analysis`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Progressed = Callable[[int, int], None]
"""Is told how many parts are done, and of how many."""

_ITERATIONS = 2000


def nobody(done: int, total: int) -> None:
    """Progress that is not shown."""


@dataclass(frozen=True)
class ProbedLayers:
    """A linear probe of each layer of one model.

    Attributes:
        layers: their numbers, 0 for the embedding output.
        scores: accuracy on the rows that the probes have not seen, 0 to 100.
        train_rows: how many a probe was fitted on.
        scored_rows: how many it was scored on.
        baseline: accuracy of always predicting the most frequent class of the fitted rows, 0 to 100.
        unconverged: layers whose probe had not converged after as many iterations as it was given.
    """

    layers: tuple[int, ...]
    scores: tuple[float, ...]
    train_rows: int
    scored_rows: int
    baseline: float
    unconverged: tuple[int, ...] = ()


def probe_layers(
    train: Sequence[np.ndarray],
    train_labels: np.ndarray,
    scored: Sequence[np.ndarray],
    labels: np.ndarray,
    *,
    layers: Sequence[int] | None = None,
    strength: float = 1.0,
    progressed: Progressed = nobody,
) -> ProbedLayers:
    """Fit a logistic regression on each layer's states and score it on others.

    Features are standardised by the fitted rows, so that the penalty means the same for every layer.

    Args:
        train: of each layer the states (n, d) that probes are fitted on.
        train_labels: class ids (n,).
        scored: of each layer the states (m, d) that they are scored on.
        labels: class ids (m,).
        layers: the layers' numbers; from 0 by default.
        strength: scikit-learn's C, the inverse of the penalty's weight.
        progressed: is told how many layers are done.

    Raises:
        ValueError: fewer than two classes to fit, or shapes that do not fit.
    """
    if len(np.unique(train_labels)) < 2:
        raise ValueError("a probe needs rows of two classes at least")
    numbers = tuple(range(len(train)) if layers is None else layers)
    scores, unconverged = [], []
    for done, (number, own, other) in enumerate(zip(numbers, train, scored, strict=True), start=1):
        probe = make_pipeline(
            StandardScaler(), LogisticRegression(C=strength, max_iter=_ITERATIONS)
        )
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", ConvergenceWarning)
            probe.fit(own, train_labels)
        if any(issubclass(one.category, ConvergenceWarning) for one in said):
            unconverged.append(number)
        scores.append(100 * float(probe.score(other, labels)))
        progressed(done, len(numbers))
    classes, counts = np.unique(train_labels, return_counts=True)
    baseline = 100 * float(np.mean(np.asarray(labels) == classes[counts.argmax()]))
    return ProbedLayers(
        numbers, tuple(scores), len(train_labels), len(labels), baseline, tuple(unconverged)
    )
