"""The scores of a split's predictions of classes, all of them, computed once. Part of `limbeck.evaluation`.

Counts and F1 are scikit-learn's. What is read is labels, class ids and probabilities, so that no model runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.spatial.distance import jensenshannon
from sklearn.metrics import accuracy_score, confusion_matrix

from limbeck.evaluation.class_counts import (
    add_calibration,
    by_class,
    class_facts,
    coverage,
    mean_of_present,
)
from limbeck.evaluation.class_predictions import (
    ClassPredictions,
    Predictions,
    class_labels,
    class_predictions,
    has_class_scores,
)
from limbeck.evaluation.disagreements import disagreements
from limbeck.evaluation.several_class_scores import several_class_scores
from limbeck.records import ClassificationScores, ModelScores
from limbeck.tasks import Task
from limbeck.tasks.metrics import is_agreement

# A matrix of more cannot be read, and fills a record.
_MOST_CLASSES = 50


def task_classification(
    task: Task,
    student: Predictions,
    teacher: Predictions | None = None,
    texts: Mapping[str, Sequence[Any]] | None = None,
) -> ClassificationScores | None:
    """The scores of what a task type keeps of a split; None of a task without classes.

    Args:
        task: whose classes are meant.
        student: its predictions.
        teacher: its predictions of the same rows, where they are known.
        texts: the rows' text columns, to be kept beside disagreements; None where texts are not to be kept.
    """
    if not has_class_scores(task):
        return None
    if task.kind.several_classes:
        return several_class_scores(task, student, teacher, texts)
    labels = class_labels(task, student)
    own = class_predictions(task, student)
    other = None if teacher is None else class_predictions(task, teacher)
    if is_agreement(
        task.primary
    ):  # how sure a student is says nothing of how often its teacher agrees
        found = classification_scores(task.labels, labels, ClassPredictions(own.ids))
        found.labels = "teacher"
        found.agreement = found.student.accuracy
    else:
        found = classification_scores(task.labels, labels, own, other)
    if other is not None:
        found.divergence = _divergence(own, other)
    # Words of a tagger have no row of their own to show.
    if other is not None and task.kind.labels_examples:
        found.disagreements = disagreements(task.labels, labels, own, other, texts=texts)
    return found


def _divergence(one: ClassPredictions, other: ClassPredictions) -> float | None:
    """Mean Jensen-Shannon divergence, in bits."""
    if one.probabilities is None or other.probabilities is None:
        return None
    # SciPy's is a distance: the root of the divergence.
    return float(
        np.mean(jensenshannon(one.probabilities, other.probabilities, base=2, axis=1) ** 2)
    )


def classification_scores(
    names: Sequence[str],
    labels: np.ndarray,
    student: ClassPredictions,
    teacher: ClassPredictions | None = None,
) -> ClassificationScores:
    """Everything that is counted of predictions of classes, but for examples.

    Args:
        names: the classes in the order of their ids.
        labels: class ids (n,).
        student: predictions of the n rows.
        teacher: likewise.

    Raises:
        ValueError: no rows, predictions of another number of rows, or labels that are no class.
    """
    models = [student] if teacher is None else [student, teacher]
    if not len(labels) or any(len(model.ids) != len(labels) for model in models):
        raise ValueError(
            f"{[len(model.ids) for model in models]} predictions, {len(labels)} labels"
        )
    if labels.min() < 0 or labels.max() >= len(names):
        raise ValueError(f"labels outside 0..{len(names) - 1}")
    each = [by_class(labels, model.ids, len(names)) for model in models]
    rows = np.bincount(labels, minlength=len(names))
    scores = [
        _model(labels, model, len(names), mean_of_present(f1, rows))
        for model, (_, _, f1) in zip(models, each, strict=True)
    ]
    return ClassificationScores(
        rows=len(labels),
        names=list(names),
        student=scores[0],
        teacher=None if teacher is None else scores[1],
        classes=class_facts(names, rows, each),
        agreement=None if teacher is None else 100 * float((student.ids == teacher.ids).mean()),
    )


def _model(
    labels: np.ndarray, model: ClassPredictions, classes: int, macro_f1: float
) -> ModelScores:
    right = model.ids == labels
    scores = ModelScores(
        accuracy=100 * float(accuracy_score(labels, model.ids)),
        macro_f1=macro_f1,
        confusion=_confusion(labels, model.ids, classes),
    )
    confidence = model.confidence
    if confidence is not None:
        add_calibration(scores, confidence, right)
        scores.coverage = coverage(confidence, right)
    return scores


def _confusion(labels: np.ndarray, given: np.ndarray, classes: int) -> list[list[int]] | None:
    if classes > _MOST_CLASSES:
        return None
    wide = confusion_matrix(labels, given, labels=np.arange(classes + 1))[:classes]
    # The last column: predictions that name no class, which only generated text can be.
    return (wide if wide[:, classes].any() else wide[:, :classes]).tolist()
