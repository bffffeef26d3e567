"""Analyses of an attention mapping: which teacher layers it weighs most. Part of `limbeck.lab.analysis`."""

from __future__ import annotations

from collections.abc import Iterator

from datasets import Dataset
from pydantic import Field
from torch import Tensor

from limbeck.activations import Request, capture
from limbeck.evaluation.model_outputs import evaluating
from limbeck.lab.analysis.analysed_run import AnalysedRun, Side, Watch
from limbeck.lab.analysis.analyses import ANALYSES, Analysis
from limbeck.lab.measures.attention_by_layer import LayerAttention, layer_attention
from limbeck.objectives.base import ModelShape, Shape
from limbeck.objectives.mapped import MappedSpec, MappedTerm
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Count, Settings
from limbeck.support.step_state import StepState


class LayerAttentionSettings(Settings):
    """Of `layer-attention`."""

    rows: Count = Field(256, description="how many examples the mean is over")
    examples: Count = Field(10, description="how many of them are shown one by one")


def _layer_attention(
    run: AnalysedRun, settings: LayerAttentionSettings, watch: Watch
) -> dict[str, LayerAttention]:
    specs = _attending(run.recipe, f"run {run.folder.path}: ")
    student, teacher = run.student, run.teacher
    run.need_layers(student, teacher)
    shape = Shape(ModelShape.of(student.model), ModelShape.of(teacher.model), run.task.kind)
    rows = run.rows(count=settings.rows)
    found = {}
    for name, spec in specs.items():
        term = _built(run, name, spec, shape)
        found[name] = layer_attention(
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
