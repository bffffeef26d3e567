"""Ordered classes, as ratings from 1 to 5. Part of `limbeck.tasks`.

Trained as classes are. Scores count how many classes a prediction is away from the label.
"""

from typing import Any

import numpy as np

from limbeck.support.errors import LimbeckError
from limbeck.tasks import metrics, rules
from limbeck.tasks.abstract_type import TASK_TYPES, task_type
from limbeck.tasks.classes import Sentence

_METRICS = ("quadratic_kappa", "accuracy", "mean_absolute_error")


@task_type("ordinal")
class Ordinal(Sentence):
    """Classification of text into classes whose ids are their ranks, from low to high."""

    summary = "one of several classes in an order (ratings); scored by quadratic-weighted kappa"
    ordered = True

    def task_fields(self, task: rules.TaskLike) -> dict[str, Any]:
        """The metrics of ordered classes.

        Raises:
            LimbeckError: the label is a number.
        """
        if not task.labels:
            raise LimbeckError(
                f"kind: {self.name} is for classes, and the label of task {task.name!r} is a number",
                "leave kind out for a regression, or round the numbers to classes",
            )
        return {"metrics": _METRICS, "primary": _METRICS[0]}

    def sampled_score(
        self, task: rules.TaskLike, metric: str, kept: rules.Kept
    ) -> metrics.SampledScore | None:
        """All three metrics have intervals."""
        given, right = (self.class_ids(task, kept[name]) for name in ("prediction", "label"))
        if metric == "quadratic_kappa":
            return metrics.quadratic_kappa_of_ranks(given, right)
        if metric == "mean_absolute_error":
            return metrics.ratio_of_sums(np.abs(given - right), np.ones(len(given)))
        return super().sampled_score(task, metric, kept)


ORDINAL = TASK_TYPES.get("ordinal")
