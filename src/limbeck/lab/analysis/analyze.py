"""`analyze(what, runs)`: measure finished runs, and keep numbers and figures. Part of `limbeck.lab.analysis`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.lab.analysis.analysed_run import AnalysedRun, Watch
from limbeck.lab.measures.layer_probing import nobody
from limbeck.lab.measures.row_agreement import RunCourse, run_course
from limbeck.lab.views.analysis_views import ANALYSES_FOLDER, VIEWS, write_figure, write_numbers
from limbeck.recipe import Recipe
from limbeck.recipe.validation import wanted
from limbeck.run.finish import refresh
from limbeck.support.errors import LimbeckError, Problem, collecting, raise_problems, unknown
from limbeck.support.registry import Registry
from limbeck.support.settings import Settings

# The class of analyses, and the registered ones by name.


Parts = Mapping[str, Any]
"""The results, by their subject: `student`, `teacher`, a term's name."""


@dataclass(frozen=True)
class Analysis:
    """One analysis of a finished run.

    Attributes:
        summary: its subject, in one line.
        settings: the class of its settings.
        measure: the run, the settings and `Watch` to numbers, frozen dataclasses.
        reads_models: whether it needs the student's weights, and not its record alone.
        suits: raises LimbeckError for a recipe whose runs lack the required data; None if any run will do.
        further_runs: the setting that names further runs, by folder, or by name; in a study by rows.
    """

    summary: str
    settings: type[Settings]
    measure: Callable[[AnalysedRun, Any, Watch], Parts]
    reads_models: bool = True
    suits: Callable[[Recipe], object] | None = None
    further_runs: str | None = None


ANALYSES: Registry[Analysis] = Registry("analysis")
"""By the name that `limbeck analyze` has for each."""


@dataclass(frozen=True)
class Analysed:
    """The result of an analysis.

    Attributes:
        parts: numbers, by their subject; with several runs each part's name begins with the run's.
        files: the written files, numbers first.
    """

    parts: Parts
    files: tuple[Path, ...] = ()


def measure(
    what: str,
    runs: Sequence[str | Path],
    *,
    teacher: str | None = None,
    data: str | None = None,
    split: str | None = None,
    stage: str | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> Parts:
    """Numbers of one analysis of one run or several, and nothing written.

    Args:
        what: the analysis, see `limbeck analyze`.
        runs: folders of finished runs.
        teacher: the model that students are compared with; by default each run's own teacher.
        data: the location of rows; by default each run's own.
        split: the rows to analyze; by default dev, the rows that select.
        stage: first, students as they were after their first stage; by default last, the finished ones.
        watch: begins to show the progress of something long.
        **settings: of the analysis.

    Raises:
        LimbeckError: no such analysis or setting, or runs without the data that it needs.
    """
    opened = {"teacher": teacher, "data": data, "split": split, "stage": stage}
    found = _measured(what, runs, settings, watch, **opened)
    return together(_by_name(found))


def analyze(
    what: str,
    runs: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    report: bool = False,
    teacher: str | None = None,
    data: str | None = None,
    split: str | None = None,
    stage: str | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> Analysed:
    """As `measure`, and write numbers and figures.

    Args:
        what: as the other arguments below, `measure`'s.
        runs: `measure`'s.
        out: the folder of `WHAT.json` and of figures as SVG and PNG; of a single run by default its `analysis`
            folder.
        report: also store each run's own numbers in its folder, and show them in its `report.html`. Results written
            into a run's `analysis` folder are shown there in any case.
        teacher: `measure`'s.
        data: `measure`'s.
        split: `measure`'s.
        stage: `measure`'s.
        watch: `measure`'s.
        **settings: `measure`'s.

    Raises:
        LimbeckError: as `measure`; several runs and no `out`; a folder that cannot be written.
    """
    if out is None and len(runs) > 1:
        raise LimbeckError(
            f"analyze: {len(runs)} runs and no folder for their figures", "give one: --out FOLDER"
        )
    opened = {"teacher": teacher, "data": data, "split": split, "stage": stage}
    found = _measured(what, runs, settings, watch, **opened)
    asked = asked_of(what, settings, **opened)
    folder = Path(out) if out is not None else next(iter(found)).folder.path / ANALYSES_FOLDER
    parts = together(_by_name(found))
    files = [folder / f"{what}.json"]
    write_numbers(files[0], what, asked, parts)
    panels = VIEWS.get(what).panels(parts)
    for panel in panels:
        name = what if len(panels) == 1 else f"{what}-{panel.title}"
        files += write_figure(panel, folder, name)
    for run, own in found.items():
        beside = run.folder.path / ANALYSES_FOLDER
        if report and beside.resolve() != folder.resolve():
            files.append(beside / f"{what}.json")
            write_numbers(files[-1], what, asked, own)
        if report or beside.resolve() == folder.resolve():
            refresh(run.folder.path)
    return Analysed(parts, tuple(files))


def asked_of(what: str, settings: Mapping[str, Any], **opened: str | None) -> dict[str, Any]:
    """The settings of an analysis of a run, with defaults: its own, and the sources of rows and models."""
    full = ANALYSES.get(what).settings.model_validate(dict(settings)).model_dump(mode="json")
    return full | {key: value for key, value in opened.items() if value is not None}


def setting_problems(what: str, given: Mapping[str, Any]) -> list[Problem]:
    """The problems with settings of an analysis, each with its fix; empty if there are no problems."""
    settings = ANALYSES.get(what).settings
    try:
        settings.model_validate(dict(given))
    except ValidationError as error:
        return [_said(what, settings, one) for one in error.errors()]
    return []


def idle_stage(what: str, stage: str | None) -> list[Problem]:
    """A stage that is named of an analysis that looks at no student."""
    if stage is None or ANALYSES.get(what).reads_models:
        return []
    return [Problem(f"stage: {what} reads records, which are of all stages", "leave it out")]


def _measured(
    what: str,
    runs: Sequence[str | Path],
    given: dict[str, Any],
    watch: Watch | None,
    **opened: str | None,
) -> dict[AnalysedRun, Parts]:
    analysis = ANALYSES.get(what)
    if not runs:
        raise LimbeckError("analyze: no run is named", f"limbeck analyze {what} RUN")
    problems = setting_problems(what, given) + idle_stage(what, opened["stage"])
    opened_runs = []
    for path in runs:
        with collecting(problems):
            opened_runs.append(AnalysedRun(path, **opened))
    raise_problems(problems)
    settings = analysis.settings.model_validate(given)
    return {
        run: analysis.measure(run, settings, watch or (lambda name: nobody)) for run in opened_runs
    }


def _by_name(found: dict[AnalysedRun, Parts]) -> dict[str, Parts]:
    names = [run.name for run in found]
    return {
        run.name if names.count(run.name) == 1 else str(run.folder.path): parts
        for run, parts in found.items()
    }


def together(found: Mapping[str, Parts]) -> Parts:
    """All parts of several runs by the run's name, a teacher of all of them once; of one run its own."""
    if len(found) == 1:
        return next(iter(found.values()))
    parts: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for called, own in found.items():
        for part, numbers in own.items():
            alike = [other.get(part) == numbers for other in found.values()]
            if part == "teacher" and all(alike):
                shared[part] = numbers
            else:
                parts[called if part == "student" else f"{called}, {part}"] = numbers
    return parts | shared


def _said(what: str, settings: type[Settings], error: Any) -> Problem:
    place = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        choices = list(settings.model_fields)
        return unknown(f"setting of analysis {what}:", place, choices or ["none"])
    fix = wanted(error, place, settings)
    return Problem(f"{place}: {error['msg']} (got {error['input']!r:.60})", fix)


# The analysis that needs no model: how a run went.


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
