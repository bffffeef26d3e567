"""The scores of predictions of any number of classes a row, computed once. Part of `limbeck.evaluation`.

Counts and F1 are scikit-learn's. A row is right with all its classes right; calibration is that of every class
of every row by itself, each a question with the answers yes and no.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import f1_score, precision_recall_fscore_support

from limbeck.evaluation.calibration import calibration_error, reliability, reliability_facts
from limbeck.evaluation.class_predictions import Predictions
from limbeck.evaluation.disagreements import MOST, shown_texts
from limbeck.reporting.records import (
    ClassFacts,
    ClassificationScores,
    Disagreement,
    ModelScores,
)
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
    rows = labels.sum(axis=0)
    by_class = [_by_class(labels, one) for one in given]
    scores = [_model(labels, *pair) for pair in zip(given, models, strict=True)]
    found = ClassificationScores(
        rows=len(labels),
        names=list(task.labels),
        student=scores[0],
        teacher=None if teacher is None else scores[1],
        classes=[
            _class(name, int(rows[at]), [one[:, at] for one in by_class])
            for at, name in enumerate(task.labels)
            if rows[at]
        ],
    )
    if teacher is not None:
        found.agreement = 100 * float((given[0] == given[1]).all(axis=1).mean())
        found.disagreements = _disagreements(task, student, teacher, texts)
    return found


def _by_class(labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Precision, recall and F1 (3, C), 0 to 100; precision is nan of a class that is never predicted."""
    precision, recall, _, _ = precision_recall_fscore_support(labels, given, zero_division=np.nan)
    f1 = f1_score(labels, given, average=None, zero_division=0)
    return 100 * np.stack([precision, recall, f1])


def _class(name: str, rows: int, models: Sequence[np.ndarray]) -> ClassFacts:
    facts = ClassFacts(name=name, rows=rows)
    for prefix, values in zip(("", "teacher_"), models, strict=False):
        for score, value in zip(("precision", "recall", "f1"), values, strict=True):
            setattr(facts, prefix + score, None if np.isnan(value) else float(value))
    return facts


def _model(labels: np.ndarray, given: np.ndarray, model: Predictions) -> ModelScores:
    present = np.flatnonzero(labels.any(axis=0))
    f1 = f1_score(labels, given, average=None, zero_division=0)[present]
    scores = ModelScores(
        accuracy=100 * float((labels == given).all(axis=1).mean()),
        macro_f1=100 * float(f1.mean()) if len(present) else 0.0,
        micro_f1=100 * float(f1_score(labels, given, average="micro", zero_division=0)),
    )
    known = model.get("probabilities")
    if known is not None:
        likely = np.asarray(known, dtype=np.float64).reshape(-1)
        # Of the answer that is likelier, whichever the thresholds choose.
        yes = likely >= 0.5
        right = (yes == labels.reshape(-1).astype(bool)).astype(np.float64)
        points = reliability(np.where(yes, likely, 1 - likely), right)
        scores.calibration_error = 100 * calibration_error(points)
        scores.reliability = reliability_facts(points)
    return scores


def _disagreements(
    task: Task,
    student: Predictions,
    teacher: Predictions,
    texts: Mapping[str, Sequence[Any]] | None,
) -> list[Disagreement]:
    """Rows with other classes, those with the largest mean difference of the classes' probabilities first."""
    ours, theirs = (np.asarray(side["prediction"]) for side in (student, teacher))
    differing = np.flatnonzero((ours != theirs).any(axis=1))
    distance = None
    if "probabilities" in student and "probabilities" in teacher:
        sides = (np.asarray(side["probabilities"]) for side in (student, teacher))
        distance = np.abs(np.subtract(*sides)).mean(axis=1)
        differing = differing[np.argsort(-distance[differing], kind="stable")]
    return [
        Disagreement(
            index=at,
            label=task.kind.named(task, student["label"][at]),
            student=task.kind.named(task, ours[at]),
            teacher=task.kind.named(task, theirs[at]),
            distance=None if distance is None else float(distance[at]),
            text=None if texts is None else shown_texts(texts, at),
        )
        for at in differing[:MOST].tolist()
    ]
