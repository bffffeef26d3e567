"""The rows on which student and teacher disagree most, to look at. Part of `limbeck.evaluation`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from limbeck.evaluation.class_predictions import ClassPredictions
from limbeck.records import Disagreement

MOST = 10
# Of one column; the rest of a document shows as an ellipsis.
_CHARACTERS = 300
_NONE = "(no class)"


def disagreements(
    names: Sequence[str],
    labels: np.ndarray,
    student: ClassPredictions,
    teacher: ClassPredictions,
    *,
    texts: Mapping[str, Sequence[Any]] | None = None,
    most: int = MOST,
) -> list[Disagreement]:
    """Rows with different predictions of one class, those of the most different distributions first.

    Distributions differ by their total variation distance, ½ Σ |p − q|.

    Args:
        names: the classes in the order of their ids.
        labels: class ids (n,).
        student: predictions of the n rows.
        teacher: likewise.
        texts: columns of text, of n rows each; None: no text is kept.
        most: how many rows at most.
    """
    distance = None
    if student.probabilities is not None and teacher.probabilities is not None:
        distance = np.abs(student.probabilities - teacher.probabilities).sum(axis=1) / 2
    words = [*names, _NONE]
    return worst_disagreements(
        student.ids != teacher.ids,
        lambda at: (words[labels[at]], words[student.ids[at]], words[teacher.ids[at]]),
        distance=distance,
        confidence=(student.confidence, teacher.confidence),
        texts=texts,
        most=most,
    )


def worst_disagreements(
    differ: np.ndarray,
    named: Callable[[int], tuple[str, str, str]],
    *,
    distance: np.ndarray | None,
    confidence: tuple[np.ndarray | None, np.ndarray | None],
    texts: Mapping[str, Sequence[Any]] | None,
    most: int = MOST,
) -> list[Disagreement]:
    """Rows that differ, those of the greatest distance first; without distances those of which the student is surest,
    and without its confidence in the order of the rows.

    Args:
        differ: which rows do (n,).
        named: of a row's number the label, the student's and the teacher's prediction, in words.
        distance: of both models' probabilities (n,).
        confidence: of the student's and of the teacher's predictions, (n,) each.
        texts: columns of text, of n rows each; None: no text is kept.
        most: how many rows at most.
    """
    rank = distance if distance is not None else confidence[0]
    rows = np.flatnonzero(differ)
    if rank is not None:
        rows = rows[np.argsort(-rank[rows], kind="stable")]
    found = []
    for at in rows[:most].tolist():
        label, student, teacher = named(at)
        sure, taught, apart = (
            None if values is None else float(values[at]) for values in (*confidence, distance)
        )
        found.append(
            Disagreement(
                index=at,
                label=label,
                student=student,
                teacher=teacher,
                student_probability=sure,
                teacher_probability=taught,
                distance=apart,
                text=None if texts is None else shown_texts(texts, at),
            )
        )
    return found


def shown_texts(texts: Mapping[str, Sequence[Any]], at: int) -> dict[str, str]:
    """The beginning of each of a row's texts."""
    shown = {name: str(column[at]) for name, column in texts.items()}
    return {
        name: text if len(text) <= _CHARACTERS else text[:_CHARACTERS].rstrip() + " …"
        for name, text in shown.items()
    }
