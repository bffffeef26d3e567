"""The terms of a stage, built for the models of a run. Part of `limbeck.run`."""

from __future__ import annotations

import torch

from limbeck.engine.trainer import index_bound
from limbeck.kinds import kind_of
from limbeck.objectives import ModelShape, Objectives, Shape
from limbeck.recipe import Stage
from limbeck.run.assemble import Assembly


def shape_of(stage: Stage, assembly: Assembly) -> Shape:
    """Depth and width of the two models that a stage brings together."""
    student, teacher = ModelShape.of(assembly.student), assembly.teacher_of(stage)
    return Shape(
        student,
        student if teacher is None else ModelShape.of(teacher.model),
        kind=kind_of(assembly.student),
        rows=index_bound(assembly.rows_of(stage).encoded),
    )


def objectives_of(stage: Stage, assembly: Assembly) -> Objectives:
    """To look at, not to train: what they learn is drawn without touching the random state.

    Raises:
        LimbeckError: every term that cannot be built for these models, with its reason.
    """
    with torch.random.fork_rng(devices=[]):
        return Objectives(
            stage.recipe.objectives, shape_of(stage, assembly), stage.recipe.curriculum
        )
