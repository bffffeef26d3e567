"""What an evaluation comes to: scores, classes, and the comparison with a teacher. Part of `limbeck.run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from limbeck.evaluation.classification import task_classification
from limbeck.evaluation.row_tests import row_tests
from limbeck.records import ClassificationScores, Numbers, RowTests, finite
from limbeck.run.beside_teacher import kept_texts
from limbeck.run.checkpoint_scores import checkpoint_results
from limbeck.run.scored_split import Scored
from limbeck.students import resolve_checkpoint


@dataclass(frozen=True)
class Evaluation:
    """A model's predictions on one split, scored.

    Attributes:
        split: as a record names it: of other rows than the run's with where they lie.
        scores: 0 to 100.
        classification: of a classifier what its predictions come to, class by class and beside a teacher's.
        row_tests: the model less the teacher over the same rows, where the teacher's predictions are known.
    """

    split: str
    scores: Numbers
    classification: ClassificationScores | None = None
    row_tests: RowTests | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values; a number that is not finite is None."""
        parts = {"classification": self.classification, "row_tests": self.row_tests}
        plain = {name: part and part.model_dump(mode="python") for name, part in parts.items()}
        return finite({"split": self.split, "scores": self.scores, **plain})


def evaluation_against(
    scored: Scored,
    name: str,
    teacher: str | None,
    *,
    texts: bool,
    max_length: int | None = None,
) -> Evaluation:
    """What predictions come to, alone or beside a teacher that is run on the same rows."""
    task, predictions = scored.task, scored.results.predictions
    taught = None
    if teacher is not None:
        path = resolve_checkpoint(teacher)
        taught = checkpoint_results(
            path, task, scored.rows, scored.split, side="teacher", max_length=max_length
        ).predictions
    shown = kept_texts(task, scored.rows) if texts else None
    return Evaluation(
        name,
        dict(scored.results.scores),
        task_classification(task, predictions, taught, shown),
        None if taught is None else row_tests(task, predictions, taught),
    )
