"""What a recipe may say about a layer mapping. Part of `limbeck.mapping`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from limbeck.settings import Count, LayerNumber, Settings


def _numbered(layers: Any) -> Any:
    """Layer numbers as numbers: JSON, and so a run's record, has text alone for keys."""
    if not isinstance(layers, dict):
        return layers
    numbers = {
        int(key) if isinstance(key, str) and re.fullmatch(r"0|[1-9][0-9]{0,4}", key) else key: value
        for key, value in layers.items()
    }
    if len(numbers) < len(layers):
        raise ValueError("a student layer stands twice")
    return numbers


# What a kind does not read; given anyway it is refused, and left out when a recipe is written.
_IDLE: dict[str, tuple[str, ...]] = {
    "explicit": ("student_layers", "teacher_layers"),
    "last-to-last": ("student_layers", "teacher_layers"),
    "uniform": ("teacher_layers",),
    "skip": ("teacher_layers",),
}

# What a single kind reads.
_OWN = {"read": "attention", "weigh": "attention", "layer_weights": "transport"}


class DepthsSpec(Settings):
    """Layers given outright for a teacher and a student of certain depths."""

    teacher: Count = Field(description="the teacher's depth L")
    student: Count = Field(description="the student's depth M")
    layers: Annotated[dict[LayerNumber, LayerNumber], BeforeValidator(_numbered)] = Field(
        description="student layer: teacher layer"
    )


class MappingSpec(Settings):
    """Which teacher layers each student layer learns from."""

    kind: Literal[
        "explicit",
        "uniform",
        "skip",
        "first",
        "last",
        "last-to-last",
        "buckets",
        "random",
        "attention",
        "transport",
    ] = Field(description="how teacher layers are given to student layers")
    student_layers: str | LayerNumber | list[LayerNumber] = Field(
        "1..M-1", description="student layers that learn; M is the student's depth"
    )
    teacher_layers: str | LayerNumber | list[LayerNumber] = Field(
        "1..L", description="teacher layers on offer; L is the teacher's depth"
    )
    layers: Annotated[
        dict[LayerNumber, LayerNumber | list[LayerNumber]] | None, BeforeValidator(_numbered)
    ] = Field(None, description="explicit only: student layer: teacher layer, or list of them")
    exceptions: list[DepthsSpec] | None = Field(
        None,
        description="skip, uniform: depths for which layers are given outright, as a release does",
    )
    within: Literal["all", "buckets"] = Field(
        "all", description="attention only: attend to all teacher layers, or to one bucket each"
    )
    overlap: bool = Field(
        False, description="buckets only: a bucket also takes the next one's first layer"
    )
    read: Literal["cls", "mean", "last"] | None = Field(
        None,
        description="attention only: the sentence vectors that weigh the layers, where the term "
        "itself compares something else",
    )
    weigh: Literal["softmax", "sparsemax", "entmax"] = Field(
        "softmax", description="attention only: from dot products to weights"
    )
    layer_weights: Literal["uniform", "learned"] = Field(
        "uniform",
        description="transport only: mass of each layer; learned: more for cheap ones, "
        "step by step (BERT-EMD)",
    )
    combine: Literal["sum", "concat", "costs"] = Field(
        "sum",
        description="several teacher layers of one student layer: weighted sum, features side by "
        "side, or weighted sum of pairwise comparisons",
    )

    @model_validator(mode="after")
    def _no_key_without_effect(self) -> MappingSpec:
        if (self.kind == "explicit") != (self.layers is not None):
            raise ValueError(
                "`layers` goes with kind: explicit, and only with it "
                "(example: {kind: explicit, layers: {1: 4, 2: 8}})"
            )
        if self.layers is not None and ([] in self.layers.values() or not self.layers):
            raise ValueError("`layers` needs a teacher layer for each student layer it names")
        for key in _IDLE.get(self.kind, ()):
            if key in self.model_fields_set:
                raise ValueError(f"`{key}` has no effect with kind: {self.kind}; leave it out")
        if self.within == "buckets" and self.kind != "attention":
            raise ValueError(
                "`within: buckets` goes with kind: attention; for a fixed map use kind: buckets"
            )
        if self.overlap and not (self.kind == "buckets" or self.within == "buckets"):
            raise ValueError("`overlap` goes with buckets; leave it out")
        if self.exceptions is not None and self.kind not in ("skip", "uniform"):
            raise ValueError("`exceptions` goes with kind: skip or uniform; leave it out")
        for key, kind in _OWN.items():
            if key in self.model_fields_set and self.kind != kind:
                raise ValueError(f"`{key}` goes with kind: {kind}; leave it out")
        if self.kind == "transport" and "combine" in self.model_fields_set:
            raise ValueError(
                "kind: transport weighs pairwise comparisons; `combine` has no effect, leave it out"
            )
        if self.kind == "attention" and self.combine != "sum":
            raise ValueError(
                f"kind: attention gives every example its own weights, which {self.combine!r} "
                "cannot use; leave `combine` at sum"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_idle_keys(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        idle = {*_IDLE.get(self.kind, ()), *(k for k, kind in _OWN.items() if kind != self.kind)}
        if self.kind == "transport":
            idle.add("combine")
        if self.exceptions is None:
            idle.add("exceptions")
        return {key: value for key, value in handler(self).items() if key not in idle}
