"""All runs that a study may ask for, their recipes checked. Part of `limbeck.lab.study`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.lab.study.beyond_domain import tasks_beyond
from limbeck.lab.study.dev_search import DevSearch, SearchStorage, needs_optuna
from limbeck.lab.study.shared_runs import StudyRun, name_of, taught_by
from limbeck.lab.study.student_settings import OF_TEACHERS, shared_settings, student_settings
from limbeck.lab.study.study_fields import METHOD, MODEL, Grid, MethodSpec, Study
from limbeck.lab.study.study_groups import Cell, Group, cells_of
from limbeck.recipe import Recipe
from limbeck.recipe.load import read_raw
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import file_name

TEACHER_LABEL = "teacher"
_TASK = "{task}"


class PlanBuilder:
    """Makes a plan; recipes that differ in their seed alone are checked once."""

    def __init__(self, study: Study, folder: Path | None) -> None:
        self.study, self.storage = study, SearchStorage(folder)
        self.wrong: dict[Problem, list[str]] = {}
        self.asked: set[str] = set()
        self.made: dict[str, StudyRun] = {}
        self.tried: dict[str, Group] = {}
        self.team = [] if study.teachers is None else list(study.teachers.team)
        self.beyond = tasks_beyond(study)

    def teachers_and_groups(self) -> tuple[dict[str, StudyRun], tuple[Group, ...]]:
        """By task its teacher, and all groups. Raises LimbeckError with every problem of their recipes."""
        if self.study.select.search is not None:
            needs_optuna()
        self.made = self._teachers()
        groups = []
        for task in self.study.tasks:
            for condition in cells_of(self.study.axes):
                for label in self.study.methods:
                    groups.append(self._group(label, task, condition))
        if self.wrong:
            raise LimbeckError(
                [
                    problem
                    if len(places) == len(self.asked) > 1
                    else Problem(f"{', '.join(places)}: {problem.message}", problem.fix)
                    for problem, places in self.wrong.items()
                ]
            )
        return self.made, tuple(groups)

    def _teachers(self) -> dict[str, StudyRun]:
        spec = self.study.teachers
        if spec is None or spec.at is not None:
            return {}
        made = {}
        for task in self.study.tasks:
            model = {} if self.study.model is None else {"student.init": self.study.model}
            settings = {
                "seed": self.study.seeds[0],
                **shared_settings(self.study, task),
                **model,
                **spec.settings,
            }
            settings |= {
                k.removeprefix(OF_TEACHERS): v
                for k, v in self.study.per_task.get(task, {}).items()
                if k.startswith(OF_TEACHERS)
            }
            for member, own in (spec.team or {TEACHER_LABEL: None}).items():
                said = {**settings, **(own or {})}
                grid = spec.grids.get(member, {}).get(task, spec.grid)
                run = self._teacher(member, task, said, grid)
                if run is not None:
                    made[f"{task} {member}" if spec.team else task] = run
        return made

    def _teacher(
        self, member: str, task: str, said: Mapping[str, Any], grid: Grid
    ) -> StudyRun | None:
        """The run that makes a teacher, or the choice among those of a grid; None where a recipe is wrong."""
        tried = []
        for cell in cells_of(grid):
            words = " ".join(f"{key}={value}" for key, value in cell.items())
            place, seeds = f"{member} of {task}", [said["seed"]]
            runs = self._runs("finetune", {**said, **cell}, seeds, None, member, place, words)
            tried.append((cell, tuple(runs)))
        runs = [run for _, own in tried for run in own]
        if len(tried) < 2 or len(runs) < len(tried):  # what is wrong is noted
            return runs[0] if runs else None
        names = tuple(run.name for run in runs)
        digest = hashlib.blake2b(" ".join(names).encode(), digest_size=5).hexdigest()
        chosen = StudyRun(
            name=file_name(f"{task}-finetune-best-s{said['seed']}-{digest}"),
            method="finetune",
            settings=said,
            label=member,
            needs=names,
            role="teacher",
            beyond=runs[0].beyond,
            tries=tuple(runs),
        )
        self.tried[chosen.name] = Group(f"teacher {member}", task, {}, tuple(tried))
        return chosen

    def _needs(self, spec: MethodSpec, method: str, task: str) -> _Teachers:
        """What a method learns from, of what is made for the task."""
        if not self.team:
            one = self.made.get(task)
            return _Teachers(() if one is None else (one.name,))
        team = _has_team(method)
        named = spec.teachers or (self.team if team else [])
        there = [one for one in named if f"{task} {one}" in self.made]
        lead = there.index(spec.lead) if spec.lead in there else None
        return _Teachers(tuple(self.made[f"{task} {one}"].name for one in there), team, lead)

    def _group(self, label: str, task: str, condition: Mapping[str, Any]) -> Group:
        study, spec = self.study, self.study.method_of(label)
        settings = student_settings(study, label, task, condition)
        at = None if study.teachers is None or study.teachers.at is None else study.teachers.at
        if settings.get("student.init") == MODEL:
            settings["student.init"] = study.model
        if at is not None:
            settings["teacher"] = at.replace(_TASK, task)

        def runs_of(cell: Cell) -> tuple[StudyRun, ...]:
            method = str(cell.get(METHOD, spec.method or label))
            own = {key: value for key, value in cell.items() if key != METHOD}
            return tuple(
                self._runs(
                    method,
                    {**settings, **own},
                    study.seeds,
                    self._needs(spec, method, task),
                    label,
                    f"{label} on {task}",
                    " ".join(f"{key}={value}" for key, value in cell.items()),
                )
            )

        search = study.select.search if spec.grid is None else None
        if search is None:
            grid = spec.grid if spec.grid is not None else study.select.grid
            return Group(
                label, task, condition, tuple((cell, runs_of(cell)) for cell in cells_of(grid))
            )
        most = max(map(len, search.space.values()))
        known = tuple(
            (cell, runs_of(cell))
            for number in range(most)
            for cell in [{key: own[min(number, len(own) - 1)] for key, own in search.space.items()}]
        )
        if not all(runs for _, runs in known):  # what is wrong is noted
            return Group(label, task, condition, known)
        of = f"{known[0][1][0].name} of {study.select.seeds}"
        searched = DevSearch(self.storage, search, of, runs_of)
        return Group(label, task, condition, known, searched)

    def _runs(
        self,
        method: str,
        settings: Mapping[str, Any],
        seeds: list[int],
        taught: _Teachers | None,
        label: str,
        place: str,
        cell: str = "",
    ) -> list[StudyRun]:
        """One run for each seed; `taught` is None of a run that makes a teacher."""
        self.asked.add(place)
        teachers = taught or _Teachers(())
        needs, team, lead = teachers
        named = taught_by(*teachers)
        role = "teacher" if taught is None else "student"
        try:
            first = Recipe.load(method, **{**named, **settings, "seed": seeds[0]})
            if self.team and taught is not None and not team:
                _check_one_teacher(first, teachers, self.team)
        except LimbeckError as error:
            for problem in error.problems:
                places = self.wrong.setdefault(problem, [])
                if place not in places:
                    places.append(place)
            return []
        beyond = self.beyond.get(str(first.task), "")
        return [
            StudyRun(
                name_of(first.model_copy(update={"seed": seed}), named, role, beyond),
                method,
                {**settings, "seed": seed},
                label,
                needs,
                team,
                role,
                cell,
                beyond,
                lead,
            )
            for seed in seeds
        ]


class _Teachers(NamedTuple):
    """The runs that make a run's teachers, whether it learns from several, and which of them leads."""

    needs: tuple[str, ...]
    team: bool = False
    lead: int | None = None


def _check_one_teacher(recipe: Recipe, taught: _Teachers, team: Sequence[str]) -> None:
    """Raises LimbeckError where a method that learns from one teacher names none of a team, several, or a lead."""
    needs = taught.needs
    if taught.lead is not None:
        raise LimbeckError(
            f"lead: {recipe.method} learns from one teacher, which none leads", "leave it out"
        )
    if len(needs) > 1 or (not needs and recipe.needs_teacher):
        raise LimbeckError(
            f"{recipe.method} learns from one teacher, and {len(needs) or 'none'} of the team is named",
            f"name one of {', '.join(team)}: teachers: [{team[0]}]",
        )


def _has_team(method: str) -> bool:
    """Whether a method learns from several teachers; one that cannot be read is said with its recipe."""
    try:
        return "team" in read_raw(method, {})
    except LimbeckError:
        return False
