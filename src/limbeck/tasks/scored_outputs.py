"""What a task type makes of a model's outputs: predictions, scores, and what chance alone would score.

Part of `limbeck.tasks`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset
from scipy.special import softmax
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.support.errors import LimbeckError
from limbeck.tasks.modality import Processor
from limbeck.tasks.scores_of_samples import SampledScore, SampledUnits, ratio_of_sums
from limbeck.tasks.task_like import Batch, Kept, Labels, Results, TaskLike


class ScoredOutputs(ABC):
    """The half of a `TaskType` that reads a model's outputs."""

    name: ClassVar[str]
    """As it is registered."""

    def named(self, task: TaskLike, prediction: Any) -> str:
        """What a prediction of a row says, in words."""
        return str(prediction)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Of logits (n, C) the classes' probabilities, float64."""
        return softmax(logits.astype(np.float64), axis=1)

    @abstractmethod
    def compact_outputs(self, model: PreTrainedModel, batch: Batch, logits: Tensor) -> Tensor:
        """What evaluation keeps of a batch, (B, …): as little as the scores need."""

    @abstractmethod
    def results(
        self,
        task: TaskLike,
        outputs: np.ndarray,
        encoded: Dataset,
        rows: Dataset,
        tokenizer: Processor,
    ) -> Results:
        """Scores of all predictions on the encoded split; `rows` is the split before encoding."""

    def results_of_examples(
        self, task: TaskLike, outputs: np.ndarray, labels: Labels, index: Sequence[int]
    ) -> Results:
        """Scores and predictions of logits (n, C), or numbers (n, 1), of whole examples with these labels.

        Raises:
            LimbeckError: the type's outputs are of something else.
        """
        raise LimbeckError(
            f"task type {self.name} has no outputs of whole examples", "give a model"
        )

    def results_of_rows(self, task: TaskLike, outputs: np.ndarray, rows: Dataset) -> Results:
        """As `results_of_examples`, of loaded rows."""
        labels, index = rows[task.label_column][:], rows["index"][:]
        return self.results_of_examples(task, outputs, labels, index)

    def row_parts(
        self, task: TaskLike, metric: str, given: Sequence[Any], right: Sequence[Any]
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """By row a numerator and a denominator; their sums' ratio is the metric, 0 to 1.

        `given` and `right` are predictions and labels as `sampled_units` has them. None where the metric
        is no such ratio.
        """
        return None

    def sampled_units(self, task: TaskLike, kept: Kept) -> SampledUnits | None:
        """What intervals of the scores sample with replacement, of predictions that `results` kept: the rows, unless
        they do not stand for themselves. None where what was kept does not say which they are."""
        return SampledUnits("rows", kept)

    def sampled_score(self, task: TaskLike, metric: str, kept: Kept) -> SampledScore | None:
        """The metric of samples of the units, `kept` by unit; None of one that has no interval over them."""
        parts = self.row_parts(task, metric, kept["prediction"], kept["label"])
        return None if parts is None else ratio_of_sums(*parts)

    def predicts_numbers(self, task: TaskLike) -> bool:
        """Whether a row's prediction is a number, so that two models hardly ever predict the same."""
        return False

    @abstractmethod
    def baseline(self, task: TaskLike, labels: Labels) -> tuple[float, str]:
        """The best primary score of always making one prediction, 0 to 100, and that prediction.

        `labels` is the label column of some rows. Raises LimbeckError when there are none.
        """

    def baseline_of_rows(self, task: TaskLike, rows: Dataset) -> tuple[float, str]:
        """As `baseline`, of loaded rows."""
        return self.baseline(task, rows[task.label_column][:])
