"""The terms of a stage, built for the models of a run. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import PreTrainedModel

from limbeck.objectives import Objectives, TeamObjectives
from limbeck.recipe import Recipe
from limbeck.run.prepared import StageInputs
from limbeck.run.teachers import Named
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import task_type_of
from limbeck.teachers import ChainSpec, Team, chain_links
from limbeck.teachers.teacher import Teacher
from limbeck.training.objectives import index_bound, objectives_for


def objectives_of(inputs: StageInputs, student: PreTrainedModel) -> Objectives | TeamObjectives:
    """To look at, not to train: what they learn is sampled without touching the random state.

    Raises:
        LimbeckError: every term that cannot be built for these models, with its reason.
    """
    return _built(inputs, student, inputs.teacher)


def chain_problems(recipe: Recipe, inputs: StageInputs, named: Sequence[Named]) -> list[Problem]:
    """Terms that one teacher of a chain cannot teach the next smaller one, who starts much as it is."""
    if not isinstance(recipe.team, ChainSpec):
        return []
    problems: list[Problem] = []
    links = chain_links([one.teacher for one in named])
    for large, small in ((named[first], named[next_]) for first, next_ in links):
        try:
            _built(inputs, small.teacher.model, large.teacher)
        except LimbeckError as error:
            link = f"assistant {small.name}, taught by {large.name}"
            problems += [replace(one, message=f"{link}: {one.message}") for one in error.problems]
    return problems


def _built(
    inputs: StageInputs, student: PreTrainedModel, teacher: Teacher | Team | None
) -> Objectives | TeamObjectives:
    with torch.random.fork_rng(devices=[]):
        return objectives_for(
            student,
            teacher,
            inputs.recipe.objectives,
            inputs.recipe.curriculum,
            kind=task_type_of(student),
            rows=index_bound(inputs.rows.encoded),
            examples=inputs.rows.encoded,
            weighting=inputs.recipe.example_weights,
            min_confidence=inputs.recipe.min_confidence,
            unlabelled_weight=inputs.recipe.unlabelled_weight,
        )
