"""The terms of a stage, built for the models of a run. Part of `limbeck.run`."""

from __future__ import annotations

import torch

from limbeck.objectives import ModelShape, Objectives, TeamObjectives
from limbeck.recipe import Stage
from limbeck.run.assemble import Assembly
from limbeck.tasks import task_type_of
from limbeck.teachers import members_of
from limbeck.training.bound_objectives import index_bound, objectives_for


def depths_of(stage: Stage, assembly: Assembly) -> tuple[int, set[int]]:
    """How many layers the student has, and the teachers of a stage."""
    teachers = members_of(assembly.teacher_of(stage))
    depths = {ModelShape.of(teacher.model).layers for teacher in teachers}
    return ModelShape.of(assembly.student).layers, depths


def objectives_of(stage: Stage, assembly: Assembly) -> Objectives | TeamObjectives:
    """To look at, not to train: what they learn is drawn without touching the random state.

    Raises:
        LimbeckError: every term that cannot be built for these models, with its reason.
    """
    with torch.random.fork_rng(devices=[]):
        return objectives_for(
            assembly.student,
            assembly.teacher_of(stage),
            stage.recipe.objectives,
            stage.recipe.curriculum,
            kind=task_type_of(assembly.student),
            rows=index_bound(assembly.rows_of(stage).encoded),
        )
