"""The scores of a split's predictions of classes, all of them, computed once. Part of `limbeck.evaluation`.

Counts and F1 are scikit-learn's. The inputs are labels, class ids and probabilities, so that no model runs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.spatial.distance import jensenshannon
from sklearn import metrics

from limbeck.evaluation.calibration import calibration_error, reliability, unbiased_error
from limbeck.evaluation.class_predictions import (
    ClassPredictions,
    Predictions,
    alike,
    class_predictions,
    has_class_scores,
)
from limbeck.records.facts import (
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
# Rows on which student and teacher disagree most, to look at; the rest of a document shows as an ellipsis.
_MOST_DISAGREEMENTS = 10
_CHARACTERS = 300
_NONE = "(no class)"

Texts = Mapping[str, Sequence[Any]]
"""Columns of text, with a value for every row."""


def task_classification(
    task: Task, student: Predictions, teacher: Predictions | None = None, texts: Texts | None = None
) -> ClassificationScores | None:
    """The scores from a task type's compact outputs of a split; None for a task without classes.

    Args:
        task: whose classes are meant.
        student: its predictions.
        teacher: its predictions of the same rows, if they are known.
        texts: the rows' text columns, to keep with disagreements; None if texts are not kept.
    """
    if not has_class_scores(task):
        return None
    labels, own = task.kind.class_ids(task, student["label"]), class_predictions(task, student)
    other = None if teacher is None else class_predictions(task, teacher)
    several = labels.ndim == 2
    if is_agreement(task.primary) and not several:
        # A student's confidence is no measure of how often its teacher agrees.
        found = classification_scores(task.labels, labels, ClassPredictions(own.ids))
        found.labels = "teacher"
        found.agreement = found.student.accuracy
    else:
        found = classification_scores(task.labels, labels, own, other)
    found.unit = "rows" if task.kind.row_classes(task) else "words"
    if other is None:
        return found
    if not several:
        found.divergence = _divergence(own, other)
    # Words of a tagger have no row of their own to show.
    if task.kind.row_classes(task):
        words = [*task.labels, _NONE]
        found.disagreements = _disagreements(
            lambda value: task.kind.named(task, value) if several else words[value],
            labels,
            own,
            other,
            texts,
        )
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

    With several classes per row, a row is right if all of them are right.

    Args:
        names: the classes in the order of their ids.
        labels: class ids (n,), or 0 and 1 for each class (n, C).
        student: predictions of the n rows.
        teacher: the teacher's predictions.
    """
    models = [student] if teacher is None else [student, teacher]
    several = labels.ndim == 2
    each = [by_class(labels, model.ids, len(names)) for model in models]
    rows = labels.sum(axis=0) if several else np.bincount(labels, minlength=len(names))
    scores = [
        _model(labels, model, len(names), mean_of_present(f1, rows))
        for model, (_, _, f1) in zip(models, each, strict=True)
    ]
    return ClassificationScores(
        rows=len(labels),
        names=list(names),
        student=scores[0],
        teacher=None if teacher is None else scores[1],
        classes=class_facts(
            names,
            rows,
            each,
            [answer_counts(labels, model.ids) for model in models] if several else (),
        ),
        agreement=None if teacher is None else 100 * float(alike(student.ids, teacher.ids).mean()),
    )


def _model(
    labels: np.ndarray, model: ClassPredictions, classes: int, macro_f1: float
) -> ModelScores:
    right = alike(model.ids, labels)
    scores = ModelScores(accuracy=100 * float(right.mean()), macro_f1=macro_f1)
    several = labels.ndim == 2
    if several:
        micro = metrics.f1_score(labels, model.ids, average="micro", zero_division=0)
        scores.micro_f1 = 100 * float(micro)
    else:
        scores.confusion = _confusion(labels, model.ids, classes)
    confidence, known = model.confidence, model.probabilities
    if confidence is None or known is None:
        return scores
    sure, hits = confidence, right
    if several:
        # Each class of each row separately, a question with the answers yes and no: the likelier answer,
        # whichever the thresholds choose.
        yes = known >= 0.5
        sure = np.where(yes, known, 1 - known).reshape(-1)
        hits = (yes == labels.astype(bool)).reshape(-1)
    points = reliability(sure, hits.astype(np.float64))
    scores.calibration_error = 100 * calibration_error(points)
    scores.calibration_error_of_chance = 100 * unbiased_error(sure)
    scores.reliability = points
    scores.coverage = [covered(confidence, right, share) for share in COVERAGES]
    return scores


def _confusion(labels: np.ndarray, given: np.ndarray, classes: int) -> list[list[int]] | None:
    if classes > _MOST_CLASSES:
        return None
    wide = metrics.confusion_matrix(labels, given, labels=np.arange(classes + 1))[:classes]
    # The last column: predictions that name no class, which only generated text can be.
    found: list[list[int]] | None = (wide if wide[:, classes].any() else wide[:, :classes]).tolist()
    return found


def _disagreements(
    named: Callable[[Any], str],
    labels: np.ndarray,
    student: ClassPredictions,
    teacher: ClassPredictions,
    texts: Texts | None,
) -> list[Disagreement]:
    """Rows with different predictions, the most different probabilities first.

    Distributions differ by their total variation distance, ½ Σ |p − q|; several classes a row by the mean of |p − q|.
    If a model has no probabilities, the rows with the surest student come first, otherwise the first ones.
    """
    distance = None
    if student.probabilities is not None and teacher.probabilities is not None:
        apart = np.abs(student.probabilities - teacher.probabilities)
        distance = apart.mean(axis=1) if labels.ndim == 2 else apart.sum(axis=1) / 2
    numbers = student.confidence, teacher.confidence, distance
    rank = distance if distance is not None else student.confidence
    rows = np.flatnonzero(~alike(student.ids, teacher.ids))
    if rank is not None:
        rows = rows[np.argsort(-rank[rows], kind="stable")]
    found = []
    for at in rows[:_MOST_DISAGREEMENTS].tolist():
        sure, taught, apart = (None if one is None else float(one[at]) for one in numbers)
        found.append(
            Disagreement(
                index=at,
                label=named(labels[at]),
                student=named(student.ids[at]),
                teacher=named(teacher.ids[at]),
                student_probability=sure,
                teacher_probability=taught,
                distance=apart,
                text=None if texts is None else shown_texts(texts, at),
            )
        )
    return found


def shown_texts(texts: Texts, at: int) -> dict[str, str]:
    """The beginning of each of a row's texts."""
    shown = {name: str(column[at]) for name, column in texts.items()}
    return {
        name: text if len(text) <= _CHARACTERS else text[:_CHARACTERS].rstrip() + " …"
        for name, text in shown.items()
    }


# Counts and F1 are scikit-learn's, which takes class ids (n,) and answers of 0 and 1 for each class (n, C).


COVERAGES = (0.5, 0.8)


def by_class(labels: np.ndarray, given: np.ndarray, count: int) -> np.ndarray:
    """Precision, recall and F1 of each class (3, C), 0 to 100; precision is nan of one that is never predicted."""
    ids = np.arange(count)
    precision, recall, _, _ = metrics.precision_recall_fscore_support(
        labels, given, labels=ids, zero_division=np.nan
    )
    f1 = metrics.precision_recall_fscore_support(labels, given, labels=ids, zero_division=0)[2]
    return 100 * np.stack([precision, recall, f1]).astype(np.float64)


def answer_counts(labels: np.ndarray, given: np.ndarray) -> list[AnswerCounts]:
    """Counts of answers 0 and 1 (n, C) for each class, by the right answer."""
    return [
        AnswerCounts(
            true_positives=int(tp),
            false_positives=int(fp),
            false_negatives=int(fn),
            true_negatives=int(tn),
        )
        for (tn, fp), (fn, tp) in metrics.multilabel_confusion_matrix(labels, given)
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
        models: `by_class` of the student, and of the teacher if it is known.
        counts: `answer_counts` of the same models, for several labels per row.
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


def covered(confidence: np.ndarray, right: np.ndarray, share: float) -> CoverageFacts:
    """Accuracy of the `share` of rows with the highest confidence (n,); `right` (n,) is True for right rows.

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
