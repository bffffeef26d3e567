"""From a study and the records that there are to the runs that are due: teachers, the choice on dev, all seeds.

Everything follows from records, so that a study that was killed goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from limbeck.errors import LimbeckError, Problem
from limbeck.recipe import Recipe
from limbeck.reporting.records import Record
from limbeck.study.shared_runs import StudyRun, name_of
from limbeck.study.study_fields import Grid, Study

TEACHER_LABEL = "teacher"
_TASK = "{task}"
_OF_TEACHERS = "teachers."

Held = Callable[[str], Record | None]
"""A run's name → the record of it, if it has finished."""


@dataclass(frozen=True)
class Group:
    """One method on one task under one condition: what is chosen for, and then run with every seed.

    Attributes:
        label: what its row is called.
        task: whose rows.
        condition: the values of the study's axes.
        tried: of each cell of the grid its settings and its runs, one for each seed of the study.
    """

    label: str
    task: str
    condition: Mapping[str, Any]
    tried: tuple[tuple[Mapping[str, Any], tuple[StudyRun, ...]], ...]


@dataclass(frozen=True)
class Choice:
    """What was chosen for a group.

    Attributes:
        group: for whom.
        settings: the chosen cell of the grid.
        runs: its runs, one for each seed.
        scores: of each cell the mean primary dev score; None where no run of it has finished.
    """

    group: Group
    settings: Mapping[str, Any]
    runs: tuple[StudyRun, ...]
    scores: tuple[tuple[Mapping[str, Any], float | None], ...]


@dataclass(frozen=True)
class StudyPlan:
    """All runs that a study may ask for, their recipes checked."""

    study: Study
    teachers: Mapping[str, StudyRun]
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, study: Study) -> StudyPlan:
        """Build every run of the study.

        Raises:
            LimbeckError: what is wrong with any of their recipes, each problem once.
        """
        return _Builder(study).plan()

    @cached_property
    def choosing(self) -> int:
        """How many seeds the choice is made on."""
        return self.study.select.seeds

    @property
    def count(self) -> int:
        """How many runs the study is made of, teachers included."""
        found = {run.name for run in self.teachers.values()}
        extra = 0
        for group in self.groups:
            tries = len(group.tried)
            for _, runs in group.tried:
                found |= {run.name for run in runs[: self.choosing if tries > 1 else None]}
            extra += len(self.study.seeds) - self.choosing if tries > 1 else 0
        return len(found) + extra

    def choice(self, group: Group, held: Held, ended: Callable[[str], bool]) -> Choice | None:
        """The cell of the grid that is best on dev; None until every run that decides has ended.

        By the mean of the primary dev score over the seeds that decide; a cell with a run that
        failed is not chosen where another has all of them. The first of equals.
        """
        if len(group.tried) == 1:
            settings, runs = group.tried[0]
            return Choice(group, settings, runs, ())
        scores: list[tuple[Mapping[str, Any], float | None]] = []
        ranks = []
        for settings, runs in group.tried:
            deciding = runs[: self.choosing]
            if not all(ended(run.name) for run in deciding):
                return None
            records = [record for run in deciding if (record := held(run.name)) is not None]
            values = [value for one in records if (value := one.primary_score("dev")) is not None]
            mean = fmean(values) if values else None
            scores.append((settings, mean))
            ranks.append((len(values) == len(deciding), float("-inf") if mean is None else mean))
        best = max(range(len(ranks)), key=lambda number: ranks[number])
        settings, runs = group.tried[best]
        return Choice(group, settings, runs, tuple(scores))

    def due(self, held: Held, ended: Callable[[str], bool]) -> list[StudyRun]:
        """Runs that can be made now: no record holds them, nothing they need is missing.

        Teachers first, then what the choice is made on, then one seed of everything after the
        other: a study that is stopped has whole rounds to compare.
        """
        found: dict[str, tuple[int, int, StudyRun]] = {}

        def want(run: StudyRun, rank: int, seed: int) -> None:
            ready = run.needs is None or held(run.needs) is not None
            if ready and not ended(run.name):
                found.setdefault(run.name, (rank, seed, run))

        for run in self.teachers.values():
            want(run, 0, 0)
        for group in self.groups:
            choice = self.choice(group, held, ended)
            if choice is None:
                for number in range(self.choosing):
                    for _, runs in group.tried:
                        want(runs[number], 1, number)
            else:
                for number, run in enumerate(choice.runs):
                    want(run, 2, number)
        return [run for _, _, run in sorted(found.values(), key=lambda item: item[:2])]

    def waiting(self, held: Held, ended: Callable[[str], bool]) -> list[StudyRun]:
        """Runs whose teacher has failed: they cannot be made."""
        lost = []
        for group in self.groups:
            choice = self.choice(group, held, ended)
            for _, runs in group.tried if choice is None else ((choice.settings, choice.runs),):
                lost += [
                    run
                    for run in runs
                    if run.needs is not None and held(run.needs) is None and ended(run.needs)
                ]
        return list({run.name: run for run in lost if not ended(run.name)}.values())


class _Builder:
    """Makes a plan; recipes that differ in their seed alone are checked once."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.wrong: dict[Problem, list[str]] = {}
        self.asked: set[str] = set()

    def plan(self) -> StudyPlan:
        teachers = self._teachers()
        groups = []
        for task in self.study.tasks:
            for condition in _cells(self.study.axes):
                for label in self.study.methods:
                    groups.append(self._group(label, task, condition, teachers.get(task)))
        if self.wrong:
            raise LimbeckError(
                [
                    problem
                    if len(places) == len(self.asked) > 1
                    else Problem(f"{', '.join(places)}: {problem.message}", problem.fix)
                    for problem, places in self.wrong.items()
                ]
            )
        return StudyPlan(self.study, teachers, tuple(groups))

    def _teachers(self) -> dict[str, StudyRun]:
        spec = self.study.teachers
        if spec is None or spec.at is not None:
            return {}
        made = {}
        for task in self.study.tasks:
            model = {} if self.study.model is None else {"student.init": self.study.model}
            settings = {"seed": self.study.seeds[0], **self._shared(task), **model, **spec.settings}
            settings |= {
                k.removeprefix(_OF_TEACHERS): v
                for k, v in self._own(task).items()
                if k.startswith(_OF_TEACHERS)
            }
            for run in self._runs(
                "finetune", settings, [settings["seed"]], None, TEACHER_LABEL, f"teacher of {task}"
            ):
                made[task] = run
        return made

    def _group(
        self, label: str, task: str, condition: Mapping[str, Any], teacher: StudyRun | None
    ) -> Group:
        study, spec = self.study, self.study.method_of(label)
        method = spec.method or label
        own = {k: v for k, v in self._own(task).items() if not k.startswith(_OF_TEACHERS)}
        settings = {**self._shared(task), **study.students, **own, **condition, **spec.settings}
        at = None if study.teachers is None or study.teachers.at is None else study.teachers.at
        if at is not None:
            settings["teacher"] = at.replace(_TASK, task)
        grid = spec.grid if spec.grid is not None else study.select.grid
        needs = None if teacher is None else teacher.name
        tried = tuple(
            (
                cell,
                tuple(
                    self._runs(
                        method,
                        {**settings, **cell},
                        study.seeds,
                        needs,
                        label,
                        f"{label} on {task}",
                        " ".join(f"{key}={value}" for key, value in cell.items()),
                    )
                ),
            )
            for cell in _cells(grid)
        )
        return Group(label, task, condition, tried)

    def _runs(
        self,
        method: str,
        settings: Mapping[str, Any],
        seeds: list[int],
        needs: str | None,
        label: str,
        place: str,
        cell: str = "",
    ) -> list[StudyRun]:
        self.asked.add(place)
        taught = {} if needs is None else {"teacher": needs}
        try:
            first = Recipe.load(method, **{**taught, **settings, "seed": seeds[0]})
        except LimbeckError as error:
            for problem in error.problems:
                places = self.wrong.setdefault(problem, [])
                if place not in places:
                    places.append(place)
            return []
        # Also one that learns from no teacher has it: its record says how much of its score is kept.
        role = "teacher" if label == TEACHER_LABEL and needs is None else "student"
        return [
            StudyRun(
                name_of(first.model_copy(update={"seed": seed}), needs),
                method,
                {**settings, "seed": seed},
                label,
                needs,
                role,
                cell,
            )
            for seed in seeds
        ]

    def _shared(self, task: str) -> dict[str, Any]:
        return {**self.study.settings, "data": self.study.data, "task": task}

    def _own(self, task: str) -> dict[str, Any]:
        return self.study.per_task.get(task, {})


def _cells(grid: Grid) -> list[dict[str, Any]]:
    """Every combination of one value of each key, the first key slowest; one empty cell of no keys."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def runs_folder(out: Path) -> Path:
    """Where the runs of all studies in a folder lie."""
    return out / "runs"
