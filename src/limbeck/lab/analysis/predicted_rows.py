"""Analyses of predictions: who is right where, and how sure each is. Part of `limbeck.lab.analysis`."""

from datasets import Dataset
from pydantic import Field

from limbeck.evaluation.calibration import BINS
from limbeck.evaluation.class_predictions import ClassPredictions, class_predictions
from limbeck.lab.analysis.analysed_run import AnalysedRun, Side, Watch
from limbeck.lab.analysis.analyze import ANALYSES, Analysis
from limbeck.lab.analysis.layer_states import BOTH, Sides
from limbeck.lab.measures import row_agreement
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Count, Settings


class AgreementSettings(Settings):
    """Of `agreement`."""

    rows: Count | None = Field(None, description="how many of the split; all by default")
    examples: Count = Field(3, description="the most rows that are shown of each cell")


class CalibrationSettings(Settings):
    """Of `calibration`."""

    rows: Count | None = Field(None, description="how many of the split; all by default")
    bins: Count = Field(BINS, description="into how many equally wide bins probabilities are cut")
    models: Sides = Field(BOTH, description="student, teacher")


def _agreement(
    run: AnalysedRun, settings: AgreementSettings, watch: Watch
) -> dict[str, row_agreement.RowAgreement]:
    rows = run.rows(count=settings.rows)
    labels = run.labels(rows)
    found = row_agreement.agreement_of(
        run.task.labels,
        labels,
        _predicted(run, run.teacher, rows, watch),
        _predicted(run, run.student, rows, watch),
        texts=run.texts(rows),
        examples=settings.examples,
    )
    return {run.student.name: found}


def _calibration(
    run: AnalysedRun, settings: CalibrationSettings, watch: Watch
) -> dict[str, row_agreement.ReliabilityCurve]:
    rows = run.rows(count=settings.rows)
    labels = run.labels(rows)
    found = {}
    for side in run.sides(settings.models):
        predicted = _predicted(run, side, rows, watch)
        if predicted.confidence is None:
            raise LimbeckError(
                f"run {run.folder.path}: the {side.name}'s predictions come without probabilities",
                "take fewer rows, or a model with a classification head",
            )
        found[side.name] = row_agreement.reliability_curve(
            predicted.confidence, predicted.ids == labels, bins=settings.bins
        )
    return found


def _predicted(run: AnalysedRun, side: Side, rows: Dataset, watch: Watch) -> ClassPredictions:
    return class_predictions(run.task, run.results(side, rows, watch)[0].predictions)


ANALYSES.register("agreement")(
    Analysis(
        "on which rows teacher and student are right: both, one, none, with examples",
        AgreementSettings,
        _agreement,
    )
)
ANALYSES.register("calibration")(
    Analysis(
        "how sure each model is and how right: calibration error and reliability",
        CalibrationSettings,
        _calibration,
    )
)
