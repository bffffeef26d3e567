"""Terms of a study's runs that its models cannot be taught by, found before the first run.

Part of `limbeck.study`.
"""

from __future__ import annotations

import torch

from limbeck.errors import LimbeckError, Problem
from limbeck.recipe import Recipe
from limbeck.study.measured_step import UntrainedRun
from limbeck.training.bound_objectives import objectives_for


def term_problems(recipe: Recipe, run: UntrainedRun) -> list[Problem]:
    """What keeps a run's terms from being built between its untrained student and its one teacher.

    Stages on other rows, whose models have other heads, and teams are checked by the runs themselves. So are
    terms that count classes, which need all rows encoded.
    """
    if len(run.teachers) != 1:
        return []
    problems: list[Problem] = []
    for stage in recipe.stages():
        if not stage.same_rows:
            continue
        own = stage.recipe
        terms = {name: term for name, term in own.objectives.items() if not term.counts_classes}
        try:
            with torch.random.fork_rng(devices=[]):
                objectives_for(
                    run.student,
                    run.teachers[0].teacher,
                    terms,
                    own.curriculum,
                    kind=run.task.kind,
                    rows=len(run.rows["train"]),
                )
        except LimbeckError as error:
            problems += error.problems
    return list(dict.fromkeys(problems))
