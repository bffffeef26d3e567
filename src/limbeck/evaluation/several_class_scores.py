"""The scores of predictions of any number of classes a row, computed once. Part of `limbeck.evaluation`.

A row is right with all its classes right; calibration is that of every class of every row by itself, each a question
with the answers yes and no.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from limbeck.evaluation.class_counts import (
    add_calibration,
    answer_counts,
    by_class,
    class_facts,
    coverage,
    mean_of_present,
)
from limbeck.evaluation.class_predictions import Predictions
from limbeck.evaluation.disagreements import worst_disagreements
from limbeck.records import ClassificationScores, Disagreement, ModelScores
from limbeck.tasks import Task


def several_class_scores(
    task: Task,
    student: Predictions,
    teacher: Predictions | None,
    texts: Mapping[str, Sequence[Any]] | None,
) -> ClassificationScores:
    """Everything that is counted of predictions of 0 and 1 for each class; arguments as of `task_classification`."""
    labels = np.asarray(student["label"], dtype=np.int64)
    models = [student] if teacher is None else [student, teacher]
    given = [np.asarray(model["prediction"], dtype=np.int64) for model in models]
    scores = [_model(labels, *pair) for pair in zip(given, models, strict=True)]
    found = ClassificationScores(
        rows=len(labels),
        names=list(task.labels),
        student=scores[0],
        teacher=None if teacher is None else scores[1],
        classes=class_facts(
            task.labels,
            labels.sum(axis=0),
            [by_class(labels, one, len(task.labels)) for one in given],
            [answer_counts(labels, one) for one in given],
        ),
    )
    if teacher is not None:
        found.agreement = 100 * float((given[0] == given[1]).all(axis=1).mean())
        found.disagreements = _disagreements(task, student, teacher, texts)
    return found


def row_confidence(model: Predictions) -> np.ndarray | None:
    """How probable a row's answers (n, C) are all together (n,), if each class is by itself: a product."""
    known = model.get("probabilities")
    if known is None:
        return None
    likely = np.asarray(known, dtype=np.float64)
    return np.where(np.asarray(model["prediction"]) == 1, likely, 1 - likely).prod(axis=1)


def _model(labels: np.ndarray, given: np.ndarray, model: Predictions) -> ModelScores:
    right = (labels == given).all(axis=1)
    f1 = by_class(labels, given, labels.shape[1])[2]
    scores = ModelScores(
        accuracy=100 * float(right.mean()),
        macro_f1=mean_of_present(f1, labels.sum(axis=0)),
        micro_f1=100 * float(f1_score(labels, given, average="micro", zero_division=0)),
    )
    confidence = row_confidence(model)
    if confidence is not None:
        likely = np.asarray(model["probabilities"], dtype=np.float64).reshape(-1)
        # Of the answer that is likelier, whichever the thresholds choose.
        yes = likely >= 0.5
        add_calibration(
            scores, np.where(yes, likely, 1 - likely), yes == labels.reshape(-1).astype(bool)
        )
        scores.coverage = coverage(confidence, right)
    return scores


def _disagreements(
    task: Task,
    student: Predictions,
    teacher: Predictions,
    texts: Mapping[str, Sequence[Any]] | None,
) -> list[Disagreement]:
    """Rows with other classes, those with the largest mean difference of the classes' probabilities first."""
    ours, theirs = (np.asarray(side["prediction"]) for side in (student, teacher))
    distance = None
    if "probabilities" in student and "probabilities" in teacher:
        sides = (np.asarray(side["probabilities"]) for side in (student, teacher))
        distance = np.abs(np.subtract(*sides)).mean(axis=1)

    def named(at: int) -> tuple[str, str, str]:
        label, own, other = (
            task.kind.named(task, side[at]) for side in (student["label"], ours, theirs)
        )
        return label, own, other

    return worst_disagreements(
        (ours != theirs).any(axis=1),
        named,
        distance=distance,
        confidence=(row_confidence(student), row_confidence(teacher)),
        texts=texts,
    )
