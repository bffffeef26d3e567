"""Puts a prepared run before pre-flight: everything is checked before the first step. Part of `limbeck.run`."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from limbeck import preflight
from limbeck.data.row_facts import facts_of
from limbeck.data.samplers import together
from limbeck.objectives.example_weights import COUNTED
from limbeck.outputs.stored_teacher import AbsentModel
from limbeck.recipe import Recipe, Stage
from limbeck.recipe.quick import USUAL, travelled
from limbeck.run.beside_teacher import fit_before, floor_problems
from limbeck.run.bound_rows import (
    input_problems,
    left_out_problems,
    order_problems,
)
from limbeck.run.models import learns_from_its_teacher
from limbeck.run.prepared import Prepared, StageInputs
from limbeck.run.several_teachers import origin_problems
from limbeck.run.trial_terms import chain_problems, trial_terms
from limbeck.students import labels_of
from limbeck.support.errors import LimbeckError, Problem, problem_list
from limbeck.tasks import TASKS
from limbeck.tasks.metrics import TEACHER_LABEL


def check_run(prepared: Prepared, *, show: bool) -> Prepared:
    """Check everything before the first step; show what was found. Returns the run with what was learned of it.

    Raises:
        LimbeckError: all errors, if there is one.
    """
    recipe, (*before, last) = prepared.recipe, prepared.stages
    problems, method = trial_terms(last, prepared)
    problems += chain_problems(recipe, last, prepared.named)
    problems += origin_problems(recipe, prepared.named)
    for inputs in before:
        found = _inspect_stage(inputs, prepared)
        problems += [_in_stage(inputs.stage, problem) for problem in found]
    problems += _of_rows(prepared) + query_problems(prepared)
    problems += preflight.check_workers(recipe.workers)
    problems += preflight.check_share(last.recipe.batch_size, last.recipe.accumulation)
    sides = {}
    if learns_from_its_teacher(recipe):
        alone = _logits_only(recipe)
        sides = {
            one.setting: preflight.TeacherSide(
                one.teacher.model,
                one.tokenizer,
                one.path,
                own_tokens=one.teacher.own_tokens is not None and alone,
            )
            for one in prepared.named
            if not one.stored
        }
        problems += order_problems(prepared.task, prepared.splits["train"], prepared.named)
        problems += left_out_problems(prepared.without_outputs, len(prepared.splits["train"]))
        misread = input_problems(prepared.named, prepared.tokens, logits_only=alone)
        problems += misread
        if preflight.errors_of(misread):
            method = None  # a teacher that reads something else has nothing to compare
    checked = preflight.check(
        task=prepared.task,
        rows=prepared.splits | ({} if prepared.final is None else prepared.final.to_check()),
        student=prepared.student,
        tokenizer=prepared.tokenizer,
        max_length=recipe.max_length,
        teachers=sides,
        method=method,
        truncated=prepared.truncated,
    )
    problems += checked.problems
    errors = preflight.errors_of(problems)
    if errors:
        raise LimbeckError(problem for problem in problems if problem.severity != "note")
    problems += _plateau(prepared, method)
    floor = fit_before(prepared)
    if floor is not None:
        problems += floor_problems(prepared, floor, checked.asked)
    if show and problems:
        preflight.show(problems)
    return replace(prepared, floor=floor, in_train=checked.in_train)


def _plateau(prepared: Prepared, method: preflight.Method | None) -> list[Problem]:
    """A student that will very likely not leave its start, of one stage that reads texts as a whole."""
    recipe, rows = prepared.recipe, len(prepared.train.encoded)
    batch = None if method is None else method.batch
    shortened = recipe.student.layers is not None and recipe.first_stage is None
    if batch is None or not shortened or not prepared.task.kind.whole_text:
        return []
    step = recipe.batch_size * recipe.accumulation
    steps = recipe.max_steps or math.ceil(math.ceil(rows / step) * recipe.passes)
    rate = USUAL.lr if recipe.lr is None else recipe.lr
    travel = travelled(rate, steps, recipe.lr_schedule, recipe.warmup)
    return preflight.check_start(prepared.student, batch, travel)


def _logits_only(recipe: Recipe) -> bool:
    """Whether every stage needs nothing of teachers but their logits on the run's own rows."""
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


def _inspect_stage(inputs: StageInputs, prepared: Prepared) -> list[Problem]:
    """What is wrong with a stage before the last: its terms, its teacher, its rows."""
    stage, rows = inputs.stage, inputs.rows
    problems = _own_teacher(inputs, prepared)
    # Of rows that this stage alone has, or a teacher that it alone has the run's.
    if inputs.recipe.needs_teacher and (inputs.own or not stage.same_rows):
        problems += input_problems(inputs.readers, prepared.tokens, logits_only=False)
    problems += preflight.check_share(stage.recipe.batch_size, stage.recipe.accumulation)
    problems += left_out_problems(inputs.without_outputs, len(rows.raw))
    if not stage.same_rows and rows.truncated:
        said = f"{rows.truncated} of {len(rows.encoded)} examples are cut to max_length {stage.recipe.max_length}"
        problems.append(Problem(said, "raise max_length, or accept the loss", "warning"))
    if preflight.errors_of(problems):
        return problems
    found, method = trial_terms(inputs, prepared)
    problems += found
    if method is None or method.terms is None or method.batch is None:
        return problems
    for side, model in ({"student": prepared.student} | inputs.models).items():
        if not isinstance(model, AbsentModel):  # what of it is stored has been looked at
            problems += preflight.check_request(side, model, method.requests[side])
    problems += preflight.check_weights(method.weights)
    if not preflight.errors_of(problems):
        problems += preflight.check_influence(
            method.terms, method.weights, prepared.student, method.batch, method.modules
        )
    return problems


def _own_teacher(inputs: StageInputs, prepared: Prepared) -> list[Problem]:
    """What is wrong between the student and a teacher that this stage alone has."""
    own, stage = prepared.loaded_for(inputs), inputs.stage
    if own is None:
        return []
    teacher, tokenizer = own.teacher, own.tokenizer
    checks = preflight.INPUT_CHECKS[prepared.task.kind.reads.name]
    problems = checks.processors(
        prepared.task, prepared.splits["train"], tokenizer, prepared.tokenizer, side="teacher"
    )
    limit = stage.recipe.max_length
    problems += checks.model("teacher", teacher.model, tokenizer, limit)
    models = {"teacher": teacher.model}
    problems += checks.lengths(prepared.task, prepared.splits, tokenizer, models, limit)
    theirs, ours = teacher.config.num_labels, prepared.student.config.num_labels
    compared = [
        name
        for name, term in stage.recipe.objectives.items()
        if term.reads_logits and term.needs_teacher
    ]
    # The student's names are the task's or, by the predictions, mean the same.
    if (
        compared
        and theirs == ours
        and labels_of(teacher.config) != labels_of(prepared.student.config)
    ):
        problems += preflight.check_labels("teacher", teacher.config, prepared.task)
    if theirs != ours:
        problems += [
            Problem(
                f"objectives.{name}: the teacher has {theirs} outputs, the student {ours}",
                f"take it out, or leave {stage.setting}teacher out: the run's own teacher",
            )
            for name in compared
        ]
    return problems


@problem_list
def _of_rows(prepared: Prepared) -> Iterator[Problem]:
    """What to know of a run's rows: their conditions, those without a label, what scores are of."""
    recipe, task, final = prepared.recipe, prepared.task, prepared.final
    if task.said is not None:
        yield task.said
    if learns_from_its_teacher(recipe) and recipe.teacher_rows != "any":
        for one in prepared.named:
            yield from preflight.check_conditions(
                one.path, task, recipe.conditions, setting=one.setting
            )
    rows, total = prepared.unlabelled, len(prepared.train.encoded)
    if rows != type(rows)():
        left = {"in dev or test": rows.scored, "repeated": rows.repeated, "blank": rows.blank}
        said = ", ".join(f"{count} {why}" for why, count in left.items() if count)
        yield Problem(
            f"train: {rows.kept} of {total} rows have no label"
            + (f"; left out: {said}" if said else ""),
            "terms that read labels count the others alone; all other terms count every row",
            "note",
        )
    if final is None and task.name not in TASKS:
        yield Problem(
            "test: there are no labeled test rows, so every score is of rows that choose something",
            "name some with --test FILE, or cut some with --test-share 0.1",
            "note",
        )
    if recipe.label_column == TEACHER_LABEL:
        tested = 0 if final is None else len(final)
        yield Problem(
            "labels: dev and test rows have the teacher's own predictions, so scores are agreement with the teacher on "
            f"held-out texts ({len(prepared.dev[task.dev_splits[0]].raw):,} dev, {tested:,} test)",
            "to score against labels, name rows that have some: --dev FILE",
            "note",
        )


# Whether batches can hold a query's candidates together, before the first step.


_FILES = (
    "give pairs, triplets or candidates (columns anchor, positive, negative; or --text-columns)"
)


def query_problems(prepared: Prepared) -> list[Problem]:
    """What is wrong with `candidates` and `batch_size`, for every stage; nothing of rows that stand for themselves."""
    return [problem for inputs in prepared.stages for problem in _of_queries(inputs)]


def _of_queries(inputs: StageInputs) -> list[Problem]:
    recipe, kind = inputs.stage.recipe, inputs.rows.kind
    setting, facts = inputs.stage.setting, facts_of(inputs.rows.encoded)
    if kind.group_column is None or facts.groups(kind.group_column) is None:
        return _of_none(inputs)
    problems = _ungraded(inputs)
    if problems:
        return problems
    if recipe.labelled_share is not None:
        return [
            Problem(
                f"{setting}labelled_share: the candidates of a query belong into one batch",
                "leave it out",
            )
        ]
    try:
        order = together(
            kind, facts, recipe.seed, batch_size=recipe.batch_size, candidates=recipe.candidates
        )
    except LimbeckError as error:
        return error.problems
    assert order is not None  # they have groups
    largest, split = int(order.sizes.max()), order.split
    if not split:
        return []
    beside = kind.candidates is not None and kind.candidates.queries_are_rows
    what, and_itself = ("texts", " + 1") if beside else ("candidates", "")
    return [
        Problem(
            f"{setting}batch_size: {recipe.batch_size} rows; {split} of {len(order.sizes)} queries do not stand in one "
            f"batch with all their {what} (up to {largest}), and what is apart is not compared",
            f"raise batch_size; with candidates=N and a batch_size that is a multiple of N{and_itself} most fit",
            "warning",
        )
    ]


def _of_none(inputs: StageInputs) -> list[Problem]:
    """Settings and terms of candidates, where the rows are none."""
    recipe, kind, setting = inputs.stage.recipe, inputs.rows.kind, inputs.stage.setting
    if recipe.candidates is not None:
        return [
            Problem(
                f"{setting}candidates: {recipe.candidates}, and rows of kind {kind.name} are no candidates of queries",
                _FILES
                if kind.candidates is not None
                else "leave it out, or read them as kind=pair-score",
            )
        ]
    return [
        Problem(
            f"{setting}objectives.{name}: {term.compare} compares texts that belong together, and the rows are "
            "sentences",
            f"{_FILES}, or take it out: {setting}objectives.{name}=null",
        )
        for name, term in recipe.objectives.items()
        if kind.group_column is not None and term.compares_candidates
    ]


def _ungraded(inputs: StageInputs) -> list[Problem]:
    """Terms that look at grades of candidates that nobody judged, of rows whose labels say nothing else."""
    reading, setting = inputs.rows.kind.candidates, inputs.stage.setting
    if reading is None or not reading.queries_are_rows:
        return []
    grades = facts_of(inputs.rows.encoded).numbers_of(reading.grades_of[0])
    if grades is None or (grades > 0).any():
        return []
    return [
        Problem(
            f"{setting}objectives.{name}: {term.compare} looks at which passages belong to their query, and nobody "
            "says it of any",
            "give every passage a label, 1 for what answers the query, else 0; or compare the teacher's scores alone: "
            "--method listwise-kl or ranknet, or embedding-margin with objectives.margin.pairs=all",
        )
        for name, term in inputs.stage.recipe.objectives.items()
        # Without a teacher there is nothing else to learn from.
        if term.compares_candidates and (term.reads_labels or not term.needs_teacher)
    ]


log = logging.getLogger(__name__)


def warn_of_none_counted(epochs: Sequence[Mapping[str, Any]]) -> None:
    """Say that in the last epoch the terms that learn from the teacher's logits learned from no example."""
    if epochs and epochs[-1]["train"].get(COUNTED) == 0:
        log.warning(
            "no example counted in the terms that learn from the teacher's logits, in the whole last epoch: lower "
            "min_confidence, or look at example_weights and unlabelled_weight"
        )
