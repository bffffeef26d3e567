"""Analyses of layers: their similarity, the scores of linear probes, the weights of an attention mapping.

Part of `limbeck.lab.analysis`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from datasets import Dataset
from pydantic import Field
from torch import Tensor

from limbeck.activations import Request, capture, number_of_layers, token_mask
from limbeck.evaluation.model_outputs import pooled_states
from limbeck.evaluation.similarity_matrix import LayerSimilarity, similarity_of_layers
from limbeck.lab.analysis.analysed_run import AnalysedRun, Side, Watch
from limbeck.lab.analysis.analyze import ANALYSES, Analysis
from limbeck.lab.measures import attended_tokens
from limbeck.lab.measures.layer_probing import ProbedLayers, StatePoints, probe_layers, state_points
from limbeck.objectives.base import ModelShape, Shape
from limbeck.objectives.mapped import MappedSpec, MappedTerm
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.support.machine import evaluating
from limbeck.support.settings import Count, Depth, LayerNumber, Pool, Settings
from limbeck.support.step_state import StepState

Sides = Annotated[list[Literal["student", "teacher"]], Field(min_length=1)]
BOTH: list[Literal["student", "teacher"]] = ["student", "teacher"]
STUDENT: list[Literal["student", "teacher"]] = ["student"]


class SimilaritySettings(Settings):
    """Of `similarity`."""

    rows: Count = Field(128, description="how many examples layers are compared on")
    pool: Pool = Field("mean", description="the vector of a layer: masked mean, first, last token")


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
    pool: Pool = Field("cls", description="the vector of a layer: first token, masked mean, last")
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
    pool: Pool = Field("cls", description="the vector of a layer: first token, masked mean, last")
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


class LayerAttentionSettings(Settings):
    """Of `layer-attention`."""

    rows: Count = Field(256, description="how many examples the mean is over")
    examples: Count = Field(10, description="how many of them are shown one by one")


def _layer_attention(
    run: AnalysedRun, settings: LayerAttentionSettings, watch: Watch
) -> dict[str, attended_tokens.LayerAttention]:
    specs = _attending(run.recipe, f"run {run.folder.path}: ")
    student, teacher = run.student, run.teacher
    run.need_layers(student, teacher)
    shape = Shape(ModelShape.of(student.model), ModelShape.of(teacher.model), run.task.kind)
    rows = run.rows(count=settings.rows)
    found = {}
    for name, spec in specs.items():
        term = _built(run, name, spec, shape)
        found[name] = attended_tokens.layer_attention(
            name,
            term.mapping.student_layers,
            term.mapping.candidates,
            _weights(run, term, student, teacher, rows, watch),
            shown=settings.examples,
        )
    return found


def _attending(recipe: Recipe, whose: str = "") -> dict[str, MappedSpec]:
    """The terms of the recipe's last stage that has any whose mapping reads representations."""
    for stage in reversed(recipe.stages()):
        found = {
            name: spec
            for name, spec in stage.recipe.objectives.items()
            if isinstance(spec, MappedSpec) and spec.mapping.reads_representations
        }
        if found:
            return found
    raise LimbeckError(
        f"{whose}no term of {recipe.method} has an attention mapping",
        "name a run of alp-kd, alp-no, alp-po, or of a recipe with mapping: {kind: attention}",
    )


def _built(run: AnalysedRun, name: str, spec: MappedSpec, shape: Shape) -> MappedTerm:
    learned = LimbeckError(
        f"run {run.folder.path}: objectives.{name} weighs layers by maps that are learned with the student and "
        "not kept with it",
        "take a run whose student is as wide as its teacher",
    )
    if spec.lender is not None:
        raise learned
    term = spec.build(shape, f"objectives.{name}")
    assert isinstance(term, MappedTerm)  # no other reads representations to weigh layers
    if any(True for _ in term.parameters()):
        raise learned
    return term


def _weights(
    run: AnalysedRun, term: MappedTerm, student: Side, teacher: Side, rows: Dataset, watch: Watch
) -> Iterator[Tensor]:
    """(B, S, T) of each batch."""
    moment = StepState(seed=run.recipe.seed)
    batches = zip(run.batches(student, rows, watch), run.batches(teacher, rows), strict=True)
    with evaluating(student.model), evaluating(teacher.model):
        for mine, theirs in batches:
            asked: list[Request] = [term.request(one, moment) for one in ("student", "teacher")]
            weights = term.layer_weights(
                capture(student.model, mine, asked[0]),
                capture(teacher.model, theirs, asked[1]),
                moment,
            )
            assert isinstance(weights, Tensor)  # by example, as such mappings weigh
            yield weights


ANALYSES.register("layer-attention")(
    Analysis(
        "weight of each teacher layer for each student layer, if a mapping attends (ALP-KD)",
        LayerAttentionSettings,
        _layer_attention,
        suits=_attending,
    )
)


# Analyses of attention: what both models look at in one example.


class AttentionMapSettings(Settings):
    """Of `attention-maps`."""

    row: int = Field(0, ge=0, description="which row of the split, from 0")
    head: Depth | None = Field(None, description="which head, from 1; the mean of all by default")
    pairs: (
        Annotated[
            list[Annotated[list[Depth], Field(min_length=2, max_length=2)]], Field(min_length=1)
        ]
        | None
    ) = Field(
        None,
        description="[student layer, teacher layer] each; by default every student layer with the teacher layer at the "
        "same share of the depth",
    )


def _attention_maps(
    run: AnalysedRun, settings: AttentionMapSettings, watch: Watch
) -> dict[str, attended_tokens.AttentionMaps]:
    student, teacher = run.student, run.teacher
    run.need_layers(student, teacher)
    whole = run.rows()
    if settings.row >= len(whole):
        raise LimbeckError(
            f"attention-maps: row {settings.row} of {len(whole)} rows of {run.split}",
            f"name one from 0 to {len(whole) - 1}",
        )
    rows = whole.select([settings.row])
    batches = [next(run.batches(side, rows)) for side in (student, teacher)]
    tokens = [_tokens(side, batch) for side, batch in zip((student, teacher), batches, strict=True)]
    found = attended_tokens.attention_maps(
        student.model,
        teacher.model,
        batches[0],
        batches[1],
        (tokens[0], tokens[1]),
        _pairs(settings, student, teacher),
        row=settings.row,
        head=settings.head,
    )
    return {run.student.name: found}


def _pairs(settings: AttentionMapSettings, student: Side, teacher: Side) -> list[tuple[int, int]]:
    depths = number_of_layers(student.model), number_of_layers(teacher.model)
    if settings.pairs is None:
        return [(j, max(1, round(j * depths[1] / depths[0]))) for j in range(1, depths[0] + 1)]
    problems = [
        Problem(f"pairs: the {side} has no layer {pair[place]}", f"count from 1 to {depth}")
        for pair in settings.pairs
        for place, (side, depth) in enumerate(zip(("student", "teacher"), depths, strict=True))
        if pair[place] > depth
    ]
    raise_problems(problems)
    return [(pair[0], pair[1]) for pair in settings.pairs]


def _tokens(side: Side, batch: dict[str, Tensor]) -> list[str]:
    """As the tokenizer calls them; numbers where an example is no text."""
    kept = token_mask(side.model, batch)[0].bool()
    if "input_ids" not in batch or not hasattr(side.processor, "convert_ids_to_tokens"):
        return [str(number) for number in range(1, int(kept.sum()) + 1)]
    ids = batch["input_ids"][0][kept.to(batch["input_ids"].device)]
    return list(side.processor.convert_ids_to_tokens(ids.tolist()))


ANALYSES.register("attention-maps")(
    Analysis(
        "what teacher and student attend to in one example, side by side",
        AttentionMapSettings,
        _attention_maps,
    )
)
