"""How much of its teacher's score a student keeps, with an interval over dev rows, pairs or queries.

Part of `limbeck.evaluation`.
"""

from __future__ import annotations

import numpy as np

from limbeck.evaluation.class_predictions import Predictions
from limbeck.evaluation.row_tests import LEVEL, bootstrap, primary_of_samples
from limbeck.records import KeptFacts
from limbeck.tasks import Task


def kept_share(
    task: Task, student: Predictions, teacher: Predictions | None, scores: tuple[float, float]
) -> KeptFacts | None:
    """Student's primary score over teacher's, with a percentile bootstrap interval over rows, pairs or queries.

    Args:
        task: whose primary score is meant.
        student: its predictions on dev.
        teacher: its predictions on the same rows; None where they are not known, and its score
            counts as exact.
        scores: primary scores of student and teacher, 0 to 100.

    Returns None where the teacher's score is not above 0, or the score is none that can be sampled
    again.
    """
    own, theirs = scores
    of_student = primary_of_samples(task, student)
    if theirs <= 0 or of_student is None or of_student.count < 2:
        return None
    of_teacher = None if teacher is None else primary_of_samples(task, teacher)

    def share(chosen: np.ndarray) -> np.ndarray:
        level = np.array(theirs) if of_teacher is None else of_teacher.score(chosen)
        return of_student.score(chosen) / np.where(level > 0, level, np.nan)

    # A teacher whose score is not above 0 in some sample: there is no interval then.
    interval = bootstrap(share, of_student.count)
    if interval is None:
        return None
    return KeptFacts(
        share=own / theirs,
        low=interval[0],
        high=interval[1],
        level=LEVEL,
        rows=of_student.count,
        unit=of_student.unit,
        paired=of_teacher is not None,
    )
