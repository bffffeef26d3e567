"""Which models of a team add anything: how they differ in pairs, and the team without each of them.

Computed from the predictions of finished models. Several teachers are
worth more than the best of them only where they err on different examples (Kuncheva & Whitaker
2003, "Measures of Diversity in Classifier Ensembles").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_softmax

from limbeck.evaluation.calibration import Calibration, calibration_of
from limbeck.evaluation.class_predictions import class_outputs, number_outputs
from limbeck.tasks import metrics

Score = Callable[[np.ndarray, np.ndarray], float]
"""Predictions (n, C) or (n,) and labels (n,) to a score, 0 to 100."""


@dataclass(frozen=True)
class Diversity:
    """A team's predictions to the same n examples; members are numbered as `names` lists them."""

    names: tuple[str, ...]
    examples: int
    scores: np.ndarray
    """(k,) each member's score."""
    ensemble: float
    """The score of the mean of all outputs."""
    without: np.ndarray
    """(k,) the score of the mean of all others' outputs; nan in a team of one."""
    pairs: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By measure a symmetric matrix (k, k)."""
    oracle: float | None = None
    """Share of examples that at least one member has right, 0 to 100; None for numbers."""

    @property
    def adds(self) -> np.ndarray:
        """(k,) how much lower the team scores without each member; negative where it does harm."""
        return self.ensemble - self.without


def class_diversity(
    logits: Mapping[str, np.ndarray], labels: np.ndarray, *, score: Score | None = None
) -> Diversity:
    """Diversity of classifiers, from their logits (n, C), or log-probabilities, by name.

    The ensemble predicts the mean of its members' log-probabilities, which gives the classes, and
    after a softmax the probabilities, of the mean of their logits. `score` is accuracy by default.
    The pairs' measures (Kuncheva & Whitaker 2003, Table 2; N¹⁰: examples that the first of two has
    right and the second wrong):

    - `disagreement`: share of examples that the two give different classes. Where there are two
      classes this is the paper's (N⁰¹ + N¹⁰) / n, with more of them two can be wrong differently.
    - `double_fault`: share that both have wrong, N⁰⁰ / n; 1 − accuracy on the diagonal.
    - `q_statistic`: Yule's Q, (N¹¹N⁰⁰ − N⁰¹N¹⁰) / (N¹¹N⁰⁰ + N⁰¹N¹⁰): 1 where one has right
      whatever the other has, 0 where the two err independently, below 0 where they err on
      different examples; nan where it is not defined.

    Raises ValueError for no members, and for shapes that do not fit.
    """
    checked = {name: class_outputs(given, labels) for name, given in _some(logits).items()}
    labels = np.asarray(labels).astype(int)
    outputs = np.stack([log_softmax(given, axis=1) for given, _ in checked.values()])
    classes = outputs.argmax(axis=2)
    right = classes == labels
    return _team(
        tuple(logits),
        outputs,
        labels,
        score or _accuracy,
        pairs={
            "disagreement": (classes[:, None] != classes).mean(axis=2),
            "double_fault": (~right[:, None] & ~right).mean(axis=2),
            "q_statistic": _q_statistic(right),
        },
        oracle=100.0 * float(right.any(axis=0).mean()),
    )


def number_diversity(
    outputs: Mapping[str, np.ndarray], labels: np.ndarray, *, score: Score | None = None
) -> Diversity:
    """Diversity of regressions, from their outputs (n,) or (n, 1) by name; as `class_diversity`.

    `score` is Pearson's correlation by default, times 100. The pairs' measures:

    - `disagreement`: 1 − Pearson's correlation of the two outputs; nan where one is constant.
    - `difference`: mean absolute difference of the two outputs, in the label's unit.
    """
    checked = {name: number_outputs(given, labels) for name, given in _some(outputs).items()}
    labels = np.asarray(labels, dtype=float)
    stacked = np.stack([given for given, _ in checked.values()])
    return _team(
        tuple(outputs),
        stacked,
        labels,
        score or metrics.pearson,
        pairs={
            "disagreement": _one_minus_correlation(stacked),
            "difference": np.abs(stacked[:, None] - stacked).mean(axis=2),
        },
    )


def _team(
    names: tuple[str, ...],
    outputs: np.ndarray,
    labels: np.ndarray,
    score: Score,
    *,
    pairs: Mapping[str, np.ndarray],
    oracle: float | None = None,
) -> Diversity:
    """The scores of each member, of all of them and of all but one; `outputs` is (k, n, …)."""
    members = np.arange(len(names))
    return Diversity(
        names=names,
        examples=len(labels),
        scores=np.array([score(own, labels) for own in outputs]),
        ensemble=score(outputs.mean(axis=0), labels),
        without=np.array(
            [
                score(outputs[members != member].mean(axis=0), labels) if len(names) > 1 else np.nan
                for member in members
            ]
        ),
        pairs=pairs,
        oracle=oracle,
    )


def _some(outputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    if not outputs:
        raise ValueError("a team has at least one member")
    return outputs


def _q_statistic(right: np.ndarray) -> np.ndarray:
    """(k, n) whether each member has each example right, to (k, k)."""
    hit, miss = right.astype(float), (~right).astype(float)
    both, neither = hit @ hit.T, miss @ miss.T
    crossed = (hit @ miss.T) * (miss @ hit.T)
    top, bottom = both * neither - crossed, both * neither + crossed
    found: np.ndarray = np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom != 0)
    return found


def _one_minus_correlation(outputs: np.ndarray) -> np.ndarray:
    """(k, n) to (k, k); whoever always gives one number has no correlation."""
    constant = np.ptp(outputs, axis=1) == 0
    found = np.full((len(outputs), len(outputs)), np.nan)
    if (~constant).any():
        varied = np.atleast_2d(np.corrcoef(outputs[~constant]))
        found[np.ix_(~constant, ~constant)] = np.clip(1 - varied, 0, 2)
    return found


def _accuracy(outputs: np.ndarray, labels: np.ndarray) -> float:
    return metrics.accuracy(outputs.argmax(axis=1), labels)


# A team looked at as a whole: how its members differ, and how sure each of them is. What the
# report of a team, or of a run with several teachers, shows.


@dataclass(frozen=True)
class TeamOverview:
    """A team's predictions to one split, measured."""

    diversity: Diversity
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    """By member's name; empty for numbers, which come without a probability."""
    ensemble: Calibration | None = None
    """Of the mean of all logits."""


def team_of(
    outputs: Mapping[str, np.ndarray],
    labels: np.ndarray,
    *,
    regression: bool = False,
    score: Score | None = None,
) -> TeamOverview:
    """Measure a team, from each member's logits (n, C), or outputs (n, 1) or (n,), by name.

    `score` gives a prediction's score, 0 to 100: by default accuracy, or Pearson's correlation.

    Raises ValueError for no members, and for shapes that do not fit.
    """
    if regression:
        return TeamOverview(number_diversity(outputs, labels, score=score))
    logits = [log_softmax(np.asarray(given, dtype=float), axis=1) for given in outputs.values()]
    return TeamOverview(
        class_diversity(outputs, labels, score=score),
        {name: calibration_of(given, labels) for name, given in outputs.items()},
        calibration_of(np.mean(logits, axis=0), labels),
    )
