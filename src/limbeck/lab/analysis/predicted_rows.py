"""Analyses of predictions: who is right where, how sure, and with noise on embeddings or weights moved a little.

Part of `limbeck.lab.analysis`.
"""

from functools import partial
from typing import Annotated, Any

from datasets import Dataset
from pydantic import Field

from limbeck.evaluation.calibration import BINS
from limbeck.evaluation.class_predictions import ClassPredictions, class_predictions
from limbeck.lab.analysis.analysed_run import AnalysedRun, Side, Watch
from limbeck.lab.analysis.analyze import ANALYSES, Analysis
from limbeck.lab.analysis.layer_states import BOTH, STUDENT, Sides
from limbeck.lab.measures import row_agreement
from limbeck.lab.measures.loss_surface import (
    LossSurface,
    NoiseTolerance,
    loss_plane,
    loss_surface,
    noise_tolerance,
    weights_of,
)
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Count, Seed, Settings


class AgreementSettings(Settings):
    """Of `agreement`."""

    rows: Count | None = Field(None, description="how many of the split; all by default")
    examples: Count = Field(3, description="the most rows that are shown of each cell")


class CalibrationSettings(Settings):
    """Of `calibration`."""

    rows: Count | None = Field(None, description="how many of the split; all by default")
    bins: Count = Field(BINS, description="into how many equally wide bins probabilities are cut")
    models: Sides = Field(BOTH, description="student, teacher")


def _agreement(
    run: AnalysedRun, settings: AgreementSettings, watch: Watch
) -> dict[str, row_agreement.RowAgreement]:
    rows = run.rows(count=settings.rows)
    labels = run.labels(rows)
    found = row_agreement.agreement_of(
        run.task.labels,
        labels,
        _predicted(run, run.teacher, rows, watch),
        _predicted(run, run.student, rows, watch),
        texts=run.texts(rows),
        examples=settings.examples,
    )
    return {run.student.name: found}


def _calibration(
    run: AnalysedRun, settings: CalibrationSettings, watch: Watch
) -> dict[str, row_agreement.ReliabilityCurve]:
    rows = run.rows(count=settings.rows)
    labels = run.labels(rows)
    found = {}
    for side in run.sides(settings.models):
        predicted = _predicted(run, side, rows, watch)
        if predicted.confidence is None:
            raise LimbeckError(
                f"run {run.folder.path}: the {side.name}'s predictions come without probabilities",
                "take fewer rows, or a model with a classification head",
            )
        found[side.name] = row_agreement.reliability_curve(
            predicted.confidence, predicted.ids == labels, bins=settings.bins
        )
    return found


def _predicted(run: AnalysedRun, side: Side, rows: Dataset, watch: Watch) -> ClassPredictions:
    return class_predictions(run.task, run.results(side, rows, watch)[0].predictions)


ANALYSES.register("agreement")(
    Analysis(
        "on which rows teacher and student are right: both, one, none, with examples",
        AgreementSettings,
        _agreement,
    )
)
ANALYSES.register("calibration")(
    Analysis(
        "how sure each model is and how right: calibration error and reliability",
        CalibrationSettings,
        _calibration,
    )
)


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
    span: float = Field(
        1.0,
        gt=0,
        description="the largest step, in filters' norms; with through, how far the plane reaches beyond the students, "
        "in ways from one to another",
    )
    seed: Seed = Field(0, description="of the two directions")
    models: Sides = Field(STUDENT, description="student, teacher")
    through: (
        Annotated[list[str], Field(min_length=2, max_length=2)]
        | Annotated[dict[str, str], Field(min_length=2, max_length=2)]
        | None
    ) = Field(
        None,
        description="two more runs: the plane through the three students' weights, instead of random directions",
    )


def _loss_surface(
    run: AnalysedRun, settings: LossSurfaceSettings, watch: Watch
) -> dict[str, LossSurface]:
    rows = run.rows(count=settings.rows)
    if settings.through is not None:
        return {run.student.name: _plane(run, settings, rows, watch)}
    if settings.points % 2 == 0:
        raise LimbeckError(
            f"loss-surface: points={settings.points} leaves the model itself out",
            "give an odd number",
        )
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


def _plane(
    run: AnalysedRun, settings: LossSurfaceSettings, rows: Dataset, watch: Watch
) -> LossSurface:
    """The plane through the run's student and the students of two more runs."""
    others = _further(run, settings.through)
    side = run.student
    try:
        found = loss_plane(
            side.model,
            {name: weights_of(other.student.model) for name, other in others.items()},
            partial(run.loss, side, rows),
            rows=len(rows),
            name=run.record.method,
            points=settings.points,
            span=settings.span,
            progressed=watch("losses in the plane of three students"),
        )
    except ValueError as error:
        raise LimbeckError(
            f"through: {error}", "name runs whose students have the same layers and head"
        ) from None
    # Facts that the weights alone do not show: heads, tokens, the order of classes.
    for corner, other in zip(found.corners[1:], others.values(), strict=True):
        own = other.loss(other.student, rows)
        if abs(own - corner.loss) > _ROUNDING * max(1.0, own):
            raise LimbeckError(
                f"through: {other.folder.path} has a loss of {own:.4g} on these rows, and its weights in the student "
                f"of {run.folder.path} one of {corner.loss:.4g}",
                "name runs whose students read rows and order classes alike",
            )
    return found


_ROUNDING = 1e-3


def _further(run: AnalysedRun, named: Any) -> dict[str, AnalysedRun]:
    """The further runs by name: a run's method, or its folder if the method is ambiguous."""
    paths = [*named.values()] if isinstance(named, dict) else list(named)
    runs = [run.beside(path) for path in paths]
    for other in runs:
        if other.recipe.task != run.recipe.task:
            raise LimbeckError(
                f"through: {other.folder.path} is a run of {other.recipe.task}",
                f"name runs of {run.recipe.task}",
            )
    methods = [one.record.method for one in (run, *runs)]
    names = methods[1:] if len({*methods}) == len(methods) else [one.name for one in runs]
    if isinstance(named, dict):
        names = list(named)
    if len({*names}) < len(names):
        raise LimbeckError(
            f"through: {names[0]} is named twice",
            "name two runs, in folders of different names",
        )
    return dict(zip(names, runs, strict=True))


ANALYSES.register("loss-surface")(
    Analysis(
        "the loss around the student: along two random filter-normalised directions, or towards two more students",
        LossSurfaceSettings,
        _loss_surface,
        further_runs="through",
    )
)
ANALYSES.register("noise")(
    Analysis("the score under Gaussian noise on the embeddings", NoiseSettings, _noise)
)
