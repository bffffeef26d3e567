"""Puts an assembled run before pre-flight: builds the terms once, on a few real examples.

Part of `limbeck.run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from limbeck import preflight
from limbeck.capture import Trace, capture
from limbeck.data import Collator
from limbeck.engine import is_regression
from limbeck.errors import LimbeckError, Problem
from limbeck.mapping import rounding_note
from limbeck.moment import Moment
from limbeck.objectives import LayerSpec, ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.run.assemble import Assembly
from limbeck.schedules import Ramp

_EXAMPLES = 8


def inspect_run(recipe: Recipe, assembly: Assembly, out: Path, *, show: bool) -> None:
    """Check everything before the first step; show what was found.

    Raises:
        LimbeckError: all errors, if there is one.
    """
    problems, method = _method(recipe, assembly)
    side = None
    if recipe.needs_teacher and assembly.teacher is not None and assembly.teacher_tokenizer:
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


def _method(recipe: Recipe, assembly: Assembly) -> tuple[list[Problem], preflight.Method | None]:
    """The terms as pre-flight sees them, or the reasons why they cannot be built."""
    student = ModelShape.of(assembly.student)
    teacher = student if assembly.teacher is None else ModelShape.of(assembly.teacher)
    shape = Shape(student=student, teacher=teacher, regression=is_regression(assembly.student))
    try:
        with torch.random.fork_rng(devices=[]):
            objectives = Objectives(recipe.objectives, shape)
    except LimbeckError as error:
        return error.problems, None
    moment = Moment(seed=recipe.seed)
    live = assembly.live_teacher if recipe.needs_teacher else None
    requests = {side: objectives.request(side, moment) for side in ("student", "teacher")}

    def terms(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        seen = live(batch, requests["teacher"]) if live is not None else Trace()
        return objectives(
            capture(assembly.student, batch, requests["student"]), seen, batch, moment
        )

    train = assembly.encoded["train"]
    few = train.select(range(min(_EXAMPLES, len(train))))
    method = preflight.Method(
        weights={name: _largest(weight) for name, weight in objectives.weights.items()},
        requests=requests,
        terms=terms,
        batch=Collator(assembly.tokenizer)(list(few)),
        modules=(objectives,),
    )
    return _rounding(recipe, shape), method


def _largest(weight: float | Ramp) -> float:
    return max(weight.start, weight.end) if isinstance(weight, Ramp) else weight


def _rounding(recipe: Recipe, shape: Shape) -> list[Problem]:
    """A warning for every uniform map that had to round L/M."""
    notes = []
    for name, spec in recipe.objectives.items():
        if isinstance(spec, LayerSpec):
            note = rounding_note(
                spec.mapping,
                teacher_depth=shape.teacher.layers,
                student_depth=shape.student.layers,
            )
            if note is not None:
                fix = f"name the layers: objectives.{name}.mapping.kind=explicit"
                notes.append(Problem(f"objectives.{name}: {note}", fix, "warning"))
    return notes
