"""The scores of a split's predictions of classes, all of them, computed once. Part of `limbeck.evaluation`.

Counts and F1 are scikit-learn's. What is read is labels, class ids and probabilities, so that no model runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.spatial.distance import jensenshannon
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    multilabel_confusion_matrix,
    precision_recall_fscore_support,
)

from limbeck.evaluation.calibration import (
    calibration_error,
    disagreements,
    reliability,
    reliability_facts,
    unbiased_error,
    worst_disagreements,
)
from limbeck.evaluation.class_predictions import (
    ClassPredictions,
    Predictions,
    class_labels,
    class_predictions,
    has_class_scores,
)
from limbeck.records import (
    AnswerCounts,
    ClassFacts,
    ClassificationScores,
    CoverageFacts,
    Disagreement,
    ModelScores,
)
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


# The scores of predictions of any number of classes a row, computed once. A row is right with all
# its classes right; calibration is that of every class of every row by itself, each a question
# with the answers yes and no.


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
    scores = [_model_of_several(labels, *pair) for pair in zip(given, models, strict=True)]
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


def _model_of_several(labels: np.ndarray, given: np.ndarray, model: Predictions) -> ModelScores:
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


# What is counted of predictions of classes, alike of one class a row and of several. Counts and F1
# are scikit-learn's, which takes class ids (n,) and answers of 0 and 1 for each class (n, C).


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
