"""All runs that a study may request, their recipes checked. Part of `limbeck.lab.study`."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from limbeck.data import load_task
from limbeck.lab.study import figure_checks, study_fields, study_file
from limbeck.lab.study.dev_search import DevSearch, SearchStorage, needs_optuna
from limbeck.lab.study.shared_runs import Held, StudyRun, name_of, taught_by
from limbeck.recipe import Recipe
from limbeck.recipe.load import read_raw
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.support.files import file_name
from limbeck.tasks import TASKS

# Which of a study's tasks are scored out of their domain as well.


log = logging.getLogger(__name__)


def tasks_beyond(study: study_fields.Study) -> dict[str, str]:
    """Task → the one that its models are also scored on: for a study whose table shows only such scores.

    For a folder with GLUE's files the sets in it count; a source that makes or fetches its rows has them all.

    Raises:
        LimbeckError: the folder has no such set, so that the table would be empty after all runs.
    """
    if study.table.out_of_domain != "alone":
        return {}
    wanted = {
        task: beyond
        for task in study.tasks
        if task in TASKS and (beyond := TASKS[task].out_of_domain) is not None
    }
    if study.data is None or not Path(study.data).is_dir():
        return wanted
    folder = study.data
    found = {task: beyond for task, beyond in wanted.items() if _lies_in(folder, beyond)}
    if wanted and not found:
        raise LimbeckError(
            f"table.out_of_domain: alone shows scores on {', '.join(wanted.values())}; {folder} has no folder of them",
            "put their folders next to the tasks' (format: docs/data.md), or use data: hub",
        )
    return found


def _lies_in(folder: str, task: str) -> bool:
    try:
        load_task(task, folder, for_training=False)
    except LimbeckError as error:  # missing or damaged: the problem must be visible
        log.warning("no score on %s: %s", task, error.problems[0].message)
        return False
    return True


TEACHER_LABEL = "teacher"
_TASK = "{task}"


class PlanBuilder:
    """Makes a plan; recipes that differ in their seed alone are checked once."""

    def __init__(self, study: study_fields.Study, folder: Path | None) -> None:
        self.study, self.storage = study, SearchStorage(folder)
        self.wrong: dict[Problem, list[str]] = {}
        self.asked: set[str] = set()
        self.made: dict[str, StudyRun] = {}
        self.tried: dict[str, study_fields.Group] = {}
        self.team = [] if study.teachers is None else list(study.teachers.team)
        self.beyond = tasks_beyond(study)

    def teachers_and_groups(self) -> tuple[dict[str, StudyRun], tuple[study_fields.Group, ...]]:
        """By task its teacher, and all groups. Raises LimbeckError with every problem of their recipes."""
        if self.study.select.search is not None:
            needs_optuna()
        self.made = self._teachers()
        groups = []
        for task in self.study.tasks:
            for condition in study_fields.cells_of(self.study.axes):
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
                **study_file.shared_settings(self.study, task),
                **model,
                **spec.settings,
            }
            settings |= {
                k.removeprefix(study_file.OF_TEACHERS): v
                for k, v in self.study.per_task.get(task, {}).items()
                if k.startswith(study_file.OF_TEACHERS)
            }
            for member, own in (spec.team or {TEACHER_LABEL: None}).items():
                said = {**settings, **(own or {})}
                grid = spec.grids.get(member, {}).get(task, spec.grid)
                run = self._teacher(member, task, said, grid)
                if run is not None:
                    made[f"{task} {member}" if spec.team else task] = run
        return made

    def _teacher(
        self, member: str, task: str, said: Mapping[str, Any], grid: study_fields.Grid
    ) -> StudyRun | None:
        """The run that makes a teacher, or the choice among the runs of a grid; None if a recipe is wrong."""
        tried = []
        for cell in study_fields.cells_of(grid):
            words = " ".join(f"{key}={value}" for key, value in cell.items())
            place, seeds = f"{member} of {task}", [said["seed"]]
            runs = self._runs("finetune", {**said, **cell}, seeds, None, member, place, words)
            tried.append((cell, tuple(runs)))
        runs = [run for _, own in tried for run in own]
        if len(tried) < 2 or len(runs) < len(tried):  # the problem is noted
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
        self.tried[chosen.name] = study_fields.Group(f"teacher {member}", task, {}, tuple(tried))
        return chosen

    def _needs(self, spec: study_fields.MethodSpec, method: str, task: str) -> "_Teachers":
        """A method's teachers, of the teachers made for the task."""
        if not self.team:
            one = self.made.get(task)
            return _Teachers(() if one is None else (one.name,))
        team = _has_team(method)
        named = spec.teachers or (self.team if team else [])
        there = [one for one in named if f"{task} {one}" in self.made]
        lead = there.index(spec.lead) if spec.lead in there else None
        return _Teachers(tuple(self.made[f"{task} {one}"].name for one in there), team, lead)

    def _group(self, label: str, task: str, condition: Mapping[str, Any]) -> study_fields.Group:
        study, spec = self.study, self.study.method_of(label)
        settings = study_file.student_settings(study, label, task, condition)
        at = None if study.teachers is None or study.teachers.at is None else study.teachers.at
        if settings.get("student.init") == study_fields.MODEL:
            settings["student.init"] = study.model
        if at is not None:
            settings["teacher"] = at.replace(_TASK, task)

        def runs_of(cell: study_fields.Cell) -> tuple[StudyRun, ...]:
            method = str(cell.get(study_fields.METHOD, spec.method or label))
            own = {key: value for key, value in cell.items() if key != study_fields.METHOD}
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
            return study_fields.Group(
                label,
                task,
                condition,
                tuple((cell, runs_of(cell)) for cell in study_fields.cells_of(grid)),
            )
        most = max(map(len, search.space.values()))
        known = tuple(
            (cell, runs_of(cell))
            for number in range(most)
            for cell in [{key: own[min(number, len(own) - 1)] for key, own in search.space.items()}]
        )
        if not all(runs for _, runs in known):  # the problem is noted
            return study_fields.Group(label, task, condition, known)
        of = f"{known[0][1][0].name} of {study.select.seeds}"
        searched = DevSearch(self.storage, search, of, runs_of)
        return study_fields.Group(label, task, condition, known, searched)

    def _runs(
        self,
        method: str,
        settings: Mapping[str, Any],
        seeds: list[int],
        taught: "_Teachers | None",
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
            if not self.team and first.team is not None and not (first.teachers or first.outputs):
                raise LimbeckError(
                    f"{first.method} learns from several teachers, and the study has no team of them",
                    "write teachers: {team: {small: {student.layers: 4}, large: {}}}, or another method",
                )
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
    """Whether a method learns from several teachers; an unreadable one is reported with its recipe."""
    try:
        return "team" in read_raw(method, {})
    except LimbeckError:
        return False


# From a study and the records that there are to the runs that are due: teachers, the choice on dev, all seeds.


@dataclass(frozen=True)
class StudyPlan:
    """All runs that a study may request, their recipes checked."""

    study: study_fields.Study
    teachers: Mapping[str, StudyRun]
    """By task, or by task and member of its team, `sst2 T10`."""
    groups: tuple[study_fields.Group, ...]
    tried: Mapping[str, study_fields.Group] = field(default_factory=dict)
    """By the name of a chosen teacher, the candidates for it."""

    @classmethod
    def of(cls, study: study_fields.Study, folder: Path | None = None) -> "StudyPlan":
        """Build every run of the study.

        Args:
            study: the user's study.
            folder: where its searches are stored; without one they are forgotten with the process.

        Raises:
            LimbeckError: the problems of its recipes, each once; a figure that needs data which a recipe lacks.
        """
        builder = PlanBuilder(study, folder)
        teachers, groups = builder.teachers_and_groups()
        problems = figure_checks.recipe_problems(study, groups)
        raise_problems(problems)
        return cls(study, teachers, groups, builder.tried)

    def teachers_of(self, task: str) -> list[StudyRun]:
        """The runs that make a task's teachers."""
        return [run for run in self.teachers.values() if run.settings["task"] == task]

    @property
    def trained_teachers(self) -> list[StudyRun]:
        """The runs that are trained for the teachers: of a choice all that are tried for it."""
        return [one for run in self.teachers.values() for one in run.tries or (run,)]

    @cached_property
    def choosing(self) -> int:
        """How many seeds the choice is made on."""
        return self.study.select.seeds

    @property
    def count(self) -> int:
        """How many runs the study is made of, teachers included."""
        found = {run.name for run in self.trained_teachers}
        extra = 0
        for group in self.groups:
            known = set()
            if group.search is None:
                deciding = self.choosing if group.chooses else None
                known = {run.name for _, runs in group.grid for run in runs[:deciding]}
            found |= known
            extra += group.wanted(self.choosing) - len(known)
        return len(found) + extra

    def choice(
        self, group: study_fields.Group, held: Held, ended: Callable[[str], bool]
    ) -> study_fields.Choice | None:
        """The cell of the grid that is best on dev; None until every run that decides has ended.

        By the mean of the primary dev score over the seeds that decide; a cell with a run that
        failed is not chosen where another has all of them. The first of equals.
        """
        tried = group.tried
        if not group.chooses:
            settings, runs = tried[0]
            return study_fields.Choice(group, settings, runs, ())
        if len(tried) < group.tries:
            return None
        scores: list[tuple[study_fields.Cell, float | None]] = []
        ranks = []
        for settings, runs in tried:
            values = self._deciding_scores(runs, held, ended)
            if values is None:
                return None
            mean = fmean(values) if values else None
            scores.append((settings, mean))
            ranks.append((len(values) == self.choosing, float("-inf") if mean is None else mean))
        best = max(range(len(ranks)), key=lambda number: ranks[number])
        settings, runs = tried[best]
        return study_fields.Choice(group, settings, runs, tuple(scores))

    def _deciding_scores(
        self, runs: Sequence[StudyRun], held: Held, ended: Callable[[str], bool]
    ) -> list[float] | None:
        """The deciding seeds' scores, of seeds that have one; None until all of them have ended."""
        deciding = runs[: self.choosing]
        if not all(ended(run.name) for run in deciding):
            return None
        records = [record for run in deciding if (record := held(run.name)) is not None]
        return [value for one in records if (value := one.primary_score("dev")) is not None]

    def advance(self, held: Held, ended: Callable[[str], bool], room: int) -> None:
        """Let every search suggest its next cells, so that `room` of its cells are open.

        A search whose teacher is not there yet waits.
        """

        def verdict(one: study_fields.Tried) -> study_fields.Verdict | None:
            values = self._deciding_scores(one[1], held, ended)
            if values is None:
                return None
            return study_fields.Verdict(fmean(values) if len(values) == self.choosing else None)

        for group in self.groups:
            if group.search is not None and group.sample.may_begin(held):
                group.search.advance(verdict, room)

    def due(self, held: Held, ended: Callable[[str], bool]) -> list[StudyRun]:
        """Runs that can be made now: they have no record, and everything they need exists.

        Teachers first, then the runs that the choice is made on, then one seed of everything after the
        other: a study that is stopped has complete rounds to compare.
        """
        found: dict[str, tuple[int, int, StudyRun]] = {}

        def want(run: StudyRun, rank: int, seed: int) -> None:
            if run.may_begin(held, ended) and not ended(run.name):
                found.setdefault(run.name, (rank, seed, run))

        for run in (*self.trained_teachers, *self.teachers.values()):
            want(run, 0, 0)
        for group in self.groups:
            choice = self.choice(group, held, ended)
            if choice is None:
                for _, runs in group.tried:
                    for number, run in enumerate(runs[: self.choosing]):
                        want(run, 1, number)
            else:
                for number, run in enumerate(choice.runs):
                    want(run, 2, number)
        return [run for _, _, run in sorted(found.values(), key=lambda item: item[:2])]

    def waiting(self, held: Held, ended: Callable[[str], bool]) -> list[StudyRun]:
        """Runs whose teacher has failed: they cannot be made."""
        lost: list[StudyRun] = []
        for group in self.groups:
            if not group.sample.lost(held, ended):
                continue
            choice = self.choice(group, held, ended)
            asked = group.tried or group.grid[:1]
            for _, runs in asked if choice is None else ((choice.settings, choice.runs),):
                lost += runs
        return list({run.name: run for run in lost if not ended(run.name)}.values())


def runs_folder(out: Path) -> Path:
    """The folder of the runs of all studies in a folder."""
    return out / "runs"
