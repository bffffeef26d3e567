"""Puts an assembled run before pre-flight: builds the terms once, on a few real examples.

Part of `limbeck.run`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel

from limbeck import preflight
from limbeck.activations import Passes, Request, Trace, capture
from limbeck.errors import LimbeckError, Problem
from limbeck.input_transforms import StepInputs
from limbeck.objectives import Objectives, TeamObjectives
from limbeck.recipe import Recipe, Stage
from limbeck.recipe.stages import label_terms
from limbeck.run.assemble import Assembly
from limbeck.run.named_teachers import learns_from_its_teacher
from limbeck.run.stage_objectives import chain_problems, objectives_of
from limbeck.run.stage_passes import length_of
from limbeck.run.teacher_tokenization import input_problems, stage_input_problems
from limbeck.schedules import Ramp
from limbeck.step_state import StepState
from limbeck.students import labels_of
from limbeck.teachers import Team
from limbeck.teachers.teacher import Teacher

_EXAMPLES = 8


def inspect_run(recipe: Recipe, assembly: Assembly, out: Path, *, show: bool) -> None:
    """Check everything before the first step; show what was found.

    Raises:
        LimbeckError: all errors, if there is one.
    """
    *before, last = recipe.stages()
    problems, method = _method(last, assembly)
    problems += chain_problems(recipe, last, assembly)
    for stage in before:
        problems += [_in_stage(stage, problem) for problem in _inspect_stage(stage, assembly)]
    problems += [assembly.task.said] if assembly.task.said is not None else []
    problems += _conditions(recipe, assembly) + _inherited_labels(
        recipe, numbers=assembly.task.regression
    )
    problems += preflight.check_workers(recipe.workers)
    sides = {}
    if learns_from_its_teacher(recipe):
        sides = {
            one.setting: preflight.TeacherSide(
                one.teacher.model,
                one.tokenizer,
                one.path,
                own_words=one.teacher.own_words is not None and _answers_only(recipe),
            )
            for one in assembly.named
        }
        problems += input_problems(assembly, answers_only=_answers_only(recipe))
    problems += preflight.check(
        task=assembly.task,
        rows=assembly.rows,
        student=assembly.student,
        tokenizer=assembly.tokenizer,
        max_length=recipe.max_length,
        teachers=sides,
        method=method,
        truncated=assembly.truncated,
        out=out,
    )
    errors = preflight.errors_of(problems)
    if errors:
        raise LimbeckError(problem for problem in problems if problem.severity != "note")
    if show and problems:
        preflight.show(problems)


def _answers_only(recipe: Recipe) -> bool:
    """Whether every stage asks teachers for nothing but their answers to the run's own rows."""
    return all(
        stage.same_rows
        and stage.recipe.transform is None
        and all(not term.needs_layers for term in stage.recipe.objectives.values())
        for stage in recipe.stages()
        if stage.recipe.needs_teacher
    )


def _in_stage(stage: Stage, problem: Problem) -> Problem:
    """A problem with the keys as the user wrote them: `first_stage.objectives.…`."""
    own = problem.message.startswith("objectives")
    before = stage.setting if own else f"{stage.setting.rstrip('.')}: "
    fix = problem.fix.replace(" objectives.", f" {stage.setting}objectives.")
    return replace(problem, message=before + problem.message, fix=fix)


def _inspect_stage(stage: Stage, assembly: Assembly) -> list[Problem]:
    """What is wrong with a stage before the last: its terms, its teacher, its rows."""
    problems = _own_teacher(stage, assembly) + stage_input_problems(stage, assembly)
    rows = assembly.rows_of(stage)
    if not stage.same_rows and rows.truncated:
        problems.append(
            Problem(
                f"{rows.truncated} of {len(rows.encoded)} examples are cut to max_length "
                f"{stage.recipe.max_length}",
                "raise max_length, or accept the loss",
                "warning",
            )
        )
    if preflight.errors_of(problems):
        return problems
    found, method = _method(stage, assembly)
    problems += found
    if method is None or method.terms is None or method.batch is None:
        return problems
    models = {"student": assembly.student} | _models_of(stage, assembly)
    for side, model in models.items():
        problems += preflight.check_request(side, model, method.requests[side])
    problems += preflight.check_weights(method.weights)
    if not preflight.errors_of(problems):
        problems += preflight.check_influence(
            method.terms, method.weights, assembly.student, method.batch, method.modules
        )
    return problems


def _own_teacher(stage: Stage, assembly: Assembly) -> list[Problem]:
    """What is wrong between the student and a teacher that this stage alone has."""
    teacher, tokenizer = assembly.first_teacher, assembly.first_teacher_tokenizer
    if teacher is None or tokenizer is None:
        return []
    checks = preflight.INPUT_CHECKS[assembly.task.kind.reads.name]
    problems = checks.processors(
        assembly.task, assembly.rows["train"], tokenizer, assembly.tokenizer, side="teacher"
    )
    limit = stage.recipe.max_length
    problems += checks.model("teacher", teacher.model, tokenizer, limit)
    models = {"teacher": teacher.model}
    problems += checks.lengths(assembly.task, assembly.rows, tokenizer, models, limit)
    theirs, ours = teacher.config.num_labels, assembly.student.config.num_labels
    compared = [
        name
        for name, term in stage.recipe.objectives.items()
        if term.reads_logits and term.needs_teacher
    ]
    # The student's names are the task's or, by the answers, mean the same.
    if (
        compared
        and theirs == ours
        and labels_of(teacher.config) != labels_of(assembly.student.config)
    ):
        problems += preflight.check_labels("teacher", teacher.config, assembly.task)
    if theirs != ours:
        problems += [
            Problem(
                f"objectives.{name}: the teacher has {theirs} outputs, the student {ours}",
                f"take it out, or leave {stage.setting}teacher out: the run's own teacher",
            )
            for name in compared
        ]
    return problems


def _conditions(recipe: Recipe, assembly: Assembly) -> list[Problem]:
    """Teacher and student on other rows of one task."""
    if not learns_from_its_teacher(recipe) or recipe.teacher_rows == "any":
        return []
    return [
        problem
        for one in assembly.named
        for problem in preflight.check_conditions(
            one.path, assembly.task, recipe.conditions, setting=one.setting
        )
    ]


def _models_of(stage: Stage, assembly: Assembly) -> dict[str, PreTrainedModel]:
    """The teachers of a stage by what messages call them."""
    teacher = assembly.teacher_of(stage)
    if isinstance(teacher, Team):
        members = zip(teacher.names, teacher.members, strict=True)
        return {f"teacher {name}": member.model for name, member in members}
    return {} if teacher is None else {"teacher": teacher.model}


def _inherited_labels(recipe: Recipe, *, numbers: bool) -> list[Problem]:
    """Terms that will read the labels of copies with other words."""
    if recipe.augment is None:
        return []
    return [
        Problem(
            f"{stage.setting}objectives.{name}: a copy has the label of the row it was made from, "
            "which its other words may contradict",
            f"learn from the teacher's answers alone, {stage.setting}objectives.{name}=null; or "
            "accept it",
            "warning",
        )
        for stage in recipe.stages()
        if stage.same_rows
        for name in label_terms(stage.recipe.objectives, numbers=numbers)
    ]


def _method(stage: Stage, assembly: Assembly) -> tuple[list[Problem], preflight.Method | None]:
    """The terms as pre-flight sees them, or the reasons why they cannot be built."""
    recipe, live = stage.recipe, assembly.teacher_of(stage)
    try:
        objectives = objectives_of(stage, assembly)
    except LimbeckError as error:
        return error.problems, None
    turns = list(_turns(live))
    moments = [replace(at, teacher=turn) for turn, _ in turns for at in _moments(recipe)]

    def wanted(side: str, turn: int | None = None) -> Request:
        asked = (at for at in moments if turn in (None, at.teacher))
        return reduce(or_, (objectives.request(side, at) for at in asked))

    def terms(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        first, *_ = moments
        student = assembly.student
        inputs = StepInputs.of(batch, recipe.transform, first, student.device)
        asked_of_student = wanted("student") | inputs.sees_first(student)
        run = partial(capture, student)
        own = inputs.of_student(student, asked_of_student, wanted("clean"), run, Passes())
        inputs = inputs.after(own)
        found: dict[str, Tensor] = {}
        for turn, label in turns:
            asked = replace(first, teacher=turn)
            seen = Trace() if live is None else live.at(asked)(inputs, wanted("teacher", turn))
            for step_state in (at for at in moments if at.teacher == turn):
                # A term is looked at when it is first at work.
                now = objectives(own, seen, batch, step_state)
                found = {f"{name}{label}": term for name, term in now.items()} | found
        return found

    train = assembly.rows_of(stage).encoded
    few = train.select(range(min(_EXAMPLES, len(train))))
    width, models = recipe.padded_width, {"student": assembly.student}
    too_wide = [
        problem
        for side, model in (models | _models_of(stage, assembly)).items()
        for problem in preflight.check_padding(side, model, width)
    ]
    collate = assembly.rows_of(stage).collator(assembly.tokenizer, width)
    method = preflight.Method(
        weights={
            f"{name}{label}": _largest(weight)
            for turn, label in turns
            for name, weight in objectives.of(turn).weights.items()
        },
        requests={"student": wanted("student"), "clean": wanted("clean")}
        | {
            side: wanted("teacher", place if len(turns) > 1 else 0)
            for place, side in enumerate(_models_of(stage, assembly))
        },
        terms=terms,
        # No model reads a batch that it has no positions for.
        batch=None if too_wide else collate(list(few)),
        modules=(objectives,),
    )
    if method.batch is not None and recipe.transform is not None:
        shown = recipe.transform.problems(method.batch, models | _models_of(stage, assembly))
        if preflight.errors_of(shown):
            return shown, None
        too_wide += shown
    notes = objectives.remarks() + too_wide
    return notes + _too_short(recipe, objectives, len(train)), method


def _too_short(recipe: Recipe, objectives: Objectives | TeamObjectives, rows: int) -> list[Problem]:
    """A warning where layers that learn in turn cannot have whole epochs."""
    if objectives.curriculum is None or not rows:
        return []
    note = objectives.curriculum.note(length_of(recipe, rows))
    return [] if note is None else [note]


def _moments(recipe: Recipe) -> tuple[StepState, ...]:
    """The start; and the end, if there is a curriculum, whose last terms work only then."""
    start = StepState(seed=recipe.seed)
    if recipe.curriculum is None:
        return (start,)
    return (start, StepState(seed=recipe.seed, progress=1.0, passes=math.inf))


def _largest(weight: float | Ramp) -> float:
    return max(weight.start, weight.end) if isinstance(weight, Ramp) else weight


def _turns(teacher: Teacher | Team | None) -> Iterator[tuple[int, str]]:
    """Who may be asked alone, and what stands behind a term's name then."""
    if isinstance(teacher, Team) and teacher.separate:
        yield from ((turn, f" (teacher {name})") for turn, name in enumerate(teacher.names))
    else:
        yield 0, ""
