"""The terms of a stage, run once on a few real examples, for pre-flight to look at. Part of `limbeck.run`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck import preflight
from limbeck.activations import Passes, Request, Trace, capture
from limbeck.data.row_facts import facts_of
from limbeck.input_transforms import StepInputs
from limbeck.objectives import Objectives, TeamObjectives
from limbeck.objectives.example_weights import ExampleWeights
from limbeck.recipe import Recipe
from limbeck.run.in_place_checks import layer_problems
from limbeck.run.models import Named
from limbeck.run.prepared import Prepared, StageInputs
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.settings import Ramp
from limbeck.support.step_state import StepState
from limbeck.tasks.metrics import by_query
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import ChainSpec, Team, chain_links
from limbeck.training.objectives import objectives_for

_EXAMPLES = 8


def objectives_of(
    inputs: StageInputs, student: PreTrainedModel, teacher: Teacher | Team | None = None
) -> Objectives | TeamObjectives:
    """To look at, not to train: what they learn is sampled without touching the random state.

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
    """The terms as pre-flight sees them and what is to be said of them, or why they cannot be built."""
    recipe, student = inputs.recipe, prepared.student
    try:
        trial = _Trial(inputs, student)
    except LimbeckError as error:
        return error.problems, None
    stored = layer_problems(inputs, trial.objectives, prepared.tokenizer)
    if preflight.errors_of(stored):
        return stored, None
    train = inputs.rows.encoded
    models = {"student": student} | inputs.models
    too_wide = [
        problem
        for side, model in models.items()
        for problem in preflight.check_padding(side, model, recipe.padded_width)
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
    problems = [*trial.objectives.remarks(), *too_wide, *shown]
    if (curriculum := trial.objectives.of(0).curriculum) is not None and len(train):
        note = curriculum.note(
            recipe.passes_over(len(train))
        )  # layers in turn without whole epochs
        problems += [] if note is None else [note]
    return problems, method


def _few(inputs: StageInputs) -> list[int]:
    """Places of some training rows, of those that belong together all or none."""
    train, column = inputs.rows.encoded, inputs.rows.kind.group_column
    groups = None if column is None else facts_of(train).groups(column)
    if groups is None:
        return list(range(min(_EXAMPLES, len(train))))
    several = [rows for rows in by_query(groups) if len(rows) > 1][:_EXAMPLES]
    places = [int(row) for rows in several for row in rows[:_EXAMPLES]]
    return places[: 2 * _EXAMPLES] or [0]


class _Trial:
    """Built terms, the states of steps at which they are looked at, and who may be asked alone.

    Raises:
        LimbeckError: for each term that cannot be built.
    """

    def __init__(self, inputs: StageInputs, student: PreTrainedModel) -> None:
        recipe, self.inputs, self.student = inputs.recipe, inputs, student
        teacher, self.turns = inputs.teacher, {0: ""}
        """Who may be asked alone, and what stands behind a term's name then."""
        if teacher is not None and teacher.separate:
            self.turns = {turn: f" (teacher {name})" for turn, name in enumerate(teacher.names)}
        at = [StepState(seed=recipe.seed)]
        if recipe.curriculum is not None:  # whose last terms work only at the end
            at.append(StepState(seed=recipe.seed, progress=1.0, passes=math.inf))
        self.step_states = [replace(one, teacher=turn) for turn in self.turns for one in at]
        self.objectives = objectives_of(inputs, student)
        for part in self.objectives.modules():
            if isinstance(part, ExampleWeights):
                part.eval()  # a few examples may all be those that do not count

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
        """By side everything that its terms may ask for."""
        several = len(self.turns) > 1
        teachers = {
            side: self.wanted("teacher", place if several else 0)
            for place, side in enumerate(self.inputs.models)
        }
        return {"student": self.wanted("student"), "clean": self.wanted("clean")} | teachers

    def wanted(self, side: str, turn: int | None = None) -> Request:
        """What is asked of a side at any moment, or at those of one teacher."""
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
