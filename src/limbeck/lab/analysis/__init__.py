"""Analyses of finished runs: `limbeck analyze`, and the same from Python.

Each is registered in `ANALYSES`; the functions that compute their numbers stand in `limbeck.lab.measures`, how
they are shown in `limbeck.report`.
"""

from limbeck.lab.analysis import (  # noqa: F401  # they register themselves
    attended_layers,
    attended_text,
    disturbed_models,
    layer_states,
    predicted_rows,
    recorded_course,
)
from limbeck.lab.analysis.analysed_run import AnalysedRun
from limbeck.lab.analysis.analyses import ANALYSES, Analysis
from limbeck.lab.analysis.analyze import Analysed, analyze, measure

__all__ = ["ANALYSES", "Analysed", "AnalysedRun", "Analysis", "analyze", "measure"]
