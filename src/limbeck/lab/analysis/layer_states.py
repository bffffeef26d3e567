"""Analyses of what layers represent: how alike they are, and what a linear probe reads off them.

Part of `limbeck.lab.analysis`.
"""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from datasets import Dataset
from pydantic import Field

from limbeck.activations import number_of_layers
from limbeck.evaluation.model_outputs import pooled_states
from limbeck.evaluation.similarity_matrix import LayerSimilarity, similarity_of_layers
from limbeck.lab.analysis.analysed_run import AnalysedRun, Watch
from limbeck.lab.analysis.analyze import ANALYSES, Analysis
from limbeck.lab.measures.layer_probing import ProbedLayers, StatePoints, probe_layers, state_points
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Count, LayerNumber, Settings

Pooled = Literal["mean", "cls", "last"]
Sides = Annotated[list[Literal["student", "teacher"]], Field(min_length=1)]
BOTH: list[Literal["student", "teacher"]] = ["student", "teacher"]
STUDENT: list[Literal["student", "teacher"]] = ["student"]


class SimilaritySettings(Settings):
    """Of `similarity`."""

    rows: Count = Field(128, description="how many examples layers are compared on")
    pool: Pooled = Field(
        "mean", description="the vector of a layer: masked mean, first, last token"
    )


def _similarity(
    run: AnalysedRun, settings: SimilaritySettings, watch: Watch
) -> dict[str, LayerSimilarity]:
    teacher, student = run.teacher, run.student
    run.need_layers(teacher, student)
    rows = run.rows(count=settings.rows)
    found = similarity_of_layers(
        teacher.model,
        student.model,
        run.batches(student, rows, watch),
        run.batches(teacher, rows, watch),
        pool=settings.pool,
    )
    return {run.student.name: found}


class ProbingSettings(Settings):
    """Of `probing`."""

    train_rows: Count = Field(2000, description="rows of train that probes are fitted on")
    rows: Count = Field(1000, description="rows that they are scored on")
    pool: Pooled = Field("cls", description="the vector of a layer: first token, masked mean, last")
    strength: float = Field(1.0, gt=0, description="scikit-learn's C, the inverse penalty")
    models: Sides = Field(BOTH, description="student, teacher")


def _probing(run: AnalysedRun, settings: ProbingSettings, watch: Watch) -> dict[str, ProbedLayers]:
    train, fitted = run.rows("train", settings.train_rows), run.split == "train"
    scored = train if fitted else run.rows(count=settings.rows)
    labels = _labels(run, train), _labels(run, scored)
    if len(np.unique(labels[0])) < 2:
        raise LimbeckError(
            f"probing: the first {len(train)} training rows are all of one "
            f"{'number' if run.task.one_number else 'class'}",
            "take more of them, train_rows=…",
        )
    found = {}
    for side in run.sides(settings.models):
        run.need_layers(side)
        layers = range(number_of_layers(side.model) + 1)
        states = [
            [
                layer.numpy()
                for layer in pooled_states(
                    side.model, layers, run.batches(side, rows, watch), settings.pool
                )
            ]
            for rows in ((train,) if fitted else (train, scored))
        ]
        probed = probe_layers(
            states[0],
            labels[0],
            states[-1],
            labels[1],
            numbers=run.task.one_number,
            strength=settings.strength,
            progressed=watch(f"probes of the {side.name}'s layers"),
        )
        found[side.name] = replace(probed, fitted=fitted)
    return found


def _labels(run: AnalysedRun, rows: Dataset) -> np.ndarray:
    """Class ids, or numbers."""
    if not run.task.one_number:
        return run.labels(rows)
    return np.asarray(rows[run.task.label_column][:], dtype=np.float64)


class PcaSettings(Settings):
    """Of `pca`."""

    rows: Annotated[int, Field(ge=2, le=10**9)] = Field(200, description="how many examples")
    pool: Pooled = Field("cls", description="the vector of a layer: first token, masked mean, last")
    student_layer: LayerNumber | None = Field(
        None, description="0 for the embeddings; default: the last"
    )
    teacher_layer: LayerNumber | None = Field(None, description="likewise")


def _pca(run: AnalysedRun, settings: PcaSettings, watch: Watch) -> dict[str, StatePoints]:
    sides = run.student, run.teacher
    run.need_layers(*sides)
    layers = []
    for side, layer in zip(sides, (settings.student_layer, settings.teacher_layer), strict=True):
        deepest = number_of_layers(side.model)
        if layer is not None and layer > deepest:
            raise LimbeckError(f"pca: the {side.name} has no layer {layer}", f"0 to {deepest}")
        layers.append(deepest if layer is None else layer)
    rows = run.rows(count=settings.rows)
    student, teacher = (
        pooled_states(side.model, [layer], run.batches(side, rows, watch), settings.pool)[0].numpy()
        for side, layer in zip(sides, layers, strict=True)
    )
    classes = run.task.one_class
    found = state_points(
        student,
        teacher,
        layers=(layers[0], layers[1]),
        labels=run.labels(rows) if classes else None,
        names=run.task.labels if classes else (),
    )
    return {run.student.name: found}


ANALYSES.register("similarity")(
    Analysis(
        "how alike student and teacher layers represent the same rows: CKA and cosine",
        SimilaritySettings,
        _similarity,
    )
)
ANALYSES.register("pca")(
    Analysis(
        "where teacher and student put the same rows: principal components, cosines by row",
        PcaSettings,
        _pca,
    )
)
ANALYSES.register("probing")(
    Analysis(
        "accuracy of a linear classifier on each layer's states, or the rank correlation of a linear regression",
        ProbingSettings,
        _probing,
    )
)
