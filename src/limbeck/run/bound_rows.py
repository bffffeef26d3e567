"""Binds teachers to rows: each reads what its own tokenizer makes of them, or knows their stored outputs.

Part of `limbeck.run`. The student's tokenizer makes the rows. A teacher whose tokenizer makes the same token ids finds
its other inputs in columns next to them; one that splits texts differently reads the rows by its own tokenizer.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from datasets import Dataset

from limbeck import data, preflight, tasks
from limbeck.data.encoding import spans_of
from limbeck.data.row_ids import OutputKeys, ids_of, output_keys
from limbeck.outputs.stored_teacher import UNKNOWN_ROWS_FIX, GivenOutputs
from limbeck.recipe import Recipe, Stage
from limbeck.run.models import Named
from limbeck.run.rows import EncodedRows
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.teachers.teacher import ModelInputs, OwnTokens, Spans

# Where not one row has outputs, to leave those without out leaves nothing.
_FIX_OF_NONE = "check that texts and text columns match the labeled rows, or label these rows (`limbeck label`)"
_OWN_TEACHER = "; or give this stage a teacher of its own: first_stage.teacher=DIR"


def with_outputs(
    recipe: Recipe,
    task: tasks.Task,
    rows: Dataset,
    named: Sequence[Named],
    stage: Stage | None = None,
) -> Dataset:
    """The training rows of which every stored teacher knows something; all of them unless `missing_outputs` is drop.

    Args:
        stage: whose own rows they are; None of the run's.

    Raises:
        LimbeckError: none is left; rows without outputs, unless they are to be dropped.
    """
    stored = [one.teacher.outputs for one in named if one.stored]
    if not stored:
        return rows
    whose, more = "", ""
    if stage is not None:
        whose, more = stage.setting.replace(".", ": "), _OWN_TEACHER
    known = [_rows_known(outputs, task, rows) for outputs in stored]
    kept = np.flatnonzero(np.logical_and.reduce(known))
    if recipe.missing_outputs == "error":
        fix = UNKNOWN_ROWS_FIX if len(kept) else _FIX_OF_NONE
        holds = "holds no margins that tie the query's other passages to"
        problems = [
            Problem(
                f"{whose}outputs: {outputs.place} "
                f"{'knows nothing of' if outputs.lists is None else holds} {int((~found).sum())} of "
                f"{len(rows)} training rows, the first of them {_said(task, rows, int(found.argmin()))}",
                fix + more,
            )
            for outputs, found in zip(stored, known, strict=True)
            if not found.all()
        ]
        raise_problems(problems)
        return rows
    if not len(kept):
        raise LimbeckError(
            f"{whose}missing_outputs: drop leaves none of {len(rows)} training rows",
            _FIX_OF_NONE + more,
        )
    return rows if len(kept) == len(rows) else rows.select(kept)


def _keys(outputs: GivenOutputs, task: tasks.Task, rows: Dataset) -> OutputKeys:
    """By which ids outputs are found for the examples of some rows."""
    return output_keys(task, rows, alone=outputs.embedding > 0)


def _rows_known(outputs: GivenOutputs, task: tasks.Task, rows: Dataset) -> np.ndarray:
    """The rows for which outputs have everything that terms compare, boolean (n,)."""
    keys = _keys(outputs, task, rows)
    if outputs.lists is None:
        return keys.rows_known(outputs.known(keys.ids), len(rows))
    groups = keys.groups(task, rows)
    return keys.rows_known(outputs.known_together(keys.ids, groups), len(rows))


def _said(task: tasks.Task, rows: Dataset, place: int) -> str:
    """A row's texts, shortened."""
    row = rows[place]
    return " | ".join(
        repr(textwrap.shorten(row[name], 60, placeholder=" …")) for name in task.text_columns
    )


# ---- messages about them ----


def order_problems(task: tasks.Task, rows: Dataset, named: Sequence[Named]) -> list[Problem]:
    """Outputs that fit the training rows' own labels much better with the classes in another order."""
    stored = [one.teacher.outputs for one in named if one.stored]
    of_classes = bool(task.kind.class_names(task.labels))
    if not stored or not of_classes or task.kind.stored_as is not task.kind:
        return []
    if task.label_column not in rows.column_names:
        return []
    labels = np.asarray(rows.with_format("numpy")[task.label_column][:])
    labelled = np.flatnonzero(tasks.abstract_type.labelled_rows(labels))
    if not len(labelled):
        return []
    ids = ids_of(task, rows.select(labelled))
    problems = []
    for outputs in stored:
        said = outputs.logits(ids)
        given = preflight.TeacherOutputs(said, labels[labelled], "on training rows")
        problems += preflight.score_checks.check_class_order(
            task,
            given,
            side=f"outputs: {outputs.place}",
            fix="put the class names of these outputs in their order (of classes without the data's names: "
            "output_classes='[CLASS, CLASS, …]'), or label with the right teacher",
        )
    return problems


@problem_list
def left_out_problems(left_out: int, kept: int) -> Iterator[Problem]:
    """How many training rows `missing_outputs: drop` leaves out: most of them, where texts are written otherwise."""
    if not left_out:
        return
    yield Problem(
        f"missing_outputs: {left_out:,} of {left_out + kept:,} training rows are left out, as the "
        "stored outputs do not include them",
        "label them too, check that the texts are written the same way, or accept it",
        "warning",
    )


def stored_results(one: Named, task: tasks.Task, rows: Dataset) -> tasks.Results | None:
    """Scores and predictions of stored outputs on a split; None where they do not know all its rows, or it has
    no labels.

    There are also none for a text-to-text teacher, because its free generations are not stored, and for outputs
    of other rows.
    """
    outputs = one.teacher.outputs
    answers = task.kind.stored_as is task.kind or outputs.embedding
    if task.kind.key_columns or not answers or task.label_column not in rows.column_names:
        return None
    if not _rows_known(outputs, task, rows).all():
        return None
    keys = _keys(outputs, task, rows)
    logits = outputs.logits(keys.ids)
    if not outputs.embedding:
        return task.kind.results_of_rows(task, logits, rows)
    texts = Dataset.from_dict({tasks.rules.ROW: np.asarray(rows["index"][:])[keys.rows]})
    return task.kind.results(task, logits, tasks.ScoredSplit(texts, rows, one.tokenizer))


@dataclass(frozen=True)
class StudentTokens:
    """The student's tokenizer and the run's rows, with which other tokenizers are compared."""

    tokenizer: tasks.Processor
    task: tasks.Task
    rows: Dataset

    def differ(self, tokenizer: tasks.Processor) -> bool:
        """Whether another tokenizer splits the rows otherwise."""
        checks = preflight.model_checks.INPUT_CHECKS[self.task.kind.reads.name]
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
    """Rows with the inputs by each teacher's tokenizer, and the teachers bound to these rows.

    Args:
        own_tokens: a teacher that splits the rows into other tokens reads them by its own tokenizer, so that its
            outputs can still be compared; not where inputs change from epoch to epoch, or an example has more than one
            answer. Otherwise it is given the student's.
    """
    kind, length, found = rows.kind, rows.max_length, []
    for one in readers:
        if one.stored:
            keys = _keys(one.teacher.outputs, rows.task, rows.raw)
            stored = one.teacher.on_rows(keys.examples, keys.ids, keys.silent)
            found.append(replace(one, teacher=stored))
            continue
        reading = kind.of_teacher(one.teacher.model.config)
        alike = reading is kind
        if not alike and not own_tokens:
            raise LimbeckError(
                f"{one.setting}: a cross-encoder reads a query with a passage, and these rows have the student's texts",
                "let it teach on the run's own rows",
            )
        inputs, words = None, None
        if alike and not tokens.differ(one.tokenizer):
            # Rows that are encoded in their turn have one tokenizer on both sides.
            encoded, inputs = data.add_inputs(
                rows.encoded,
                rows.raw,
                rows.task,
                tokens.tokenizer,
                one.tokenizer,
                length,
                progress=progress,
            )
            rows = replace(rows, encoded=encoded)
        if not alike or (inputs is None and own_tokens and kind.repeats):
            task = replace(rows.task, kind=reading)
            theirs, _ = data.encode(rows.raw, task, one.tokenizer, length, progress=progress)
            sides = ((rows.encoded, tokens.tokenizer), (theirs, one.tokenizer))
            known = alike and kind.reads is tasks.TEXT_READING
            spans = partial(_spans, rows, sides, progress=progress) if known else None
            words = OwnTokens(theirs, data.Collator(one.tokenizer, kind=reading), spans)
        found.append(replace(one, teacher=one.teacher.reading(inputs, words)))
    return rows, found


def _spans(
    rows: EncodedRows, sides: Sequence[tuple[Dataset, tasks.Processor]], *, progress: bool
) -> Spans:
    """The characters of each token of these rows, as the student and as a teacher reads them."""
    return tuple(
        spans_of(encoded, rows.raw, rows.task, tokenizer, rows.max_length, progress=progress)
        for encoded, tokenizer in sides
    )


# ---- messages about it ----


@problem_list
def input_problems(
    named: Sequence[Named], tokens: StudentTokens, *, logits_only: bool, own_tokens: bool
) -> Iterator[Problem]:
    """How teachers read the run's rows where that is not as the student does.

    Args:
        named: the teachers, bound to these rows.
        logits_only: nothing but teachers' outputs is compared.
        own_tokens: they may be read in other tokens.
    """
    for one in named:
        side, teacher = one.setting, one.teacher
        if one.stored:  # it reads no tokens
            continue
        if tokens.task.kind.of_teacher(teacher.model.config) is not tokens.task.kind:
            said = f"{side}: it is a cross-encoder, which reads a passage with its query"
            yield (
                Problem(f"{said} and gives scores", "", "note")
                if logits_only
                else Problem(
                    f"{said}, so that nothing inside it is of the student's texts",
                    "compare scores alone: --method embedding-margin, or margin_mse, listwise_kl and ranked_pairs",
                )
            )
            continue
        if teacher.inputs is not None:
            yield from _note(side, teacher.inputs)
        elif teacher.own_tokens is not None and own_tokens:
            said = (
                f"{side}: it splits texts otherwise than the student, so it reads every training row by "
                "its own tokenizer"
            )
            how = (
                ", and its logits alone are compared"
                if logits_only
                else "; tokens meet by the characters that both cover"
            )
            yield Problem(said + how, "", "note")
        elif not tokens.differ(one.tokenizer):  # otherwise pre-flight has reported it
            yield Problem(
                f"{side} and student split some training rows into different tokens, though their vocabularies agree",
                "save the student with the teacher's tokenizer, or compare logits alone (method kd)",
            )


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
