"""The models of a run: its teachers, the student, and what makes its input. Part of `limbeck.run`."""

from __future__ import annotations

from transformers import PreTrainedModel

from limbeck.recipe import Recipe, Stage
from limbeck.run.known_classes import names_at, names_for_students
from limbeck.run.named_teachers import (
    ALONE,
    Named,
    lead_model,
    learns_from_its_teacher,
    named_teachers,
)
from limbeck.run.stored_teachers import stored_teachers
from limbeck.run.student_source import Start, processor_of, start_of
from limbeck.students import build_student, load_model
from limbeck.support.errors import LimbeckError, unknown
from limbeck.tasks import Processor, Task
from limbeck.teachers.teacher import Teacher


def build_models(
    recipe: Recipe, task: Task, live_teacher: Teacher | None = None
) -> tuple[list[Named], PreTrainedModel, Processor]:
    """The teachers that the recipe names, the student and what makes its input.

    Raises:
        LimbeckError: a model that cannot be read or built, or an unknown `select_by`.
    """
    _check_selection(recipe, task)
    stored = bool(recipe.outputs) and learns_from_its_teacher(recipe)
    named = [] if stored else named_teachers(recipe, task, live_teacher)
    start = start_of(recipe, task)
    if stored:
        named = stored_teachers(recipe, task, start.tokenizer)
    lead = lead_model(recipe, task, named)
    teacher = named[0].teacher.model if learns_from_its_teacher(recipe) and named else None
    student = _student(recipe, task, names_for_students(teacher, task), start, lead)
    return named, student, start.tokenizer


def teacher_of_stage(recipe: Recipe, stage: Stage, task: Task) -> Named:
    """The teacher that one stage of the run names and no other, loaded."""
    path = str(stage.recipe.teacher)
    # Pretrained encoders teach too, as long as no term needs their logits.
    terms = stage.recipe.objectives.values()
    compared = any(term.reads_logits and term.needs_teacher for term in terms)
    model = load_model(path, head="required" if compared else "optional", auto=task.kind.auto)
    teacher = Teacher(model, dropout=recipe.teacher_dropout)
    return Named(ALONE, path, teacher, processor_of(recipe, task, path))


def _check_selection(recipe: Recipe, task: Task) -> None:
    choices = ("primary", *task.metrics)
    if recipe.select_by not in choices:
        raise LimbeckError(unknown("select_by", recipe.select_by, choices))


def _student(
    recipe: Recipe, task: Task, names: Task, start: Start, teacher: PreTrainedModel | None
) -> PreTrainedModel:
    """The student, its classes called as in `names`: a head that knows them by either name is kept."""
    spec = recipe.student
    renamed = names is not task and not spec.from_teacher
    own = names_at(start.init) if renamed and isinstance(start.init, str) else ()
    student = build_student(
        start.init,
        task=task if own == task.labels else names,
        layers=spec.layers,
        pick=spec.pick,
        config=spec.config,
        teacher=teacher,
        seed=recipe.seed,
        kind=task.kind,
    )
    if names is not task:
        student.config.id2label = dict(enumerate(names.labels))
        student.config.label2id = {name: number for number, name in enumerate(names.labels)}
    return student
