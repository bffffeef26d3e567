"""Pre-flight of a prepared run: all checks, and each term run once on a few real examples. Part of `limbeck.run`."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck import preflight
from limbeck.activations import Passes, Request, Trace, capture, is_causal
from limbeck.data import row_facts, samplers
from limbeck.input_transforms import StepInputs
from limbeck.objectives import Objective, Objectives, TeamObjectives
from limbeck.objectives.example_weights import COUNTED, ExampleWeights
from limbeck.outputs.stored_teacher import AbsentModel
from limbeck.preflight import data_checks, memory
from limbeck.recipe import Recipe, Stage
from limbeck.recipe.checks import check_depth
from limbeck.recipe.quick import USUAL, travelled
from limbeck.run import beside_teacher, bound_rows, in_place, several_teachers
from limbeck.run.models import Named, learns_from_its_teacher
from limbeck.run.prepared import Prepared, StageInputs
from limbeck.students import labels_of
from limbeck.students.execution import resolve_precision
from limbeck.support.errors import LimbeckError, Problem, problem_list
from limbeck.support.settings import Ramp
from limbeck.support.step_state import StepState
from limbeck.tasks import TASKS
from limbeck.tasks.metrics import TEACHER_LABEL, by_query
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import ChainSpec, Team, chain_links
from limbeck.training.objectives import objectives_for, packing_refusals

_EXAMPLES = 8


def objectives_of(
    inputs: StageInputs, student: PreTrainedModel, teacher: Teacher | Team | None = None
) -> Objectives | TeamObjectives:
    """Modules for inspection, not for training: their parameters are sampled without touching the random state.

    Raises:
        LimbeckError: every term that cannot be built for these models, with its reason.
    """
    with torch.random.fork_rng(devices=[]):
        taught_by = teacher or inputs.teacher
        return objectives_for(student, taught_by, inputs.recipe.loss, inputs.rows.encoded)


def chain_problems(recipe: Recipe, inputs: StageInputs, named: Sequence[Named]) -> list[Problem]:
    """Terms that one teacher of a chain cannot teach the next smaller one, who starts much as it is."""
    if not isinstance(recipe.team, ChainSpec):
        return []
    problems: list[Problem] = []
    links = chain_links([one.teacher for one in named])
    for large, small in ((named[first], named[next_]) for first, next_ in links):
        try:
            objectives_of(inputs, small.teacher.model, large.teacher)
        except LimbeckError as error:
            link = f"assistant {small.name}, taught by {large.name}"
            problems += [replace(one, message=f"{link}: {one.message}") for one in error.problems]
    return problems


def trial_terms(
    inputs: StageInputs, prepared: Prepared
) -> tuple[list[Problem], preflight.Method | None]:
    """The terms as pre-flight sees them and the messages about them, or why they cannot be built."""
    recipe, student = inputs.recipe, prepared.student
    try:
        trial = _Trial(inputs, student)
    except LimbeckError as error:
        return error.problems, None
    stored = in_place.layer_problems(inputs, trial.objectives, prepared.tokenizer)
    if preflight.errors_of(stored):
        return stored, None
    train = inputs.rows.encoded
    models = {"student": student} | inputs.models
    too_wide = [
        problem
        for side, model in models.items()
        for problem in preflight.model_checks.check_padding(side, model, recipe.padded_width)
    ]
    few = train.select(_few(inputs))
    method = preflight.Method(
        weights=trial.weights,
        requests=trial.requests,
        terms=trial.terms,
        # No model reads a batch that it has no positions for.
        batch=None if too_wide else inputs.collator(prepared.tokenizer)(list(few)),
        modules=(trial.objectives,),
    )
    shown = []
    if method.batch is not None and recipe.transform is not None:
        shown = recipe.transform.problems(method.batch, models)
        if preflight.errors_of(shown):
            return shown, None
    unmet = _unmet(inputs, trial.objectives)
    if unmet:
        return unmet, None
    problems = [*trial.objectives.remarks(), *too_wide, *shown]
    if recipe.packing:
        live = {side: one for side, one in models.items() if not isinstance(one, AbsentModel)}
        problems += packing_refusals(
            trial.objectives, live, compile=recipe.compile, transform=recipe.transform
        )
    if (curriculum := trial.objectives.of(0).curriculum) is not None and len(train):
        # Layers in turn without complete epochs.
        note = curriculum.note(recipe.passes_over(len(train)))
        problems += [] if note is None else [note]
    return problems, method


@problem_list
def _unmet(inputs: StageInputs, objectives: Objectives | TeamObjectives) -> Iterator[Problem]:
    """Inputs and terms that a teacher with tokens of its own cannot have in common with the student."""
    transform = inputs.recipe.transform
    if transform is not None and any(member.own_tokens for member in inputs.members):
        yield Problem(
            f"{transform.name}: teacher and student have different tokens, so that inputs cannot be transformed alike",
            "leave mixup and input_transform out, or choose models of one vocabulary",
        )
    for place, (side, member) in enumerate(zip(inputs.models, inputs.members, strict=True)):
        own = objectives.of(place)
        for name in own.terms if member.own_tokens is not None else ():
            reason = _why_unmet(member, own[name])
            if reason:
                yield Problem(
                    f"objectives.{name}: {side} and student have different tokens, and {reason}",
                    "compare outputs (method kd) or pooled states (pool: cls or mean), or choose models of one "
                    "vocabulary",
                )


def _why_unmet(teacher: Teacher, term: Objective) -> str | None:
    """Why a term cannot compare the tokens of two tokenizers, if it cannot."""
    asked = term.ever("teacher").items
    own = {seen for seen in asked if seen.pool is None}
    if not own:
        return None
    if term.sees_padding:
        return "padding counts in the term, which covers no characters"
    if any(seen.stack in ("decoder", "cross") for seen in own):
        return "a decoder's tokens are shifted by one from the text's"
    if any(seen.what == "probabilities" and is_causal(teacher.model, seen.stack) for seen in own):
        return "pieces of one token of a causal teacher would attend to later ones"
    if teacher.own_tokens is None or teacher.own_tokens.spans is None:
        return "the alignment of their tokens is unknown"
    return None


def _few(inputs: StageInputs) -> list[int]:
    """Indices of some training rows; rows that belong together are all included, or all left out."""
    train, column = inputs.rows.encoded, inputs.rows.kind.group_column
    groups = None if column is None else row_facts.facts_of(train).groups(column)
    if groups is None:
        return list(range(min(_EXAMPLES, len(train))))
    several = [rows for rows in by_query(groups) if len(rows) > 1][:_EXAMPLES]
    places = [int(row) for rows in several for row in rows[:_EXAMPLES]]
    return places[: 2 * _EXAMPLES] or [0]


class _Trial:
    """Built terms, the step states at which they are inspected, and the teachers that may run alone.

    Raises:
        LimbeckError: for each term that cannot be built.
    """

    def __init__(self, inputs: StageInputs, student: PreTrainedModel) -> None:
        recipe, self.inputs, self.student = inputs.recipe, inputs, student
        teacher, self.turns = inputs.teacher, {0: ""}
        """The teachers that may run alone, and the suffix of a term's name for each."""
        if teacher is not None and teacher.separate:
            self.turns = {turn: f" (teacher {name})" for turn, name in enumerate(teacher.names)}
        at = [StepState(seed=recipe.seed)]
        if recipe.curriculum is not None:  # whose last terms work only at the end
            at.append(StepState(seed=recipe.seed, progress=1.0, passes=math.inf))
        self.step_states = [replace(one, teacher=turn) for turn in self.turns for one in at]
        self.objectives = objectives_of(inputs, student)
        for part in self.objectives.modules():
            if isinstance(part, ExampleWeights):
                part.eval()  # a few examples may all have weight 0

    @property
    def weights(self) -> dict[str, float]:
        """By term the largest weight it ever has."""
        return {
            f"{name}{label}": max(weight.start, weight.end) if isinstance(weight, Ramp) else weight
            for turn, label in self.turns.items()
            for name, weight in self.objectives.of(turn).weights.items()
        }

    @property
    def requests(self) -> dict[str, Request]:
        """By side, everything that its terms may request."""
        several = len(self.turns) > 1
        teachers = {
            side: self.wanted("teacher", place if several else 0)
            for place, side in enumerate(self.inputs.models)
        }
        return {"student": self.wanted("student"), "clean": self.wanted("clean")} | teachers

    def wanted(self, side: str, turn: int | None = None) -> Request:
        """The requests to a side in any step, or in the steps of one teacher."""
        asked = (at for at in self.step_states if turn in (None, at.teacher))
        return reduce(or_, (self.objectives.of(at.teacher).request(side, at) for at in asked))

    def terms(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every term, unweighted, when it is first at work."""
        first, student, live = self.step_states[0], self.student, self.inputs.teacher
        inputs = StepInputs.of(batch, self.inputs.recipe.transform, first, student.device)
        request = self.wanted("student") | inputs.sees_first(student)
        run = partial(capture, student)
        own = inputs.of_student(student, request, self.wanted("clean"), run, Passes())
        inputs = inputs.after(own)
        found: dict[str, Tensor] = {}
        for turn, label in self.turns.items():
            asked, request = replace(first, teacher=turn), self.wanted("teacher", turn)
            seen = Trace() if live is None else live.at(asked)(inputs, request)
            for step_state in (at for at in self.step_states if at.teacher == turn):
                now = self.objectives.of(turn)(own, seen, batch, step_state)
                found = {f"{name}{label}": term for name, term in now.items()} | found
        return found


def check_run(prepared: Prepared, *, show: bool) -> Prepared:
    """Check everything before the first step; show the findings. Returns the run with the values found for it.

    Raises:
        LimbeckError: all errors, if there is one.
    """
    recipe, (*before, last) = prepared.recipe, prepared.stages
    problems, method = trial_terms(last, prepared)
    problems += chain_problems(recipe, last, prepared.named)
    problems += several_teachers.origin_problems(recipe, prepared.named)
    for inputs in before:
        found = _inspect_stage(inputs, prepared)
        problems += [_in_stage(inputs.stage, problem) for problem in found]
    problems += _of_rows(prepared) + query_problems(prepared)
    if prepared.vocabulary is not None:
        said = f"{prepared.vocabulary.said}; {prepared.vocabulary.lengths}"
        problems.append(Problem(f"student.vocabulary: {said}", "", "note"))
    if recipe.activation_checkpointing and not prepared.student.supports_gradient_checkpointing:
        name = type(prepared.student).__name__
        said = f"activation_checkpointing: {name} does not support it"
        problems.append(Problem(said, "leave it out"))
    depth = getattr(prepared.student.config, "num_hidden_layers", None)
    problems += check_depth(recipe, depth)
    problems += preflight.checking.check_workers(recipe.workers)
    problems += preflight.checking.check_share(last.recipe.batch_size, last.recipe.accumulation)
    sides = {}
    if learns_from_its_teacher(recipe):
        taught = [stage for stage in recipe.stages() if stage.recipe.needs_teacher]
        crossing = all(one.same_rows for one in taught)
        terms = (term for one in taught for term in one.recipe.objectives.values())
        alone = crossing and not any(term.needs_layers for term in terms)
        sides = {
            one.setting: preflight.TeacherSide(
                one.teacher.model,
                one.tokenizer,
                one.path,
                own_tokens=one.teacher.own_tokens is not None and crossing,
            )
            for one in prepared.named
            if not one.stored
        }
        problems += bound_rows.order_problems(
            prepared.task, prepared.splits["train"], prepared.named
        )
        problems += bound_rows.left_out_problems(
            prepared.without_outputs, len(prepared.splits["train"])
        )
        misread = bound_rows.input_problems(
            prepared.named, prepared.tokens, logits_only=alone, own_tokens=crossing
        )
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
    problems += _plateau(prepared, method) + (_memory(prepared, method) if show else [])
    floor = beside_teacher.fit_before(prepared)
    if floor is not None:
        problems += beside_teacher.floor_problems(prepared, floor, checked.asked)
    if show and problems:
        preflight.show(problems)
    return replace(prepared, floor=floor, in_train=checked.in_train)


def _plateau(prepared: Prepared, method: preflight.Method | None) -> list[Problem]:
    """A student that will very likely not leave its start, for one stage that reads complete texts."""
    recipe, rows = prepared.recipe, len(prepared.train.encoded)
    batch = None if method is None else method.batch
    shortened = recipe.student.layers is not None and recipe.first_stage is None
    if batch is None or not shortened or not prepared.task.kind.whole_text:
        return []
    step = recipe.batch_size * recipe.accumulation
    steps = recipe.max_steps or math.ceil(math.ceil(rows / step) * recipe.passes)
    rate = USUAL.lr if recipe.lr is None else recipe.lr
    travel = travelled(rate, steps, recipe.lr_schedule, recipe.warmup)
    return preflight.checking.check_start(prepared.student, batch, travel)


def _memory(prepared: Prepared, method: preflight.Method | None) -> list[Problem]:
    """The memory that the last stage of a language model needs."""
    recipe, kind = prepared.stages[-1].recipe, prepared.task.kind
    batch = None if method is None else method.batch
    if method is None or batch is None or not (kind.language_model and kind.generates):
        return []
    lengths = kind.reads.lengths(prepared.stages[-1].rows.encoded) or [1]
    step = memory.Step(
        recipe.batch_size,
        max(lengths),
        resolve_precision(recipe.precision) == "bf16",
        recipe.optimizer,
        recipe.activation_checkpointing,
    )
    teachers = [one.teacher.model for one in prepared.named if not one.stored]
    return [memory.note_of(prepared.student, teachers, method.terms, batch, step)]


def _in_stage(stage: Stage, problem: Problem) -> Problem:
    """A problem with the keys as the user wrote them: `first_stage.objectives.…`."""
    own = problem.message.startswith("objectives")
    before = stage.setting if own else f"{stage.setting.rstrip('.')}: "
    fix = problem.fix.replace(" objectives.", f" {stage.setting}objectives.")
    return replace(problem, message=before + problem.message, fix=fix)


def _inspect_stage(inputs: StageInputs, prepared: Prepared) -> list[Problem]:
    """The problems of a stage before the last: its terms, its teacher, its rows."""
    stage, rows = inputs.stage, inputs.rows
    problems = _own_teacher(inputs, prepared)
    # For rows that only this stage has, or a teacher that only it has, the run's.
    if inputs.recipe.needs_teacher and (inputs.own or not stage.same_rows):
        problems += bound_rows.input_problems(
            inputs.readers, prepared.tokens, logits_only=False, own_tokens=False
        )
    problems += preflight.checking.check_share(stage.recipe.batch_size, stage.recipe.accumulation)
    problems += bound_rows.left_out_problems(inputs.without_outputs, len(rows.raw))
    if not stage.same_rows and rows.truncated:
        said = f"{rows.truncated} of {len(rows.encoded)} examples are cut to max_length {stage.recipe.max_length}"
        problems.append(Problem(said, "raise max_length, or accept the loss", "warning"))
    if preflight.errors_of(problems):
        return problems
    found, method = trial_terms(inputs, prepared)
    problems += found
    if method is None or method.batch is None:
        return problems
    for side, model in ({"student": prepared.student} | inputs.models).items():
        if not isinstance(model, AbsentModel):  # what of it is stored has been looked at
            problems += preflight.model_checks.check_request(side, model, method.requests[side])
    problems += preflight.checking.check_weights(method.weights)
    if not preflight.errors_of(problems):
        problems += preflight.checking.check_influence(
            method, prepared.student, decoder=prepared.task.kind.generates
        )
    return problems


def _own_teacher(inputs: StageInputs, prepared: Prepared) -> list[Problem]:
    """The problems between the student and a teacher that only this stage has."""
    own, stage = prepared.loaded_for(inputs), inputs.stage
    if own is None:
        return []
    teacher, tokenizer = own.teacher, own.tokenizer
    checks = preflight.model_checks.INPUT_CHECKS[prepared.task.kind.reads.name]
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
        problems += preflight.model_checks.check_labels("teacher", teacher.config, prepared.task)
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
            yield from data_checks.check_conditions(
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
            "name some with --test FILE"
            + (", or cut some with --test-share 0.1" if not task.kind.rows_without_labels else ""),
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
    """The problems with `candidates` and `batch_size`, for every stage; () for independent rows."""
    return [problem for inputs in prepared.stages for problem in _of_queries(inputs)]


def _of_queries(inputs: StageInputs) -> list[Problem]:
    recipe, kind = inputs.stage.recipe, inputs.rows.kind
    setting, facts = inputs.stage.setting, row_facts.facts_of(inputs.rows.encoded)
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
        order = samplers.together(
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
            f"{setting}batch_size: {recipe.batch_size} rows; {split} of {len(order.sizes)} queries are not in one "
            f"batch with all their {what} (up to {largest}), and texts in different batches are not compared",
            f"raise batch_size; with candidates=N and a batch_size that is a multiple of N{and_itself} most fit",
            "warning",
        )
    ]


def _of_none(inputs: StageInputs) -> list[Problem]:
    """Settings and terms of candidates, although the rows are not candidates."""
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
    """Terms that read grades of unjudged candidates, for rows without other labels."""
    reading, setting = inputs.rows.kind.candidates, inputs.stage.setting
    if reading is None or not reading.queries_are_rows:
        return []
    grades = row_facts.facts_of(inputs.rows.encoded).numbers_of(reading.grades_of[0])
    if grades is None or (grades > 0).any():
        return []
    return [
        Problem(
            f"{setting}objectives.{name}: {term.compare} needs to know the relevant passages of a query, and none "
            "is marked",
            "give every passage a label, 1 if it answers the query, otherwise 0; or compare only the teacher's scores: "
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
            "no example counted in the terms that learn from the teacher's logits, in the complete last epoch: lower "
            "min_confidence, or look at example_weights and unlabelled_weight"
        )
