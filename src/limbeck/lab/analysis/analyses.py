"""What an analysis is, and which there are by name. Part of `limbeck.lab.analysis`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from limbeck.lab.analysis.analysed_run import AnalysedRun, Watch
from limbeck.recipe import Recipe
from limbeck.support.registry import Registry
from limbeck.support.settings import Settings

Parts = Mapping[str, Any]
"""What was found, by what it was found of: `student`, `teacher`, a term's name."""


@dataclass(frozen=True)
class Analysis:
    """One thing that can be asked of a finished run.

    Attributes:
        summary: what it shows, in a line.
        settings: what may be said about it.
        measure: the run, the settings and `Watch` to numbers, frozen dataclasses.
        reads_models: whether it needs the student's weights, and not its record alone.
        suits: raises LimbeckError for a recipe whose runs lack what it looks at; None where any will do.
        further_runs: the setting that names further runs, by folder, or by what each is called; in a study by rows.
    """

    summary: str
    settings: type[Settings]
    measure: Callable[[AnalysedRun, Any, Watch], Parts]
    reads_models: bool = True
    suits: Callable[[Recipe], object] | None = None
    further_runs: str | None = None


ANALYSES: Registry[Analysis] = Registry("analysis")
"""By the name that `limbeck analyze` has for each."""
