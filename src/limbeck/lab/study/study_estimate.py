"""The cost of a study: runs, hours from a measured training step, disk."""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from limbeck.lab.study import figure_checks, study_checks
from limbeck.lab.study.measured_step import StepCost, UntrainedRun, measure, untrained
from limbeck.lab.study.plan_builder import StudyPlan
from limbeck.lab.study.shared_runs import SharedRuns, StudyRun
from limbeck.lab.study.study_fields import Group
from limbeck.records import Record
from limbeck.support import files, words, workers
from limbeck.support.errors import LimbeckError, Problem, collecting, raise_problems

_FP32 = 4
_IN_FLIGHT = 8
"""Copies of a model's weights that a run has on disk at most: two checkpoints, each of the weights and the
optimiser's two moments, and the student while it is written."""

_CHECKED = {"method", "objectives", "curriculum", "first_stage", "joint", "team", "seed"}
"""Keys of a recipe that its terms and the rows of its first stage depend on."""

KindOfRun = tuple[str, str, str]
"""Role, task and label: runs of one kind take as long, but for their student's size."""


@dataclass(frozen=True)
class StudyEstimate:
    """The facts that are known before the first run.

    Attributes:
        runs: number of all runs.
        held: number of runs with a record.
        seconds: of one run by kind, as measured on a step, or from records of such runs.
        left: seconds of all remaining runs, one after the other.
        disk: bytes: teachers, checkpoints of the runs at work, and students if they are kept.
        device: where the step was measured; None where nothing is left to be made.
    """

    runs: int
    held: int
    seconds: Mapping[KindOfRun, float]
    left: float
    disk: float
    device: str | None

    def lines(self, jobs: int) -> list[str]:
        """The same in words."""
        if self.device is None:
            return [f"{words.count_of(self.runs, 'run')}, all of them held by records already"]
        hours = spoken_hours(self.left / jobs)
        parallel = f" with {jobs} processes in parallel" if jobs > 1 else ""
        return [
            f"{words.count_of(self.runs, 'run')}, {self.held} of them held by records already",
            f"about {hours}{parallel} for the rest, from a measured step on {self.device}",
            f"about {words.human_size(self.disk)} of disk for teachers and checkpoints, and more for stored teacher "
            "outputs if they pay (cache_limit)",
        ]


def spoken_hours(seconds: float) -> str:
    """`3 min`, `2.4 h`, `12 days`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.1f} days"


def kind_of(run: StudyRun, recipe_layers: Any = None) -> KindOfRun:
    """Which runs take about as long as this one."""
    depth = run.settings.get("student.layers", recipe_layers)
    label = run.label if depth is None else f"{run.label}|{depth}"
    return run.role, str(run.settings.get("task")), label


def estimate(
    plan: StudyPlan, runs: SharedRuns, jobs: int = 1, say: Callable[[str], None] = lambda line: None
) -> StudyEstimate:
    """Measure a step of each task's teacher and student, and add up.

    Rows are loaded, models and terms built on the way, so that missing or unsuitable inputs are known
    before hours have passed. `say` is called with a description of each measurement.

    Raises:
        LimbeckError: rows or models that cannot be loaded, all together; too little room on the disk.
    """
    seconds: dict[KindOfRun, float] = {}
    costs: dict[str, StepCost] = {}
    problems: list[Problem] = []
    open_tasks = [task for task in plan.study.tasks if _is_open(plan, task, runs)]
    with (
        _threads(len(workers.parts_of_cores(jobs)[0])),
        tempfile.TemporaryDirectory(prefix="limbeck-study-") as place,
    ):
        for task in open_tasks:
            say(f"measuring a step of {task}")
            with collecting(problems):
                costs |= _of_task(plan, task, Path(place) / task, runs, seconds)
    if problems:
        raise LimbeckError(list(dict.fromkeys(problems)))
    seconds |= observed(plan, runs)
    left, held = _left(plan, runs, seconds)
    disk = _disk(plan, runs, costs, jobs)
    free = files.free_bytes(runs.path)
    if disk > free:
        raise LimbeckError(
            f"out: {runs.path} has {words.human_size(free)} free, and the study needs about {words.human_size(disk)}",
            "make room, choose another folder with --out, or fewer --jobs",
        )
    device = next((cost.device for cost in costs.values()), None)
    return StudyEstimate(plan.count, held, seconds, left, disk, device)


def observed(plan: StudyPlan, runs: SharedRuns) -> dict[KindOfRun, float]:
    """Mean seconds of the runs whose records are there, by kind."""
    found: dict[KindOfRun, list[float]] = {}
    for run in all_runs(plan):
        record = held_or_none(runs, run.name)
        if record is not None and record.cost.total_seconds is not None:
            found.setdefault(kind_of(run), []).append(record.cost.total_seconds)
    return {kind: statistics.fmean(values) for kind, values in found.items()}


def all_runs(plan: StudyPlan) -> list[StudyRun]:
    """Every run that the plan may request, each once."""
    found = {run.name: run for run in plan.trained_teachers}
    for group in plan.groups:
        found |= {run.name: run for _, runs in group.tried for run in runs}
    return list(found.values())


def held_or_none(runs: SharedRuns, name: str) -> Record | None:
    """The record of a finished run; a damaged one does not count, and making the run reports it."""
    try:
        return runs.held(name)
    except LimbeckError:
        return None


def _left(
    plan: StudyPlan, runs: SharedRuns, seconds: Mapping[KindOfRun, float]
) -> tuple[float, int]:
    """Seconds of the runs without records, and the number of the study's runs with records."""
    total, held = 0.0, 0
    for run in plan.trained_teachers:
        is_there = held_or_none(runs, run.name) is not None
        held += is_there
        total += 0.0 if is_there else seconds[kind_of(run)]
    for group in plan.groups:
        own = group.sample
        wanted, there = _needed(group, plan, runs)
        held += there
        total += (wanted - there) * seconds.get(kind_of(own), 0.0)
    return total, held


def _is_open(plan: StudyPlan, task: str, runs: SharedRuns) -> bool:
    """Whether anything of a task is still to be made."""
    if any(held_or_none(runs, run.name) is None for run in plan.teachers_of(task)):
        return True
    needed = (_needed(group, plan, runs) for group in plan.groups if group.task == task)
    return any(there < wanted for wanted, there in needed)


def _needed(group: Group, plan: StudyPlan, runs: SharedRuns) -> tuple[int, int]:
    """How many runs a group is made of, and how many of them are held."""
    wanted = group.wanted(plan.choosing)
    names = {run.name for _, made in group.tried for run in made}
    there = sum(held_or_none(runs, name) is not None for name in names)
    return wanted, min(wanted, there)


def _of_task(
    plan: StudyPlan, task: str, place: Path, runs: SharedRuns, seconds: dict[KindOfRun, float]
) -> dict[str, StepCost]:
    """Steps of the task's teacher and of one student of each size, with seconds of every kind of run."""
    costs: dict[str, StepCost] = {}
    made: dict[str, str] = {}
    unfit: list[Problem] = []
    stage_rows_seen: dict[str, list[Problem]] = {}
    for number, teacher in enumerate(plan.teachers_of(task)):
        recipe = teacher.recipe(runs.path)
        made[teacher.name] = str(place / str(number))
        costs[teacher.name] = cost = measure(recipe, untrained(recipe), save_as=place / str(number))
        seconds[kind_of(teacher)] = cost.seconds(recipe)
    checked: set[str] = set()
    loaded: tuple[str, UntrainedRun] | None = None  # one at a time: a team of large models is large
    # The first cell of a grid is measured; the others are checked where they have other terms, rows or models.
    cells = [
        (group, own[0]) for group in plan.groups if group.task == task for _, own in group.grid
    ]
    for group, run in cells:
        recipe = run.recipe(runs.path)
        if run.needs:  # not made yet: its untrained start is as large
            recipe = run.recipe_with([made[name] for name in run.needs])
            if recipe.student.init == "pretrained":
                student = recipe.student.model_copy(update={"init": made[run.needs[0]]})
                recipe = recipe.model_copy(update={"student": student})
        start = f"{task} {recipe.student.model_dump_json()}"
        key = f"{start} {recipe.batch_size} {recipe.needs_teacher}"
        layered = any(
            term.needs_teacher and term.needs_layers
            for stage in recipe.stages()
            for term in stage.recipe.objectives.values()
        )
        taught = f"{recipe.teacher} {recipe.teachers}" if layered else ""
        said = f"{start} {taught} {recipe.model_dump_json(include=_CHECKED)}"
        first = run is group.sample
        if (first and key not in costs) or said not in checked:
            models = f"{start} {recipe.teacher} {recipe.teachers} {recipe.needs_teacher}"
            if loaded is None or loaded[0] != models:
                loaded = models, untrained(recipe)
            if first and key not in costs:
                costs[key] = measure(recipe, loaded[1])
            if said not in checked:
                checked.add(said)
                unfit += [
                    replace(one, message=f"{run.label} on {task}: {one.message}")
                    for one in (
                        *study_checks.term_problems(recipe, loaded[1]),
                        *study_checks.row_problems(recipe, loaded[1], stage_rows_seen),
                    )
                ]
        if first:
            teachers = [costs[name] for name in run.needs if name in costs]
            seconds[kind_of(run)] = costs[key].seconds(recipe, teachers)
    problems = unfit + figure_checks.split_problems(
        plan.study, task, next(iter(costs.values())).splits
    )
    raise_problems(problems)
    return costs


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """As many as a run will have."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(before, count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _disk(plan: StudyPlan, runs: SharedRuns, costs: Mapping[str, StepCost], jobs: int) -> float:
    teachers = sum(
        costs[run.name].parameters * _FP32
        for run in plan.teachers.values()
        for one in run.tries or (run,)
        if held_or_none(runs, one.name) is None
    )
    largest = max((cost.parameters for cost in costs.values()), default=0) * _FP32
    kept = (
        largest * sum(group.wanted(plan.choosing) * _kept(group) for group in plan.groups)
        if plan.study.keep_students
        else 0
    )
    return teachers + _IN_FLIGHT * largest * jobs + kept


def _kept(group: Group) -> int:
    """How many models a run of these leaves behind."""
    return 1 + group.sample.recipe_with(group.sample.needs).keep_first_stage
