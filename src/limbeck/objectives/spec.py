"""What a recipe may say about one term of the loss. Part of `limbeck.objectives`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from limbeck.mapping import MappingSpec
from limbeck.projections import ProjectSpec
from limbeck.schedules import Number, Weight


class _Term(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: Weight = Field(1.0, description="weight in the sum: a number, a fraction, or a ramp")


class HardSpec(_Term):
    """Cross-entropy with the labels; squared error for regression."""

    compare: Literal["hard_label"]


class SoftSpec(_Term):
    """The teacher's output distribution; squared error of the outputs for regression."""

    compare: Literal["soft_cross_entropy", "soft_kl"]
    temperature: Number = Field(1.0, gt=0, description="divides both sides' logits")
    scale_by_t2: bool = Field(False, description="multiply by the squared temperature")


class LayerSpec(_Term):
    """Hidden states of mapped layers: seen how → projected how → compared how."""

    compare: Literal["mse", "normalized_mse", "cosine_distance", "hidden_mse"]
    pool: Literal["cls", "mean", "last"] | None = Field(
        None,
        description="sentence vector of a layer: first token, masked mean, last token; "
        "null compares every token",
    )
    mapping: MappingSpec = Field(description="which teacher layers each student layer learns from")
    project: ProjectSpec | None = Field(None, description="learned linear maps, if any")
    slots: Literal["each", "joined"] = Field(
        "each",
        description="compare every mapped student layer by itself, or all of them side by side "
        "at once",
    )
    pairs: Literal["sum", "mean"] = Field("sum", description="how the layers' distances add up")

    @model_validator(mode="after")
    def _makes_sense(self) -> LayerSpec:
        if self.pool is None and self.compare in ("mse", "normalized_mse"):
            raise ValueError(
                f"{self.compare} compares sentence vectors, which need `pool`: cls, mean or last; "
                "to compare every token use hidden_mse or cosine_distance"
            )
        if self.pool is not None and self.compare == "hidden_mse":
            raise ValueError("hidden_mse compares every token; leave `pool` out, or use mse")
        if self.mapping.kind == "attention" and self.pool is None:
            raise ValueError(
                "kind: attention weighs layers by sentence vectors, which need `pool`: cls, mean "
                "or last"
            )
        if self.mapping.kind == "attention" and self.project and self.slots == "joined":
            raise ValueError(
                "kind: attention maps layers before it weighs them, slots: joined maps them after; "
                "leave `slots` or `project` out"
            )
        if self.mapping.kind == "attention" and self.project and self.project.share == "slot":
            raise ValueError(
                "kind: attention compares every student layer with every teacher layer in one "
                "space; set project.share to all"
            )
        if self.slots == "joined" and self.mapping.combine == "costs":
            raise ValueError(
                "slots: joined makes one vector of all layers; combine: costs keeps them apart"
            )
        if self.slots == "joined" and self.pairs == "mean":
            raise ValueError(
                "slots: joined gives a single comparison; `pairs` has no effect, leave it out"
            )
        if self.slots == "joined" and self.project and self.project.share == "all":
            raise ValueError(
                "slots: joined has a single map a side; `project.share` has no effect, leave it out"
            )
        return self


TermSpec = Annotated[HardSpec | SoftSpec | LayerSpec, Field(discriminator="compare")]
