"""Which models of a team add anything: how they differ in pairs, and the team without each of them.

Computed from the predictions of finished models. Several teachers are
better than the best of them only if they err on different examples (Kuncheva & Whitaker
2003, "Measures of Diversity in Classifier Ensembles").
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

Score = Callable[[np.ndarray, np.ndarray], float]
"""Predictions (n, C) or (n,) and labels (n,) to a score, 0 to 100."""


@dataclass(frozen=True)
class TeamScores:
    """A team's predictions of the same n examples; members are numbered as `names` lists them.

    Attributes:
        names: of the k members.
        examples: n.
        scores: of each member (k,).
        ensemble: the score of the mean of all outputs.
        without: the score of the mean of all others' outputs (k,); nan in a team of one.
        disagreement: of each pair (k, k) the share of examples that they give different classes, of numbers
            1 − Pearson's correlation (nan where one is constant).
        oracle: share of examples that at least one member has right, 0 to 100; None for numbers.
    """

    names: tuple[str, ...]
    examples: int
    scores: np.ndarray
    ensemble: float
    without: np.ndarray
    disagreement: np.ndarray
    oracle: float | None = None

    @property
    def adds(self) -> np.ndarray:
        """How much lower the team scores without each member (k,); negative where it does harm."""
        return self.ensemble - self.without


def team_of(
    outputs: Mapping[str, np.ndarray], labels: np.ndarray, score: Score, *, regression: bool = False
) -> TeamScores:
    """Measure a team.

    The ensemble predicts the mean of its members' log-probabilities, which gives the classes of the mean of their
    logits; of numbers their mean.

    Args:
        outputs: by member its logits (n, C), or numbers (n, 1) or (n,).
        labels: class ids, or numbers (n,).
        score: the score of a prediction.
        regression: whether labels are numbers.
    """
    oracle = None
    known = [np.asarray(one, dtype=float) for one in outputs.values()]
    if regression:
        each = np.stack([one.reshape(-1) for one in known])
        disagreement = _one_minus_correlation(each)
    else:
        each = log_softmax(np.stack(known), axis=2)
        classes = each.argmax(axis=2)
        disagreement = (classes[:, None] != classes).mean(axis=2)
        oracle = 100.0 * float((classes == labels).any(axis=0).mean())

    def scored(members: np.ndarray) -> float:
        return score(each[members].mean(axis=0), labels) if len(members) else np.nan

    everyone = np.arange(len(each))
    return TeamScores(
        names=tuple(outputs),
        examples=len(labels),
        scores=np.array([score(own, labels) for own in each]),
        ensemble=scored(everyone),
        without=np.array([scored(np.delete(everyone, member)) for member in everyone]),
        disagreement=disagreement,
        oracle=oracle,
    )


def _one_minus_correlation(outputs: np.ndarray) -> np.ndarray:
    """(k, n) to (k, k); constant outputs have no correlation."""
    constant = np.ptp(outputs, axis=1) == 0
    found = np.full((len(outputs), len(outputs)), np.nan)
    if (~constant).any():
        varied = np.atleast_2d(np.corrcoef(outputs[~constant]))
        found[np.ix_(~constant, ~constant)] = np.clip(1 - varied, 0, 2)
    return found
