"""One class, or one number, for an example. Part of `limbeck.tasks`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, List, Value
from scipy.special import expit, logit
from sklearn.metrics import accuracy_score, average_precision_score, f1_score
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PretrainedConfig

from limbeck import functional as F
from limbeck.support.errors import LimbeckError
from limbeck.tasks import metrics, rules
from limbeck.tasks.abstract_type import TASK_TYPES, TaskType, task_type
from limbeck.tasks.modality import Processor, encode_cut


class Classes(TaskType):
    """Classification, or regression where the head has one output."""

    row_layout = "one label"
    constant = True
    weighs_classes = True

    def outcomes(self, outputs: int, *, exclusive: bool = True) -> float:
        """The classes."""
        return outputs if outputs > 1 else 0

    def is_number(self, outputs: int) -> bool:
        """Of one output."""
        return outputs == 1

    def class_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """All, unless the one output is a number."""
        return tuple(names) if len(names) > 1 else ()

    def problem_of(self, regression: bool) -> str | None:
        """One class, or a number."""
        return "regression" if regression else "single_label_classification"

    def head_labels(self, task: rules.Labelled) -> tuple[str, ...]:
        """The classes, or one unnamed output."""
        return task.labels or ("LABEL_0",)

    def agreement_metrics(self, task: rules.TaskLike) -> tuple[str, ...]:
        """The share of equal classes, or of numbers rank correlation and error."""
        return ("rank_agreement", "relative_error") if task.regression else ("agreement",)

    def label_feature(self, task: rules.TaskLike) -> Any:
        """A class id, or a number."""
        return Value("float32" if task.regression else "int64")

    def named(self, task: rules.TaskLike, prediction: Any) -> str:
        """The class's name, or the number."""
        return task.labels[int(prediction)] if task.labels else str(prediction)

    def hard_label(
        self, logits: Tensor, batch: rules.Batch, rule: rules.HardRule = rules.PLAIN
    ) -> Tensor:
        """Cross-entropy of logits (B, C), or squared error of outputs (B, 1), with labels (B).

        The mean over the examples that have one: −100 is no class, NaN no number.
        """
        rules.need_labels(batch, self.label_names)
        labels = batch["labels"]
        if logits.shape[-1] == 1:
            return F.hard_mse(logits.squeeze(-1), labels)
        if labels.is_floating_point() and labels.dim() == 1:
            raise LimbeckError(
                f"labels are {labels.dtype}, and the head has {logits.shape[-1]} classes, whose ids are integers",
                'cast the column: dataset.cast_column("labels", Value("int64")); of a regression give a head '
                "of one output (num_labels=1)",
            )
        # A column of True and False is two classes; shares of the classes (B, C) are unchanged.
        labels = labels if labels.is_floating_point() else labels.long()
        return F.hard_cross_entropy(logits, labels, **rule._asdict())

    def balanced_weights(self, labels: rules.Labels, classes: int) -> Tensor:
        """By the number of rows of each class."""
        return balanced_over(np.asarray(labels), classes)

    def soft_label(
        self, student: Tensor, teacher: Tensor, batch: rules.Batch, rule: rules.SoftRule
    ) -> Tensor:
        """Soft cross-entropy or KL of logits (B, C); squared error of outputs (B, 1)."""
        weights = batch.get(rules.EXAMPLE_WEIGHTS)
        if student.shape[-1] == 1:
            scale = rule.temperature if rule.tempered else 1.0
            return F.mse(student / scale, teacher / scale, weights=weights)
        distance = F.soft_kl if rule.compare == "soft_kl" else F.soft_cross_entropy
        return distance(student, teacher, **rule.at, weights=weights)

    def results_of_rows(
        self, task: rules.TaskLike, outputs: np.ndarray, rows: Dataset
    ) -> rules.Results:
        """Scores and predictions of logits (n, C), or numbers (n, 1), of rows with labels.

        Probabilities are stored next to class ids with six decimals, if they are few enough for a JSON file.
        """
        right = rows.with_format("numpy")[task.label_column][:]
        given = outputs.reshape(-1) if task.regression else outputs.argmax(axis=1)
        kept: dict[str, list[Any]] = {
            "index": rows["index"][:],
            "prediction": given.tolist(),
            "label": right.tolist(),
        }
        scores = dict(task.scores(outputs, right))
        if not task.regression and outputs.size <= rules.MOST_PROBABILITIES:
            kept["probabilities"] = self.probabilities(outputs).round(6).tolist()
        return rules.Results(scores, kept)

    def sampled_score(
        self, task: rules.TaskLike, metric: str, kept: rules.Kept
    ) -> metrics.SampledScore | None:
        """Accuracy, F1 of the second of two classes, and Matthews' of classes; the correlations of numbers."""
        given, right = np.asarray(kept["prediction"]), np.asarray(kept["label"])
        if not task.labels:
            known = metric in metrics.CORRELATIONS
            return metrics.correlation(given, right, ranks=metric == "spearman") if known else None
        hits = given == right
        if metric == "matthews":
            return metrics.matthews_of_classes(given, right)
        if metric == "accuracy":
            return metrics.ratio_of_sums(hits, np.ones(len(hits)))
        if metric != "f1" or len(task.labels) != 2:
            return None
        meant = task.labels[1] if right.dtype.kind == "U" else 1
        return metrics.ratio_of_sums(
            2 * (hits & (right == meant)), (given == meant) * 1 + (right == meant)
        )

    def predicts_numbers(self, task: rules.TaskLike) -> bool:
        """Without classes."""
        return not task.labels

    def baseline(self, task: rules.TaskLike, labels: rules.Labels) -> tuple[float, str]:
        """The majority class; a constant has no correlation with anything."""
        return constant_class(task, np.asarray(labels))


def balanced_over(labels: np.ndarray, classes: int) -> Tensor:
    """Balanced weights (C,) of classes that exclude each other, by all class ids of the training rows."""
    known = labels[(labels >= 0) & (labels < classes)].astype(np.int64)
    return F.balanced_weights(torch.from_numpy(np.bincount(known, minlength=classes)))


def constant_class(task: rules.TaskLike, labels: np.ndarray) -> tuple[float, str]:
    """The best primary score, 0 to 100, of always giving one class, and that class's name.

    For accuracy this is the majority class. For F1 it may be another one, which a useful teacher
    must beat as well. A constant has no correlation with anything: regression gives 0.

    Raises LimbeckError when there are no labels.
    """
    rules.need_rows(task, labels)
    if task.regression:
        return 0.0, "the mean"
    scores, tried = [], range(len(task.labels))
    if metrics.plain_metric(task.primary) == "accuracy":  # of many classes, one each takes long
        majority = int(np.bincount(labels.astype(np.int64)).argmax())
        tried = range(majority, majority + 1)
    for number in tried:
        constant = np.zeros((len(labels), len(task.labels)))
        constant[:, number] = 1.0
        scores.append((task.scores(constant, labels)["primary"], task.labels[number]))
    return max(scores, key=lambda entry: entry[0])


# One class or one number for a text or a pair: GLUE.


@task_type("sentence")
class Sentence(Classes):
    """Classification or regression of text."""

    summary = "one class or one number for a text or a pair"
    auto = AutoModelForSequenceClassification
    whole_text = True

    def features(self, task: rules.TaskLike) -> dict[str, Any]:
        """Text, and a class id or a number."""
        label = Value("float32") if task.regression else ClassLabel(names=list(task.labels))
        return {column: Value("string") for column in task.text_columns} | {
            task.label_column: label
        }

    def encode(
        self, task: rules.TaskLike, tokenizer: Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """Pairs are cut token by token from the longer of the two texts."""
        return encode_texts(task, self.texts(task, rows), tokenizer, max_length, rows)


def encode_texts(
    task: rules.TaskLike,
    texts: list[list[str]],
    tokenizer: Processor,
    max_length: int,
    rows: rules.Rows,
) -> rules.Rows:
    """One text or two of each row, cut token by token from the longer; labels as they are."""
    columns = rules.columns_of(encode_cut(tokenizer, *texts, max_length=max_length), rows)
    if task.label_column in rows:
        columns["labels"] = rows[task.label_column]
    return columns


SENTENCE = TASK_TYPES.get("sentence")


# Any number of classes for a text or a pair, none included.
#
# Each class is a question of its own, answered by a sigmoid: Hugging Face's
# `multi_label_classification`. Labels are 0 and 1 for each class (C,), float32 as its loss wants
# them, and NaN in an unlabeled row.


METRICS_OF_SEVERAL = ("micro_f1", "macro_f1", "average_precision", "subset_accuracy")
NO_CLASS = "(no class)"
# Of a kept probability: thresholds and ranks are decided by less than shows.
_DIGITS = 9
# By how much a probability may miss 1.
_LEAST = 1e-9


@task_type("multi-label")
class MultiLabel(TaskType):
    """Classification of text where a row may be of several classes, or of none."""

    summary = "any number of classes for a text or a pair"
    auto = AutoModelForSequenceClassification
    whole_text = True
    problem_type = "multi_label_classification"
    row_layout = "several labels"
    constant = True
    weighs_classes = True

    def outcomes(self, outputs: int, *, exclusive: bool = True) -> float:
        """The classes, which do not exclude each other."""
        return 0 if exclusive else outputs

    def class_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """All."""
        return tuple(names)

    def over_classes(self, loss: Tensor, classes: int) -> Tensor:
        """It is one already."""
        return loss

    def written_label(self, task: rules.Labelled, label: Any) -> Any:
        """The names of a row's classes in id order; None for a row without a label."""
        if any(one != one for one in label):
            return None
        return [name for name, one in zip(task.labels, label, strict=True) if one == 1]

    def labels_of_outputs(self, task: rules.Labelled, outputs: np.ndarray) -> list[Any]:
        """0 or 1 for each class, by the usual threshold."""
        return [*(outputs >= np.array(rules.USUAL)).astype(np.float32)]

    def class_ids(self, task: rules.Labelled, values: Sequence[Any]) -> np.ndarray:
        """0 or 1 for each class of each row (n, C)."""
        return np.asarray(values, dtype=np.int64)

    def file_labels(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> tuple[list[Any], Any]:
        """The ids of a row's classes, by the task's thresholds."""
        chosen = self.probabilities(outputs) >= np.array(task.thresholds)
        ids = [np.flatnonzero(row).tolist() for row in chosen]
        return ids, List(ClassLabel(names=list(task.labels)))

    def logits_from(self, probabilities: np.ndarray) -> np.ndarray:
        """Each class's own."""
        found: np.ndarray = logit(np.minimum(probabilities, 1 - _LEAST))
        return found

    def tuned(self, task: Any, thresholds: Any) -> Any:
        """By default by one for all classes."""
        return replace(task, thresholds=thresholds or "one")

    def decided_by(self, task: Any, config: PretrainedConfig) -> Any:
        """With the model's thresholds, or ½ by default."""
        return replace(task, thresholds=rules.thresholds_of(config) or rules.USUAL)

    # ---- rows ----

    def features(self, task: rules.TaskLike) -> dict[str, Any]:
        """Text, and 0 or 1 for each class."""
        label = self.label_feature(task)
        return {column: Value("string") for column in task.text_columns} | {
            task.label_column: label
        }

    def label_feature(self, task: rules.TaskLike) -> Any:
        """As many numbers as there are classes."""
        return List(Value("float32"), length=len(task.labels))

    def encode(
        self, task: rules.TaskLike, tokenizer: Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """As a sentence or a pair is."""
        return encode_texts(task, self.texts(task, rows), tokenizer, max_length, rows)

    def check_rows(self, task: rules.TaskLike, rows: Dataset) -> list[str]:
        """Labels other than 0 and 1."""
        labels = np.asarray(rows.with_format("numpy")[task.label_column][:], dtype=np.float64)
        known = labels[~np.isnan(labels)]
        strange = np.unique(known[(known != 0) & (known != 1)])[:5].tolist()
        return [f"labels that are neither 0 nor 1: {strange}"] if strange else []

    def head_labels(self, task: rules.Labelled) -> tuple[str, ...]:
        """The classes."""
        return task.labels

    def named(self, task: rules.TaskLike, prediction: Any) -> str:
        """The names of a row's classes."""
        names = [name for name, one in zip(task.labels, prediction, strict=True) if one == 1]
        return ", ".join(names) or NO_CLASS

    def agreement_metrics(self, task: rules.TaskLike) -> tuple[str, ...]:
        """The share of rows with equal classes, and micro F1."""
        return ("agreement", "overlap")

    # ---- losses ----

    def hard_label(
        self, logits: Tensor, batch: rules.Batch, rule: rules.HardRule = rules.PLAIN
    ) -> Tensor:
        """Binary cross-entropy of logits (B, C) with labels of 0 and 1 (B, C), mean over classes and rows.

        Raises:
            LimbeckError: labels of another shape, such as a class id.
        """
        rules.need_labels(batch, self.label_names)
        if batch["labels"].shape != logits.shape:
            raise LimbeckError(
                f"labels have shape {tuple(batch['labels'].shape)}, and the student has {logits.shape[-1]} classes "
                "of which a row may have several",
                "give a 0 or 1 for each class, or take problem_type='multi_label_classification' out of the student's "
                "config",
            )
        labels = batch["labels"].to(torch.promote_types(batch["labels"].dtype, torch.float32))
        weights, gamma = rule
        return F.binary_cross_entropy(logits, labels, positive_weights=weights, gamma=gamma)

    def balanced_weights(self, labels: rules.Labels, classes: int) -> Tensor:
        """Weight of the rows of each class: in total as much as all other rows."""
        values = np.asarray(labels, dtype=np.float64).reshape(-1, classes)
        known = values[~np.isnan(values).any(axis=1)]
        return F.balanced_positive_weights(torch.from_numpy(known.sum(axis=0)).long(), len(known))

    def soft_label(
        self, student: Tensor, teacher: Tensor, batch: rules.Batch, rule: rules.SoftRule
    ) -> Tensor:
        """Binary KL or cross-entropy of both sides' logits (B, C), mean over classes and rows."""
        distance = F.binary_kl if rule.compare == "soft_kl" else F.binary_soft_cross_entropy
        return distance(student, teacher, **rule.at, weights=batch.get(rules.EXAMPLE_WEIGHTS))

    # ---- outputs and scores ----

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """A sigmoid's, each class separately."""
        found: np.ndarray = expit(logits.astype(np.float64))
        return found

    def results_of_rows(
        self, task: rules.TaskLike, outputs: np.ndarray, rows: Dataset
    ) -> rules.Results:
        """Scores and predictions of logits (n, C) of rows with labels of 0 and 1 (n, C).

        Where thresholds are tuned on these rows, each part of them is scored with thresholds from the other parts.

        Raises:
            LimbeckError: no rows, outputs that are not finite, or of another number of classes.
        """
        labels = np.asarray(rows.with_format("numpy")[task.label_column][:], dtype=np.float64)
        rules.need_rows(task, labels)
        rules.check_outputs(task, outputs, labels.shape)
        probabilities = self.probabilities(outputs)
        thresholds = rules.decided(task.thresholds, probabilities, labels)
        by_row = rules.cross_decided(task.thresholds, probabilities, labels)
        given = (probabilities >= by_row).astype(np.int64)
        scores = _scores(task, labels, given, probabilities)
        kept: dict[str, list[Any]] = {
            "index": rows["index"][:],
            "prediction": given.tolist(),
            "label": labels.astype(np.int64).tolist(),
        }
        if outputs.size <= rules.MOST_PROBABILITIES:
            kept["probabilities"] = probabilities.round(_DIGITS).tolist()
        scores["primary"] = metrics.mean_of(task.primary, scores)
        return rules.Results(scores, kept, tuple(thresholds.tolist()))

    def sampled_score(
        self, task: rules.TaskLike, metric: str, kept: rules.Kept
    ) -> metrics.SampledScore | None:
        """Micro F1, equal rows, means over classes; average precision where probabilities are kept."""
        given, right = np.asarray(kept["prediction"]), np.asarray(kept["label"])
        if metric == "macro_f1":
            return metrics.mean_f1(given, right)
        if metric == "average_precision" and "probabilities" in kept:
            return metrics.mean_average_precision(np.asarray(kept["probabilities"]), right)
        if metric == "micro_f1":
            both = given.sum(axis=1) + right.sum(axis=1)
            return metrics.ratio_of_sums(2 * (given * right).sum(axis=1), both)
        if metric in ("subset_accuracy", "accuracy"):
            return metrics.ratio_of_sums((given == right).all(axis=1), np.ones(len(given)))
        return None

    def baseline(self, task: rules.TaskLike, labels: rules.Labels) -> tuple[float, str]:
        """The best set of classes to give every row: the commonest ones, as many as score best."""
        rules.need_rows(task, labels)
        values = np.asarray(labels, dtype=np.float64)
        best = (-1.0, NO_CLASS)
        commonest = np.argsort(-values.sum(axis=0), kind="stable")
        for count in range(1, len(task.labels) + 1):
            constant = np.zeros_like(values)
            constant[:, commonest[:count]] = 1
            scores = _scores(task, values, constant, constant)
            names = ", ".join(task.labels[place] for place in sorted(commonest[:count]))
            best = max(
                best, (metrics.mean_of(task.primary, scores), names), key=lambda entry: entry[0]
            )
        return best


def _scores(
    task: rules.TaskLike, labels: np.ndarray, given: np.ndarray, probabilities: np.ndarray
) -> dict[str, float]:
    """The task's metrics; of a teacher's predictions as labels the agreement with them."""
    scores = several_scores(labels, given, probabilities)
    if not metrics.is_agreement(task.primary):
        return scores
    plain = {"accuracy": scores["subset_accuracy"], "f1": scores["micro_f1"]}
    return metrics.as_agreement(plain, task.metrics)


def several_scores(
    labels: np.ndarray, given: np.ndarray, probabilities: np.ndarray
) -> dict[str, float]:
    """Scores, 0 to 100, of predictions of 0 and 1 (n, C) and probabilities (n, C).

    Means over classes are over classes with rows; predictions of the others still count as errors.
    """
    present = np.flatnonzero(labels.any(axis=0))
    each = f1_score(labels, given, average=None, zero_division=0)[present]
    ranked = [average_precision_score(labels[:, c], probabilities[:, c]) for c in present]
    found = (
        f1_score(labels, given, average="micro", zero_division=0),
        each.mean() if len(present) else 0.0,
        np.mean(ranked) if ranked else 0.0,
        accuracy_score(labels, given),
    )
    return {name: 100 * float(value) for name, value in zip(METRICS_OF_SEVERAL, found, strict=True)}


MULTI_LABEL = TASK_TYPES.get("multi-label")
