"""What a run's page shows of predictions of classes: scores, confusion, calibration, disagreements.

Part of `limbeck.reporting.pages`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limbeck.evaluation.calibration import Bin
from limbeck.records import ClassificationScores, ModelScores, Record
from limbeck.reporting.pages.class_plots import confusion_map, reliability
from limbeck.reporting.pages.sections import Section, SectionTable
from limbeck.tables import classes as cells

_LEAD = (
    "The student beside its teacher, class by class. Reliability: bars are the share of right predictions among those "
    "made with a probability in that range, the fuller the range, the darker; marks are the mean probability, and "
    "dashed is what would be exact. Confusion: rows by label and prediction, coloured by the share of the label's rows."
)
_ALONE = _LEAD.replace("The student beside its teacher, class by class.", "Class by class.")


def classification_sections(runs: Sequence[Record]) -> list[Section]:
    """One for each split that was scored of a single run; of several runs none, which their table compares."""
    if len(runs) != 1:
        return []
    (run,) = runs
    return [
        _section(f"classes-{number}", split, found, run)
        for number, (split, found) in enumerate(run.classification.items(), start=1)
    ]


def _section(key: str, split: str, found: ClassificationScores, run: Record) -> Section:
    tests = run.row_tests.get(split)
    tables = [
        SectionTable(f"All classes, {found.rows:,} rows", cells.whole_cells(found)),
        SectionTable("By class", cells.class_cells(found)),
    ]
    counted = cells.count_cells(found)
    if counted is not None:
        tables.append(SectionTable("Answers by class", counted))
    if found.disagreements:
        shown = cells.disagreement_cells(found.disagreements)
        words = tuple(range(1, len(shown[0])))
        tables.append(SectionTable("Where student and teacher disagree most", shown, words))
    models = [("Student", found.student)]
    if found.teacher is not None:
        models.append(("Teacher", found.teacher))
    drawings = [drawing for name, model in models for drawing in _reliability(name, model)]
    drawings += [drawing for name, model in models for drawing in _confusion(name, found, model)]
    agreement = cells.agreement_words(found)
    notes = [agreement] if agreement is not None else []
    notes += cells.row_test_words(tests, "student", "teacher") if tests is not None else []
    notes += cells.tie_words(found) + cells.threshold_words(run.thresholds)
    if found.student.calibration_error is not None:
        notes.append(
            f"Expected calibration error: over {len(found.student.reliability)} equally wide bins of the predictions' "
            "probabilities, the mean distance of accuracy and mean probability, weighted by rows."
        )
    lead = _LEAD if found.teacher is not None else _ALONE
    if found.student.micro_f1 is not None:
        lead = lead.partition(" Confusion:")[0]
    return Section(key, f"Classes on {split}", lead, drawings, tables=tables, notes=notes)


def _reliability(name: str, model: ModelScores) -> list[str]:
    if model.calibration_error is None:
        return []
    bins = [
        Bin(
            point.low,
            point.high,
            point.rows,
            np.nan if point.confidence is None else point.confidence,
            np.nan if point.accuracy is None else point.accuracy,
        )
        for point in model.reliability
    ]
    return [reliability(f"{name}: reliability", bins, model.calibration_error / 100)]


def _confusion(name: str, found: ClassificationScores, model: ModelScores) -> list[str]:
    if model.confusion is None or len(model.confusion) > cells.MOST_SHOWN:
        return []
    columns = cells.predicted_names(found, model)
    return [confusion_map(f"{name}: confusion", found.names, columns, np.array(model.confusion))]
