"""The scores of a split's predictions of classes, all of them, computed once. Part of `limbeck.evaluation`.

Counts and F1 are scikit-learn's. What is read is labels, class ids and probabilities, so that no model runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

from limbeck.evaluation.calibration import calibration_error, reliability, reliability_facts
from limbeck.evaluation.class_predictions import (
    ClassPredictions,
    Predictions,
    class_labels,
    class_predictions,
    has_class_scores,
)
from limbeck.evaluation.disagreements import disagreements
from limbeck.evaluation.several_class_scores import several_class_scores
from limbeck.reporting.records import (
    ClassFacts,
    ClassificationScores,
    CoverageFacts,
    ModelScores,
)
from limbeck.tasks import Task

COVERAGES = (0.5, 0.8)
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
    found = classification_scores(task.labels, labels, own, other)
    # Words of a tagger have no row of their own to show.
    if other is not None and task.kind.labels_examples:
        found.disagreements = disagreements(task.labels, labels, own, other, texts=texts)
    return found


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
    by_class = [_by_class(labels, model, len(names)) for model in models]
    present = np.bincount(labels, minlength=len(names))[: len(names)]
    scores = [
        _model(labels, model, len(names), float(f1[present > 0].mean()))
        for model, (_, _, f1) in zip(models, by_class, strict=True)
    ]
    return ClassificationScores(
        rows=len(labels),
        names=list(names),
        student=scores[0],
        teacher=None if teacher is None else scores[1],
        classes=[
            _class(name, int(present[at]), [[part[at] for part in one] for one in by_class])
            for at, name in enumerate(names)
            if present[at]
        ],
        agreement=None if teacher is None else 100 * float((student.ids == teacher.ids).mean()),
    )


def _by_class(labels: np.ndarray, model: ClassPredictions, count: int) -> list[np.ndarray]:
    """Precision, recall and F1 of each class, 0 to 100; precision is nan of one that is never predicted."""
    ids = np.arange(count)
    precision, recall, _, _ = precision_recall_fscore_support(
        labels, model.ids, labels=ids, zero_division=np.nan
    )
    f1 = precision_recall_fscore_support(labels, model.ids, labels=ids, zero_division=0)[2]
    return [100 * np.asarray(part, dtype=np.float64) for part in (precision, recall, f1)]


def _class(name: str, rows: int, models: Sequence[Sequence[float]]) -> ClassFacts:
    facts = ClassFacts(name=name, rows=rows)
    for prefix, values in zip(("", "teacher_"), models, strict=False):
        for score, value in zip(("precision", "recall", "f1"), values, strict=True):
            setattr(facts, prefix + score, None if np.isnan(value) else float(value))
    return facts


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
        points = reliability(confidence, right.astype(np.float64))
        scores.calibration_error = 100 * calibration_error(points)
        scores.reliability = reliability_facts(points)
        scores.coverage = [covered(confidence, right, share) for share in COVERAGES]
    return scores


def _confusion(labels: np.ndarray, given: np.ndarray, classes: int) -> list[list[int]] | None:
    if classes > _MOST_CLASSES:
        return None
    wide = confusion_matrix(labels, given, labels=np.arange(classes + 1))[:classes]
    # The last column: predictions that name no class, which only generated text can be.
    return (wide if wide[:, classes].any() else wide[:, :classes]).tolist()


def covered(confidence: np.ndarray, right: np.ndarray, share: float) -> CoverageFacts:
    """Accuracy of the `share` of rows with the highest confidence (n,); `right` (n,) says which are right.

    Among rows of equal confidence none comes first: where only some of them still count, all of them count in
    part, so that the order of the rows plays no role.
    """
    rows = max(1, math.ceil(share * len(confidence) - 1e-9))
    lowest = np.sort(confidence)[::-1][rows - 1]
    above, level = confidence > lowest, confidence == lowest
    left = rows - int(above.sum())
    hits = right[above].sum() + left * right[level].mean()
    return CoverageFacts(
        coverage=share,
        rows=rows,
        accuracy=100 * float(hits) / rows,
        confidence=float(lowest),
        tied=int(level.sum()) if left < level.sum() else 0,
    )
