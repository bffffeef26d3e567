"""Binds teachers to rows: each reads what its own tokenizer makes of them, and says so. Part of `limbeck.run`.

The student's tokenizer makes the rows. A teacher whose tokenizer makes the same token ids finds what else it reads in
columns beside them, on whatever rows a stage has; one that splits texts otherwise reads the rows by its own tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from datasets import Dataset

from limbeck import preflight
from limbeck.data import Collator, add_inputs, encode
from limbeck.run.known_rows import bound_to
from limbeck.run.rows import EncodedRows
from limbeck.run.teachers import Named
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import Processor, Task, TaskType
from limbeck.teachers.teacher import ModelInputs, OwnTokens


@dataclass(frozen=True)
class StudentTokens:
    """What makes the student's tokens, and the run's rows, to hold other tokenizers against."""

    tokenizer: Processor
    task: Task
    rows: Dataset

    def differ(self, tokenizer: Processor) -> bool:
        """Whether another tokenizer splits the rows otherwise."""
        checks = preflight.INPUT_CHECKS[self.task.kind.reads.name]
        found = checks.processors(self.task, self.rows, tokenizer, self.tokenizer, side="")
        return bool(preflight.errors_of(found))


def bound(
    rows: EncodedRows,
    readers: Sequence[Named],
    tokens: StudentTokens,
    *,
    own_tokens: bool,
    progress: bool = False,
) -> tuple[EncodedRows, list[Named]]:
    """Rows with what each teacher's tokenizer makes of them, and the teachers as they read these rows.

    Args:
        own_tokens: a teacher that splits the rows into other tokens reads them by its own tokenizer, so that its
            outputs can still be compared; not where inputs change from epoch to epoch, or an example has more than one
            answer. Otherwise it is given the student's.
    """
    kind, length, found = rows.kind, rows.max_length, []
    for one in readers:
        if one.stored:
            found.append(bound_to(one, rows))
            continue
        reading = kind.of_teacher(one.teacher.model.config)
        if reading is not kind:
            found.append(_reading(one, rows, reading, own_tokens=own_tokens, progress=progress))
            continue
        inputs, words = None, None
        if not tokens.differ(one.tokenizer):
            # Rows that are encoded in their turn have one tokenizer on both sides.
            encoded, inputs = add_inputs(
                rows.encoded,
                rows.raw,
                rows.task,
                tokens.tokenizer,
                one.tokenizer,
                length,
                progress=progress,
            )
            rows = replace(rows, encoded=encoded)
        if inputs is None and own_tokens and kind.repeats:
            theirs, _ = encode(rows.raw, rows.task, one.tokenizer, length, progress=progress)
            words = OwnTokens(theirs, Collator(one.tokenizer, kind=kind))
        found.append(replace(one, teacher=one.teacher.reading(inputs, words)))
    return rows, found


def _reading(
    one: Named, rows: EncodedRows, kind: TaskType, *, own_tokens: bool, progress: bool
) -> Named:
    """A teacher that reads the rows' examples as another type of task has them.

    Raises:
        LimbeckError: it cannot have inputs of its own here.
    """
    if not own_tokens:
        raise LimbeckError(
            f"{one.setting}: a cross-encoder reads a query with a passage, and these rows have the student's texts",
            "let it teach on the run's own rows",
        )
    task = replace(rows.task, kind=kind)
    theirs, _ = encode(rows.raw, task, one.tokenizer, rows.max_length, progress=progress)
    words = OwnTokens(theirs, Collator(one.tokenizer, kind=kind))
    return replace(one, teacher=one.teacher.reading(None, words))


# ---- what is said of it ----


def input_problems(
    named: Sequence[Named], tokens: StudentTokens, *, logits_only: bool
) -> list[Problem]:
    """How teachers read the run's rows where that is not as the student does.

    Args:
        named: the teachers, bound to these rows.
        logits_only: nothing but teachers' outputs is compared, so that tokens may differ.
    """
    problems = []
    for one in named:
        side, teacher = one.setting, one.teacher
        if one.stored:  # it reads no tokens
            continue
        if tokens.task.kind.of_teacher(teacher.model.config) is not tokens.task.kind:
            problems += _of_pairs(side, logits_only=logits_only)
            continue
        if teacher.inputs is not None:
            problems += _note(side, teacher.inputs)
        elif teacher.own_tokens is not None and logits_only:
            problems.append(
                Problem(
                    f"{side}: it splits texts otherwise than the student, so it reads every training row by "
                    "its own tokenizer, and its logits alone are compared",
                    "",
                    "note",
                )
            )
        elif not tokens.differ(one.tokenizer):  # else pre-flight has said it
            problems.append(_rarely_alike(side))
    return problems


def stage_input_problems(readers: Sequence[Named], tokens: StudentTokens) -> list[Problem]:
    """The same of the rows, or the teacher, that a first stage has for itself: it reads the student's tokens."""
    problems = []
    for one in readers:
        if one.stored:
            continue
        found = one.teacher.inputs
        if found is not None:
            problems += _note(one.setting, found)
        elif not tokens.differ(one.tokenizer):
            problems.append(_rarely_alike(one.setting))
    return problems


def _of_pairs(side: str, *, logits_only: bool) -> list[Problem]:
    if logits_only:
        said = f"{side}: it is a cross-encoder, which reads each passage with its query and gives scores"
        return [Problem(said, "", "note")]
    return [
        Problem(
            f"{side}: it is a cross-encoder, which reads a query with a passage, so that nothing inside it is of the "
            "student's texts",
            "compare scores alone: --method embedding-margin, or margin_mse, listwise_kl and ranked_pairs",
        )
    ]


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
        "save the student with the teacher's tokenizer, or compare logits alone (method kd)",
    )
