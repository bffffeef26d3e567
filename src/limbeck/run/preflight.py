"""Puts an assembled run before pre-flight: builds the terms once, on a few real examples.

Part of `limbeck.run`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path

from torch import Tensor

from limbeck import preflight
from limbeck.capture import Trace, capture
from limbeck.errors import LimbeckError, Problem
from limbeck.mapping import rounding_note
from limbeck.mixup import capture_mixed, draw
from limbeck.moment import Moment
from limbeck.objectives import MappedSpec, Shape, SoftSpec
from limbeck.recipe import Recipe, Stage
from limbeck.run.assemble import Assembly, learns_from_its_teacher
from limbeck.run.terms import objectives_of, shape_of
from limbeck.schedules import Ramp

_EXAMPLES = 8


def inspect_run(recipe: Recipe, assembly: Assembly, out: Path, *, show: bool) -> None:
    """Check everything before the first step; show what was found.

    Raises:
        LimbeckError: all errors, if there is one.
    """
    *before, last = recipe.stages()
    problems, method = _method(last, assembly)
    for stage in before:
        problems += [_in_stage(stage, problem) for problem in _inspect_stage(stage, assembly)]
    problems += _conditions(recipe, assembly)
    side = None
    asked = learns_from_its_teacher(recipe)
    if asked and assembly.teacher is not None and assembly.teacher_tokenizer:
        side = preflight.TeacherSide(assembly.teacher, assembly.teacher_tokenizer, recipe.teacher)
    problems += preflight.check(
        task=assembly.task,
        rows=assembly.rows,
        student=assembly.student,
        tokenizer=assembly.tokenizer,
        max_length=recipe.max_length,
        teacher=side,
        method=method,
        truncated=assembly.truncated,
        out=out,
    )
    errors = preflight.errors_of(problems)
    if errors:
        raise LimbeckError(problems)
    if show and problems:
        preflight.show(problems)


def _in_stage(stage: Stage, problem: Problem) -> Problem:
    """A problem with the keys as the user wrote them: `first_stage.objectives.…`."""
    own = problem.message.startswith("objectives")
    before = stage.setting if own else f"{stage.setting.rstrip('.')}: "
    fix = problem.fix.replace(" objectives.", f" {stage.setting}objectives.")
    return replace(problem, message=before + problem.message, fix=fix)


def _inspect_stage(stage: Stage, assembly: Assembly) -> list[Problem]:
    """What is wrong with a stage before the last: its terms, its teacher, its rows."""
    problems = _own_teacher(stage, assembly)
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
    teacher = assembly.teacher_of(stage)
    sides = {"student": assembly.student, "teacher": None if teacher is None else teacher.model}
    for side, model in sides.items():
        if model is not None:
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
        assembly.task, assembly.rows["train"], tokenizer, assembly.tokenizer
    )
    problems += checks.model("teacher", teacher.model, tokenizer, stage.recipe.max_length)
    theirs, ours = teacher.config.num_labels, assembly.student.config.num_labels
    if theirs != ours:
        problems += [
            Problem(
                f"objectives.{name}: the teacher has {theirs} outputs, the student {ours}",
                f"take it out, or leave {stage.setting}teacher out: the run's own teacher",
            )
            for name, term in stage.recipe.objectives.items()
            if isinstance(term, SoftSpec)
        ]
    return problems


def _conditions(recipe: Recipe, assembly: Assembly) -> list[Problem]:
    """Teacher and student on other rows of one task."""
    if not learns_from_its_teacher(recipe) or recipe.teacher_rows == "any":
        return []
    return preflight.check_conditions(recipe.teacher, assembly.task, recipe.conditions)


def _method(stage: Stage, assembly: Assembly) -> tuple[list[Problem], preflight.Method | None]:
    """The terms as pre-flight sees them, or the reasons why they cannot be built."""
    recipe, live = stage.recipe, assembly.teacher_of(stage)
    try:
        objectives = objectives_of(stage, assembly)
    except LimbeckError as error:
        return error.problems, None
    sides = ("student", "teacher", "clean")
    requests = {
        side: reduce(or_, (objectives.request(side, moment) for moment in _moments(recipe)))
        for side in sides
    }

    def terms(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        first, *_ = _moments(recipe)
        mixture = None
        if recipe.mixup is not None:
            device = assembly.student.device
            mixture = draw(recipe.mixup, len(next(iter(batch.values()))), first, device)
        seen = live(batch, requests["teacher"], mixture) if live is not None else Trace()
        own = (
            capture(assembly.student, batch, requests["student"])
            if mixture is None
            else capture_mixed(
                assembly.student, batch, requests["student"], mixture, requests["clean"]
            )
        )
        found: dict[str, Tensor] = {}
        for moment in _moments(recipe):
            # A term is looked at when it is first at work.
            found = objectives(own, seen, batch, moment) | found
        return found

    train = assembly.rows_of(stage).encoded
    few = train.select(range(min(_EXAMPLES, len(train))))
    method = preflight.Method(
        weights={name: _largest(weight) for name, weight in objectives.weights.items()},
        requests=requests,
        terms=terms,
        batch=assembly.rows_of(stage).collator(assembly.tokenizer)(list(few)),
        modules=(objectives,),
    )
    return _rounding(recipe, shape_of(stage, assembly)), method


def _moments(recipe: Recipe) -> tuple[Moment, ...]:
    """The start; and the end, if there is a curriculum, whose last terms work only then."""
    start = Moment(seed=recipe.seed)
    if recipe.curriculum is None:
        return (start,)
    return (start, Moment(seed=recipe.seed, progress=1.0, passes=math.inf))


def _largest(weight: float | Ramp) -> float:
    return max(weight.start, weight.end) if isinstance(weight, Ramp) else weight


def _rounding(recipe: Recipe, shape: Shape) -> list[Problem]:
    """A warning for every uniform map that had to round L/M."""
    notes = []
    for name, spec in recipe.objectives.items():
        if isinstance(spec, MappedSpec):
            note = rounding_note(
                spec.mapping,
                teacher_depth=shape.teacher.layers,
                student_depth=shape.student.layers,
            )
            if note is not None:
                fix = f"name the layers: objectives.{name}.mapping.kind=explicit"
                notes.append(Problem(f"objectives.{name}: {note}", fix, "warning"))
    return notes
