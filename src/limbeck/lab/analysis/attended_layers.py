"""Analyses of an attention mapping: which teacher layers it weighs most. Part of `limbeck.lab.analysis`."""

from collections.abc import Iterator
from typing import Annotated

from datasets import Dataset
from pydantic import Field
from torch import Tensor

from limbeck.activations import Request, capture, number_of_layers, token_mask
from limbeck.evaluation.model_outputs import evaluating
from limbeck.lab.analysis.analysed_run import AnalysedRun, Side, Watch
from limbeck.lab.analysis.analyze import ANALYSES, Analysis
from limbeck.lab.measures import attended_tokens
from limbeck.objectives.base import ModelShape, Shape
from limbeck.objectives.mapped import MappedSpec, MappedTerm
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.settings import Count, Depth, Settings
from limbeck.support.step_state import StepState


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
        "what each teacher layer counts for each student layer, where a mapping attends (ALP-KD)",
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
    if problems:
        raise LimbeckError(problems)
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
