"""Analyses of models that are disturbed: noise on embeddings, weights moved a little. Part of `limbeck.analysis`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field

from limbeck.analysis.analysed_run import AnalysedRun, Watch
from limbeck.analysis.analyses import ANALYSES, Analysis
from limbeck.analysis.layer_states import BOTH, STUDENT, Sides
from limbeck.errors import LimbeckError
from limbeck.reporting.analysis.input_noise import NoiseTolerance, noise_tolerance
from limbeck.reporting.analysis.loss_surface import LossSurface, loss_surface
from limbeck.settings import Count, Seed, Settings


class NoiseSettings(Settings):
    """Of `noise`."""

    deviations: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1)] = Field(
        [0.0, 0.02, 0.05, 0.1, 0.2], description="standard deviations of the noise"
    )
    repeats: Count = Field(3, description="draws of the noise for each of them")
    rows: Count = Field(1000, description="how many are scored")
    seed: Seed = Field(0, description="of the first draw")
    models: Sides = Field(BOTH, description="student, teacher")


def _noise(run: AnalysedRun, settings: NoiseSettings, watch: Watch) -> dict[str, NoiseTolerance]:
    rows, sides = run.rows(count=settings.rows), run.sides(settings.models)
    for side in sides:
        run.need_embeddings(side)
    return {
        side.name: noise_tolerance(
            side.model,
            partial(run.scored, side, rows),
            settings.deviations,
            rows=len(rows),
            metric=run.task.primary,
            repeats=settings.repeats,
            seed=settings.seed,
            progressed=watch(f"noise on the {side.name}'s embeddings"),
        )
        for side in sides
    }


class LossSurfaceSettings(Settings):
    """Of `loss-surface`."""

    rows: Count = Field(128, description="how many rows the loss is over")
    points: Annotated[int, Field(ge=3, le=201)] = Field(
        9, description="along either direction; odd"
    )
    span: float = Field(1.0, gt=0, description="the largest step, in filters' norms")
    seed: Seed = Field(0, description="of the two directions")
    models: Sides = Field(STUDENT, description="student, teacher")


def _loss_surface(
    run: AnalysedRun, settings: LossSurfaceSettings, watch: Watch
) -> dict[str, LossSurface]:
    if settings.points % 2 == 0:
        raise LimbeckError(
            f"loss-surface: points={settings.points} leaves the model itself out",
            "give an odd number",
        )
    rows = run.rows(count=settings.rows)
    return {
        side.name: loss_surface(
            side.model,
            partial(run.loss, side, rows),
            rows=len(rows),
            points=settings.points,
            span=settings.span,
            seed=settings.seed,
            progressed=watch(f"losses around the {side.name}"),
        )
        for side in run.sides(settings.models)
    }


ANALYSES.register("loss-surface")(
    Analysis(
        "the loss around the student, along two random filter-normalised directions",
        LossSurfaceSettings,
        _loss_surface,
    )
)
ANALYSES.register("noise")(
    Analysis("the score under Gaussian noise on the embeddings", NoiseSettings, _noise)
)
