"""The rows on which student and teacher disagree most, to look at. Part of `limbeck.evaluation`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from limbeck.evaluation.class_predictions import ClassPredictions
from limbeck.reporting.records import Disagreement

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
    """Rows with different predictions, those of the most different distributions first.

    Distributions differ by their total variation distance, ½ Σ |p − q|. Where the teacher's are not known,
    the student's own confidence decides, and without any the order of the rows does.

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
    rank = distance if distance is not None else student.confidence
    differing = np.flatnonzero(student.ids != teacher.ids)
    if rank is not None:
        differing = differing[np.argsort(-rank[differing], kind="stable")]
    named = [*names, _NONE]
    sure, taught = student.confidence, teacher.confidence
    return [
        Disagreement(
            index=at,
            label=named[labels[at]],
            student=named[student.ids[at]],
            teacher=named[teacher.ids[at]],
            student_probability=None if sure is None else float(sure[at]),
            teacher_probability=None if taught is None else float(taught[at]),
            distance=None if distance is None else float(distance[at]),
            text=None if texts is None else shown_texts(texts, at),
        )
        for at in differing[:most].tolist()
    ]


def shown_texts(texts: Mapping[str, Sequence[Any]], at: int) -> dict[str, str]:
    """The beginning of each of a row's texts."""
    shown = {name: str(column[at]) for name, column in texts.items()}
    return {
        name: text if len(text) <= _CHARACTERS else text[:_CHARACTERS].rstrip() + " …"
        for name, text in shown.items()
    }
