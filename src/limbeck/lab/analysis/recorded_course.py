"""The analysis that needs no model: how a run went. Part of `limbeck.lab.analysis`."""

from __future__ import annotations

from limbeck.lab.analysis.analysed_run import AnalysedRun, Watch
from limbeck.lab.analysis.analyses import ANALYSES, Analysis
from limbeck.lab.measures.run_course import RunCourse, run_course
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Settings


class ConvergenceSettings(Settings):
    """Of `convergence`: everything is in the record."""


def _convergence(
    run: AnalysedRun, settings: ConvergenceSettings, watch: Watch
) -> dict[str, RunCourse]:
    if not run.record.epochs:
        raise LimbeckError(
            f"run {run.folder.path}: its record has no epochs", "name a run that was trained"
        )
    return {"student": run_course(run.record)}


ANALYSES.register("convergence")(
    Analysis(
        "dev score and every training term by step, and where layers learn in turn, which was done when",
        ConvergenceSettings,
        _convergence,
        reads_models=False,
    )
)
