"""A team looked at as a whole: how its members differ, and how sure each of them is.

Part of `limbeck.reporting.analysis`. What the report of a team, or of a run with several teachers, shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_softmax

from limbeck.evaluation.calibration import Calibration, calibration_of
from limbeck.reporting.analysis.diversity import Diversity, Score, class_diversity, number_diversity


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
