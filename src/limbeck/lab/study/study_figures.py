"""A study's figures, from its records or from analyses of its runs. Part of `limbeck.lab.study`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.lab.analysis import AnalysedRun
from limbeck.lab.analysis.analysed_run import Watch
from limbeck.lab.analysis.analyze import ANALYSES, Parts, asked_of, together
from limbeck.lab.study import score_figures
from limbeck.lab.study.figure_checks import further_rows
from limbeck.lab.study.figure_spec import METHOD, PARAMETERS, TASK, FigureSpec
from limbeck.lab.study.study_fields import Study
from limbeck.lab.views.analysis_views import ANALYSES_FOLDER, VIEWS, read_asked, write_numbers
from limbeck.report.sections import Section
from limbeck.report.svg import Panel
from limbeck.support.cells import CellTable
from limbeck.support.errors import LimbeckError
from limbeck.support.files import checksum_of_text
from limbeck.tables.model import task_title


@dataclass(frozen=True)
class MadeRun:
    """A finished run of a study: its row, task and condition, and its folder."""

    point: score_figures.RunPoint
    folder: Path


@dataclass(frozen=True)
class StudyFigure:
    """A drawn figure; `notes` list the parts left out, and why.

    `tasks`: of each panel the task, where panels of several may have one title.
    """

    name: str
    title: str
    lead: str
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()
    tables: tuple[CellTable, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """Each panel's file name: a panel that is not alone by its title, and if need be by its task."""
        if len(self.panels) == 1:
            return [self.name]
        titles = [panel.title for panel in self.panels]
        tasks = self.tasks or ("",) * len(titles)
        own = [
            t if titles.count(t) == 1 else f"{task} {t}"
            for t, task in zip(titles, tasks, strict=True)
        ]
        return [f"{self.name}-{title}" for title in own]

    def section(self) -> Section:
        """As a part of the study's page."""
        wide = any(panel.size[0] > _WIDE for panel in self.panels)
        return Section(
            f"figure-{self.name}",
            self.title,
            self.lead,
            self.panels,
            layout="wide" if wide else "",
            tables=list(self.tables),
            notes=list(self.notes),
        )


_WIDE = 6.5
_LEADS = {
    "lines": "Mean primary dev score over seeds; bands reach from the lowest to the highest seed.",
    "boxes": "Primary dev scores of all seeds: the box holds the middle half of them, the line is the median, the "
    "whiskers reach to the last run within one and a half boxes, circles are runs beyond. Dashed: the teacher.",
    "bars": "Mean primary dev score over seeds; whiskers reach from the lowest to the highest. Dashed: the teacher.",
    "heat": "Mean primary dev score over seeds.",
    "curves": "By epoch, mean over seeds; bands reach from the lowest to the highest seed.",
    "probabilities": "Probability of sampling each teacher (columns) on each task (rows), or its weight in "
    "the mean, at the start of the run; mean over seeds.",
}


def study_figures(
    study: Study,
    made: Sequence[MadeRun],
    teachers: Mapping[str, float],
    watch: Watch,
) -> list[StudyFigure]:
    """Every figure of which there is something to draw.

    Args:
        study: the study of the figures.
        made: its finished runs that the table counts.
        teachers: task → the teacher's primary dev score, if there is one teacher.
        watch: begins to show the progress of an analysis.
    """
    found = []
    for name, spec in study.figures.items():
        chosen = [one for one in made if _is_in(spec, one.point)]
        if not chosen:
            continue
        if spec.draw == "analysis":
            found.append(_analysed(name, spec, chosen, made, watch))
            continue
        panels = _DRAWN[spec.draw](spec, [one.point for one in chosen], teachers)
        notes = () if panels else ("No run has recorded its data.",)
        title, lead = spec.title or name, _LEADS[spec.draw]
        found.append(StudyFigure(name, title, lead, tuple(panels), notes))
    return found


def _is_in(spec: FigureSpec, point: score_figures.RunPoint) -> bool:
    methods, tasks = spec.methods, spec.tasks
    return (methods is None or point.label in methods) and (tasks is None or point.task in tasks)


Drawn = Callable[[FigureSpec, list[score_figures.RunPoint], Mapping[str, float]], list[Panel]]


def _lines(
    spec: FigureSpec, points: list[score_figures.RunPoint], teachers: Mapping[str, float]
) -> list[Panel]:
    return score_figures.line_panels(points, str(spec.x), _value(str(spec.x)), teachers)


def _boxes(
    spec: FigureSpec, points: list[score_figures.RunPoint], teachers: Mapping[str, float]
) -> list[Panel]:
    return score_figures.box_panels(points, teachers)


def _bars(
    spec: FigureSpec, points: list[score_figures.RunPoint], teachers: Mapping[str, float]
) -> list[Panel]:
    return score_figures.score_bars(points, teachers)


def _heat(
    spec: FigureSpec, points: list[score_figures.RunPoint], teachers: Mapping[str, float]
) -> list[Panel]:
    keys = str(spec.rows), str(spec.columns)
    return score_figures.heat_panels(points, keys, (_word(keys[0]), _word(keys[1])))


def _curves(
    spec: FigureSpec, points: list[score_figures.RunPoint], teachers: Mapping[str, float]
) -> list[Panel]:
    return score_figures.curve_panels(points, spec.y, teachers)


def _probabilities(
    spec: FigureSpec, points: list[score_figures.RunPoint], teachers: Mapping[str, float]
) -> list[Panel]:
    return score_figures.share_panels(points)


_DRAWN: dict[str, Drawn] = {
    "lines": _lines,
    "boxes": _boxes,
    "bars": _bars,
    "heat": _heat,
    "curves": _curves,
    "probabilities": _probabilities,
}


def _value(key: str) -> Callable[[score_figures.RunPoint], float | None]:
    def of(point: score_figures.RunPoint) -> float | None:
        if key == PARAMETERS:
            count = point.record.student.parameters
            return None if count is None else count / 1e6
        given = point.condition.get(key)
        return float(given) if isinstance(given, int | float) else None

    return of


def _word(key: str) -> Callable[[score_figures.RunPoint], str]:
    def of(point: score_figures.RunPoint) -> str:
        if key == TASK:
            return task_title(point.task)
        return point.label if key == METHOD else str(point.condition.get(key))

    return of


# ---- analyses of runs ----


def _analysed(
    name: str, spec: FigureSpec, made: Sequence[MadeRun], every: Sequence[MadeRun], watch: Watch
) -> StudyFigure:
    """The first seed's run of each task, method and condition; rows that settings name are among `every`."""
    view, notes = VIEWS.get(str(spec.of)), []
    panels: list[Panel] = []
    tables: list[CellTable] = []
    of_task: list[str] = []
    tasks = list(dict.fromkeys(one.point.task for one in made))
    for task in tasks:
        parts: dict[str, Parts] = {}
        for one in made:
            called = _called(one.point)
            if one.point.task != task or called in parts:
                continue
            try:
                parts[called] = _numbers(spec, one.folder, _further(spec, one, every), watch)
            except LimbeckError as error:
                notes += [f"{called} on {task_title(task)}: {p.message}." for p in error.problems]
        if parts:
            shown = _titled(together(parts), task if len(tasks) > 1 else None)
            panels += view.panels(shown)
            of_task += [task_title(task)] * (len(panels) - len(of_task))
            tables += view.tables(shown)
    title = spec.title or name
    return StudyFigure(
        name, title, view.lead, tuple(panels), tuple(notes), tuple(tables), tuple(of_task)
    )


def _called(point: score_figures.RunPoint) -> str:
    said = [f"{key.rpartition('.')[2]} {value}" for key, value in point.condition.items()]
    return ", ".join([point.label, *said])


def _titled(parts: Parts, task: str | None) -> Parts:
    return parts if task is None else {f"{task_title(task)}, {p}": n for p, n in parts.items()}


def _further(spec: FigureSpec, one: MadeRun, every: Sequence[MadeRun]) -> dict[str, Path]:
    """The further runs of an analysis, by row: of the same task and condition, the first seed's.

    Raises:
        LimbeckError: a row has no run.
    """
    found = {}
    for row in further_rows(spec):
        alike = [
            other.folder
            for other in every
            if (other.point.label, other.point.task, other.point.condition)
            == (row, one.point.task, one.point.condition)
        ]
        if not alike:
            raise LimbeckError(
                f"{row} has no finished run to go with it", "the same command makes it"
            )
        found[row] = alike[0]
    return found


def _numbers(spec: FigureSpec, folder: Path, further: Mapping[str, Path], watch: Watch) -> Parts:
    """A run's earlier numbers, with the same settings, or numbers computed now and stored in its folder."""
    analysis = ANALYSES.get(str(spec.of))
    said, opened = spec.settings, {"split": spec.split, "stage": spec.stage}
    named = dict(said)
    if analysis.further_runs is not None and further:
        said = {**said, analysis.further_runs: {row: str(run) for row, run in further.items()}}
        # Kept by the names of the runs, which stay where the folder is moved.
        named[analysis.further_runs] = {row: run.name for row, run in further.items()}
    settings: Any = analysis.settings.model_validate(said)
    asked = asked_of(str(spec.of), named, **opened)
    # Several figures may request the same analysis of a run with other settings.
    digest = checksum_of_text(json.dumps(asked, sort_keys=True))[:8]
    path = folder / ANALYSES_FOLDER / f"{spec.of}-{digest}.json"
    known = read_asked(path, asked)
    if known is not None:
        return known
    found = analysis.measure(AnalysedRun(folder, **opened), settings, watch)
    write_numbers(path, str(spec.of), asked, found)
    return found
