"""Analyses of finished runs: `limbeck analyze`, and the same from Python.

Each is registered in `ANALYSES`; the functions that compute their numbers are in `limbeck.lab.measures`, the code
that shows them is in `limbeck.report`.
"""

from limbeck.lab.analysis import layer_states, predicted_rows  # noqa: F401  # they register themselves
from limbeck.lab.analysis.analysed_run import AnalysedRun
from limbeck.lab.analysis.analyze import ANALYSES, Analysed, Analysis, analyze, measure

__all__ = ["ANALYSES", "Analysed", "AnalysedRun", "Analysis", "analyze", "measure"]
