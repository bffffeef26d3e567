"""What a study's runs would refuse once their rows and models are there, found before the first run.

Part of `limbeck.lab.study`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from limbeck.data.corpus import CorpusSpec
from limbeck.lab.study.measured_step import UntrainedRun
from limbeck.recipe import Recipe, Stage
from limbeck.run.models import form_team
from limbeck.run.prepare import teacher_of_stage
from limbeck.run.rows import stage_rows
from limbeck.support.errors import LimbeckError, Problem
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import ChainSpec, Team, chain_links
from limbeck.training.objectives import objectives_for

_OF_A_STREAM = 256
"""Rows of a corpus that are streamed before a run: enough to see that there are some of its range."""


def term_problems(recipe: Recipe, run: UntrainedRun) -> list[Problem]:
    """What keeps the terms of a run's stages from being built between its untrained models.

    Terms that count classes are checked by the runs themselves: they need all rows encoded.
    """
    problems: list[Problem] = []
    for stage in recipe.stages():
        own = stage.recipe
        terms = {name: term for name, term in own.objectives.items() if not term.counts_classes}
        loss = replace(own.loss, objectives=terms)
        try:
            for student, teacher in _links(recipe, stage, run):
                with torch.random.fork_rng(devices=[]):
                    objectives_for(student, teacher, loss, run.rows["train"], kind=run.task.kind)
        except LimbeckError as error:
            problems += [replace(one, message=_place(stage, one)) for one in error.problems]
    return list(dict.fromkeys(problems))


def row_problems(
    recipe: Recipe, run: UntrainedRun, seen: dict[str, list[Problem]]
) -> list[Problem]:
    """What keeps the rows that a stage has for itself from being loaded.

    Args:
        recipe: the run's.
        run: its models and tokenizer.
        seen: what was found of such rows before, which is not looked for again.
    """
    found: list[Problem] = []
    for stage in recipe.stages():
        if stage.same_rows:
            continue
        own = stage.recipe
        corpus = stage.corpus
        said: list[Any] = [own.task, own.data, own.train_rows, own.max_length, own.seed]
        key = f"{said} {corpus}"
        if key not in seen:
            seen[key] = []
            if corpus is not None and _is_streamed(corpus):
                few = corpus.model_copy(update={"size": min(corpus.size, _OF_A_STREAM)})
                stage = replace(stage, corpus=few)
            try:
                stage_rows(stage, run.tokenizer, run.task.kind.reads)
            except LimbeckError as error:
                seen[key] = list(error.problems)
        found += seen[key]
    return found


def _is_streamed(corpus: CorpusSpec) -> bool:
    return corpus.source.partition(":")[0] == "hub"


def _links(
    recipe: Recipe, stage: Stage, run: UntrainedRun
) -> Iterator[tuple[PreTrainedModel, Teacher | Team | None]]:
    """Who is taught in a stage, and by whom: the student, and the assistants of a chain."""
    members = [one.teacher for one in run.teachers]
    chained = isinstance(recipe.team, ChainSpec) and (stage.last or recipe.joint)
    for large, small in chain_links(members) if chained else ():
        yield members[small].model, members[large]
    yield run.student, _teacher(recipe, stage, run)


def _teacher(recipe: Recipe, stage: Stage, run: UntrainedRun) -> Teacher | Team | None:
    """Who teaches a stage: the run's teachers, one of them, or one that the stage names."""
    own = stage.recipe
    if not own.needs_teacher or not run.teachers:
        return None
    alone = recipe.team is not None and own.team is None  # before the team, one teacher
    if stage.last or (own.taught_by == recipe.taught_by and not alone):
        return form_team(recipe, run.teachers)
    known = next((one for one in run.teachers if one.path == own.teacher), None)
    return (known or teacher_of_stage(recipe, stage, run.task)).teacher


def _place(stage: Stage, problem: Problem) -> str:
    own = problem.message.startswith(("objectives", "curriculum"))
    return f"{stage.setting if own else ''}{problem.message}"
