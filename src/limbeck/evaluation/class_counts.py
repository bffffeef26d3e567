"""What is counted of predictions of classes, alike of one class a row and of several. Part of `limbeck.evaluation`.

Counts and F1 are scikit-learn's, which takes class ids (n,) and answers of 0 and 1 for each class (n, C).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sklearn.metrics import multilabel_confusion_matrix, precision_recall_fscore_support

from limbeck.evaluation.calibration import (
    calibration_error,
    reliability,
    reliability_facts,
    unbiased_error,
)
from limbeck.records import AnswerCounts, ClassFacts, CoverageFacts, ModelScores

COVERAGES = (0.5, 0.8)


def by_class(labels: np.ndarray, given: np.ndarray, count: int) -> np.ndarray:
    """Precision, recall and F1 of each class (3, C), 0 to 100; precision is nan of one that is never predicted."""
    ids = np.arange(count)
    precision, recall, _, _ = precision_recall_fscore_support(
        labels, given, labels=ids, zero_division=np.nan
    )
    f1 = precision_recall_fscore_support(labels, given, labels=ids, zero_division=0)[2]
    return 100 * np.stack([precision, recall, f1]).astype(np.float64)


def answer_counts(labels: np.ndarray, given: np.ndarray) -> list[AnswerCounts]:
    """Of answers of 0 and 1 (n, C) those of each class, by what is right."""
    return [
        AnswerCounts(
            true_positives=int(tp),
            false_positives=int(fp),
            false_negatives=int(fn),
            true_negatives=int(tn),
        )
        for (tn, fp), (fn, tp) in multilabel_confusion_matrix(labels, given)
    ]


def class_facts(
    names: Sequence[str],
    rows: np.ndarray,
    models: Sequence[np.ndarray],
    counts: Sequence[Sequence[AnswerCounts]] = (),
) -> list[ClassFacts]:
    """The classes that have rows.

    Args:
        names: in the order of their ids.
        rows: of each class (C,).
        models: `by_class` of the student, and of the teacher where it is known.
        counts: likewise `answer_counts`, of several labels a row.
    """
    found = []
    for at in np.flatnonzero(rows).tolist():
        facts = ClassFacts(name=names[at], rows=int(rows[at]))
        for prefix, values in zip(("", "teacher_"), models, strict=False):
            for score, value in zip(("precision", "recall", "f1"), values[:, at], strict=True):
                setattr(facts, prefix + score, None if np.isnan(value) else float(value))
        for prefix, answers in zip(("", "teacher_"), counts, strict=False):
            setattr(facts, f"{prefix}counts", answers[at])
        found.append(facts)
    return found


def mean_of_present(values: np.ndarray, rows: np.ndarray) -> float:
    """The mean of a score (C,) over the classes that have rows; 0 where none has."""
    return float(values[rows > 0].mean()) if (rows > 0).any() else 0.0


def add_calibration(scores: ModelScores, confidence: np.ndarray, right: np.ndarray) -> None:
    """How far answers' probabilities (m,) can be trusted; `right` (m,) says which are right."""
    points = reliability(confidence, right.astype(np.float64))
    scores.calibration_error = 100 * calibration_error(points)
    scores.calibration_error_of_chance = 100 * unbiased_error(confidence)
    scores.reliability = reliability_facts(points)


def coverage(confidence: np.ndarray, right: np.ndarray) -> list[CoverageFacts]:
    """`covered`, of every share that is recorded."""
    return [covered(confidence, right, share) for share in COVERAGES]


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
