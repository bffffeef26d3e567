"""Gives each teacher of a run the inputs that its own tokenizer makes, and says so. Part of `limbeck.run`.

The student's tokenizer makes the rows. A teacher whose tokenizer makes the same token ids finds what else it reads in
columns beside them, on whatever rows a stage has; one that splits texts otherwise reads the rows by its own tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from datasets import Dataset

from limbeck import preflight
from limbeck.data import Collator, add_inputs, encode
from limbeck.errors import Problem
from limbeck.model_inputs import ModelInputs
from limbeck.recipe import Recipe, Stage
from limbeck.run.stage_rows import StageRows
from limbeck.tasks import Processor, Task
from limbeck.teachers.teacher import OwnWords, Teacher

if TYPE_CHECKING:
    from limbeck.run.assemble import Assembly


def give_inputs(
    recipe: Recipe,
    assembly: Assembly,
    teacher: Teacher,
    tokenizer: Processor,
    *,
    progress: bool = False,
) -> None:
    """Let a teacher read the run's training rows as its own tokenizer makes them.

    Where it splits them into other tokens its answers can still be compared; not where inputs change from epoch to
    epoch, or an example has more than one answer.
    """
    task, rows = assembly.task, assembly.rows["train"]
    kind, length = task.kind, recipe.max_length
    teacher.inputs = teacher.own_words = None
    if not _tokens_differ(assembly, tokenizer):
        assembly.encoded["train"], teacher.inputs = add_inputs(
            assembly.encoded["train"],
            rows,
            task,
            assembly.tokenizer,
            tokenizer,
            length,
            progress=progress,
        )
    if teacher.inputs is None and kind.constant and not kind.redrawn:
        encoded, _ = encode(rows, task, tokenizer, length, progress=progress)
        teacher.own_words = OwnWords(encoded, Collator(tokenizer, kind=kind))


def give_all_inputs(recipe: Recipe, assembly: Assembly, *, progress: bool = False) -> None:
    """Let every teacher that is asked about the run's training rows read them in its own way."""
    for _, teacher, tokenizer in _readers(assembly):
        give_inputs(recipe, assembly, teacher, tokenizer, progress=progress)


def with_inputs(
    rows: StageRows,
    raw: Dataset,
    task: Task,
    assembly: Assembly,
    max_length: int,
    *,
    progress: bool,
) -> StageRows:
    """Rows of a stage's own, with what its teachers' tokenizers make of them."""
    encoded, found = rows.encoded, dict(rows.inputs)
    for _, teacher, tokenizer in _readers(assembly, first=True):
        if not _tokens_differ(assembly, tokenizer):
            encoded, found[id(teacher.model)] = add_inputs(
                encoded, raw, task, assembly.tokenizer, tokenizer, max_length, progress=progress
            )
    return replace(rows, encoded=encoded, inputs=found)


def _readers(
    assembly: Assembly, *, first: bool = False
) -> Iterator[tuple[str, Teacher, Processor]]:
    """What messages call each teacher, the teacher and its tokenizer; with `first` those of a first stage."""
    own = assembly.first_teacher, assembly.first_teacher_tokenizer
    if own[0] is not None and own[1] is not None and (first or assembly.first_rows is None):
        yield "teacher", own[0], own[1]
    if not first or own[0] is None or own[1] is None:
        for one in assembly.named:
            yield one.setting, one.teacher, one.tokenizer


def _tokens_differ(assembly: Assembly, tokenizer: Processor) -> bool:
    checks = preflight.INPUT_CHECKS[assembly.task.kind.reads.name]
    rows = assembly.rows["train"]
    found = checks.processors(assembly.task, rows, tokenizer, assembly.tokenizer, side="")
    return bool(preflight.errors_of(found))


# ---- what is said of it ----


def input_problems(assembly: Assembly, *, answers_only: bool) -> list[Problem]:
    """How teachers read the run's rows where that is not as the student does.

    Args:
        answers_only: nothing but teachers' answers is compared, so that tokens may differ.
    """
    problems = []
    for one in assembly.named:
        side, teacher = one.setting, one.teacher
        if teacher.inputs is not None:
            problems += _note(side, teacher.inputs)
        elif teacher.own_words is not None and answers_only:
            problems.append(
                Problem(
                    f"{side}: it splits texts otherwise than the student, so it reads every training row by "
                    "its own tokenizer, and its answers alone are compared",
                    "",
                    "note",
                )
            )
        elif not _tokens_differ(assembly, one.tokenizer):  # else pre-flight has said it
            problems.append(_rarely_alike(side))
    return problems


def stage_input_problems(stage: Stage, assembly: Assembly) -> list[Problem]:
    """The same of the rows, or the teacher, that a first stage has for itself."""
    if not stage.recipe.needs_teacher or (stage.same_rows and assembly.first_teacher is None):
        return []
    problems = []
    for side, teacher, tokenizer in _readers(assembly, first=True):
        rows = assembly.first_rows
        known = {id(teacher.model): teacher.inputs} if rows is None else rows.inputs
        inputs = known.get(id(teacher.model))
        if inputs is not None:
            problems += _note(side, inputs)
        elif not _tokens_differ(assembly, tokenizer):
            problems.append(_rarely_alike(side))
    return problems


def _note(side: str, inputs: ModelInputs) -> list[Problem]:
    said = []
    if inputs.own:
        said.append(f"is given {', '.join(inputs.own)} as its own tokenizer makes them")
    if inputs.absent:
        said.append(f"is not given {', '.join(sorted(inputs.absent))}, which its own does not make")
    if not said:
        return []
    words = " and ".join(said)
    return [Problem(f"{side}: it reads the student's tokens, {words}", "", "note")]


def _rarely_alike(side: str) -> Problem:
    return Problem(
        f"{side} and student split some training rows into different tokens, though their vocabularies agree",
        "save the student with the teacher's tokenizer, or compare answers alone (method kd)",
    )
