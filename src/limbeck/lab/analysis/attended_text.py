"""Analyses of attention: what both models look at in one example. Part of `limbeck.lab.analysis`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from limbeck.activations import number_of_layers, token_mask
from limbeck.lab.analysis.analysed_run import AnalysedRun, Side, Watch
from limbeck.lab.analysis.analyses import ANALYSES, Analysis
from limbeck.lab.measures.attended_tokens import AttentionMaps, attention_maps
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.settings import Depth, Settings


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
) -> dict[str, AttentionMaps]:
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
    found = attention_maps(
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
