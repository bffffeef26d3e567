"""One class, or one number, for a whole example. Part of `limbeck.tasks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Value
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from limbeck import functional as F
from limbeck.support.errors import LimbeckError
from limbeck.tasks.abstract_type import TASK_TYPES, TaskType, task_type
from limbeck.tasks.long_texts import encode_cut
from limbeck.tasks.metrics import CORRELATIONS, SampledScore, correlation, matthews_of_classes
from limbeck.tasks.modality import Processor
from limbeck.tasks.rules import (
    CUT,
    EXAMPLE_WEIGHTS,
    PLAIN,
    HardRule,
    SoftRule,
    need_labels,
    need_rows,
    truncated,
)
from limbeck.tasks.task_like import (
    MOST_PROBABILITIES,
    Batch,
    Kept,
    Labelled,
    Labels,
    Results,
    Rows,
    TaskLike,
)


class Classes(TaskType):
    """Classification, or regression where the head has one output."""

    has_classes = True
    constant = True
    weighs_classes = True

    def head_labels(self, task: Labelled) -> tuple[str, ...]:
        """The classes, or one unnamed output."""
        return task.labels or ("LABEL_0",)

    def agreement_metrics(self, task: TaskLike) -> tuple[str, ...]:
        """The share of equal classes, or of numbers rank correlation and error."""
        return ("rank_agreement", "relative_error") if task.regression else ("agreement",)

    def label_feature(self, task: TaskLike) -> Any:
        """A class id, or a number."""
        return Value("float32" if task.regression else "int64")

    def named(self, task: TaskLike, prediction: Any) -> str:
        """The class's name, or the number."""
        return task.labels[int(prediction)] if task.labels else str(prediction)

    def hard_label(self, logits: Tensor, batch: Batch, rule: HardRule = PLAIN) -> Tensor:
        """Cross-entropy of logits (B, C), or squared error of outputs (B, 1), with labels (B).

        The mean over the examples that have one: −100 is no class, NaN no number.
        """
        need_labels(batch, self.label_names)
        labels = batch["labels"]
        if logits.shape[-1] == 1:
            return F.hard_mse(logits.squeeze(-1), labels)
        if labels.is_floating_point() and labels.dim() == 1:
            raise LimbeckError(
                f"labels are {labels.dtype}, and the head has {logits.shape[-1]} classes, whose ids are whole "
                "numbers",
                'cast the column: dataset.cast_column("labels", Value("int64")); of a regression give a head '
                "of one output (num_labels=1)",
            )
        # A column of True and False is two classes; shares of the classes (B, C) stay what they are.
        labels = labels if labels.is_floating_point() else labels.long()
        return F.hard_cross_entropy(logits, labels, **rule._asdict())

    def balanced_weights(self, labels: Labels, classes: int) -> Tensor:
        """By the number of rows of each class."""
        return balanced_over(np.asarray(labels), classes)

    def soft_label(self, student: Tensor, teacher: Tensor, batch: Batch, rule: SoftRule) -> Tensor:
        """Soft cross-entropy or KL of logits (B, C); squared error of outputs (B, 1)."""
        weights = batch.get(EXAMPLE_WEIGHTS)
        if student.shape[-1] == 1:
            scale = rule.temperature if rule.tempered else 1.0
            return F.mse(student / scale, teacher / scale, weights=weights)
        distance = F.soft_kl if rule.compare == "soft_kl" else F.soft_cross_entropy
        return distance(student, teacher, **rule.at, weights=weights)

    def compact_outputs(self, model: PreTrainedModel, batch: Batch, logits: Tensor) -> Tensor:
        """The logits (B, C)."""
        return logits

    def results(
        self,
        task: TaskLike,
        outputs: np.ndarray,
        encoded: Dataset,
        rows: Dataset,
        tokenizer: Processor,
    ) -> Results:
        """The task's own metrics; class ids with probabilities, or numbers, by example."""
        return self.results_of_examples(task, outputs, encoded["labels"][:], encoded["index"][:])

    def results_of_examples(
        self, task: TaskLike, outputs: np.ndarray, labels: Labels, index: Sequence[int]
    ) -> Results:
        """Scores and predictions of logits (n, C), or numbers (n, 1), of rows with these labels.

        Probabilities stand beside class ids with six decimals, as long as they are few enough for a file of JSON.
        """
        right = np.asarray(labels)
        given = outputs.reshape(-1) if task.regression else outputs.argmax(axis=1)
        kept: dict[str, list[Any]] = {
            "index": list(index),
            "prediction": given.tolist(),
            "label": right.tolist(),
        }
        scores = dict(task.scores(outputs, right))
        if not task.regression and outputs.size <= MOST_PROBABILITIES:
            kept["probabilities"] = self.probabilities(outputs).round(6).tolist()
        return Results(scores, kept)

    def row_parts(
        self, task: TaskLike, metric: str, given: Sequence[Any], right: Sequence[Any]
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Accuracy; and F1 of the second of two classes: 2 hits over what was given and what is right."""
        if not task.labels:
            return None
        chosen, correct = np.asarray(given), np.asarray(right)
        hits = chosen == correct
        if metric == "accuracy":
            return hits, np.ones(len(hits))
        if metric != "f1" or len(task.labels) != 2:
            return None
        meant = task.labels[1] if correct.dtype.kind == "U" else 1
        return 2 * (hits & (correct == meant)), (chosen == meant) * 1 + (correct == meant)

    def sampled_score(self, task: TaskLike, metric: str, kept: Kept) -> SampledScore | None:
        """Beside sums over rows Matthews' of classes, and the correlations of numbers."""
        given, right = kept["prediction"], kept["label"]
        if metric == "matthews" and task.labels:
            return matthews_of_classes(np.asarray(given), np.asarray(right))
        if metric in CORRELATIONS and not task.labels:
            return correlation(given, right, ranks=metric == "spearman")
        return super().sampled_score(task, metric, kept)

    def predicts_numbers(self, task: TaskLike) -> bool:
        """Without classes."""
        return not task.labels

    def baseline(self, task: TaskLike, labels: Labels) -> tuple[float, str]:
        """The majority class; a constant has no correlation with anything."""
        return constant_class(task, np.asarray(labels))


def balanced_over(labels: np.ndarray, classes: int) -> Tensor:
    """Balanced weights (C,) of classes that exclude each other, by all class ids of the training rows."""
    known = labels[(labels >= 0) & (labels < classes)].astype(np.int64)
    return F.balanced_weights(torch.from_numpy(np.bincount(known, minlength=classes)))


def constant_class(task: TaskLike, labels: np.ndarray) -> tuple[float, str]:
    """The best primary score, 0 to 100, of always giving one class, and that class's name.

    For accuracy this is the majority class. For F1 it may be another one, which a useful teacher
    must beat as well. A constant has no correlation with anything: regression gives 0.

    Raises LimbeckError when there are no labels.
    """
    need_rows(task, labels)
    if task.regression:
        return 0.0, "the mean"
    scores = []
    for number, name in enumerate(task.labels):
        constant = np.zeros((len(labels), len(task.labels)))
        constant[:, number] = 1.0
        scores.append((task.scores(constant, labels)["primary"], name))
    return max(scores, key=lambda entry: entry[0])


# One class or one number for a text or a pair: GLUE.


@task_type("sentence")
class Sentence(Classes):
    """Classification or regression of text."""

    summary = "one class or one number for a text or a pair"
    auto = AutoModelForSequenceClassification
    whole_text = True

    def features(self, task: TaskLike) -> dict[str, Any]:
        """Text, and a class id or a number."""
        label = Value("float32") if task.regression else ClassLabel(names=list(task.labels))
        return {column: Value("string") for column in task.text_columns} | {
            task.label_column: label
        }

    def encode(self, task: TaskLike, tokenizer: Processor, max_length: int, rows: Rows) -> Rows:
        """Pairs are cut token by token from the longer of the two texts."""
        return encode_texts(task, self.texts(task, rows), tokenizer, max_length, rows)


def encode_texts(
    task: TaskLike, texts: list[list[str]], tokenizer: Processor, max_length: int, rows: Rows
) -> Rows:
    """One text or two of each row, cut token by token from the longer; labels as they are."""
    encoded = encode_cut(tokenizer, *texts, max_length=max_length)
    columns: Rows = dict(encoded)
    columns["index"] = rows["index"]
    columns[CUT] = truncated(encoded)
    if task.label_column in rows:
        columns["labels"] = rows[task.label_column]
    return columns


SENTENCE = TASK_TYPES.get("sentence")
