"""What a recipe may say about one term of the loss. Part of `limbeck.objectives`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from limbeck.mappings import MappingSpec
from limbeck.mappings.projections import ProjectSpec
from limbeck.schedules import Temperature, Weight
from limbeck.settings import Count, LayerNumber, Settings, Width

Pooling = Literal["cls", "mean", "last"]


class _Term(Settings):
    needs_teacher: ClassVar[bool] = True
    """Whether it looks at a teacher."""
    needs_index: ClassVar[bool] = False
    """Whether it remembers training examples by their number."""

    weight: Weight = Field(1.0, description="weight in the sum: a number, a fraction, or a ramp")


class HardSpec(_Term):
    """Cross-entropy with the labels; squared error for regression."""

    needs_teacher = False

    compare: Literal["hard_label"]


class SoftSpec(_Term):
    """The teacher's output distribution; squared error of the outputs for regression."""

    compare: Literal["soft_cross_entropy", "soft_kl"]
    temperature: Temperature = Field(1.0, description="divides both sides' logits")
    scale_by_t2: bool = Field(False, description="multiply by the squared temperature")
    mean_over: Literal["batch", "batch_and_classes"] = Field(
        "batch", description="also divide by the number of classes, as some releases do"
    )
    regression: Literal["teacher", "tempered", "labels"] = Field(
        "teacher",
        description="what a number is learned from: the teacher's; tempered: both sides' divided by "
        "the temperature (CR-ILD's release); labels: not the teacher at all (TinyBERT's release)",
    )


class ErrorWeightedSpec(_Term):
    """Every teacher's output distribution, weighted by its error on the example (MT-BERT)."""

    compare: Literal["error_weighted"]
    temperature: Temperature = Field(1.0, description="divides both sides' logits")


class MappedSpec(_Term):
    """What every comparison of mapped layers may say."""

    mapping: SerializeAsAny[MappingSpec] = Field(
        description="which teacher layers each student layer learns from"
    )
    pairs: Literal["sum", "mean"] = Field("sum", description="how the layers' distances add up")
    stack: Literal["main", "encoder", "decoder", "cross"] = Field(
        "main", description="of an encoder–decoder: whose layers, or `cross` for cross-attention"
    )

    @model_validator(mode="after")
    def _maps_what_it_can(self) -> MappedSpec:
        reads = self.mapping.reads_representations
        vectors, pool = self.mapping.sentence_vectors, getattr(self, "pool", None)
        if reads and vectors is None and pool is None:
            raise ValueError(
                f"kind: {self.mapping.kind} weighs layers by sentence vectors; say which: "
                "mapping.read: cls, mean or last (a term with `pool` reads those it compares)"
            )
        if reads and vectors and pool:
            raise ValueError(
                f"kind: {self.mapping.kind} reads the sentence vectors that `pool` makes; leave "
                "mapping.read out"
            )
        if self.mapping.combine == "concat" and not isinstance(self, (LayerSpec, ContrastSpec)):
            raise ValueError(
                "combine: concat puts hidden states side by side; maps of attention and relations "
                "have no features to do so: use sum or costs"
            )
        return self


class LayerSpec(MappedSpec):
    """Hidden states of mapped layers: seen how → projected how → compared how."""

    compare: Literal["mse", "normalized_mse", "cosine_distance", "hidden_mse"]
    pool: Pooling | None = Field(
        None,
        description="sentence vector of a layer: first token, masked mean, last token; "
        "null compares every token",
    )
    project: ProjectSpec | None = Field(None, description="learned linear maps, if any")
    through: str | None = Field(
        None, description="another term of the stage whose learned map serves here too"
    )
    compare_layers: Literal["each", "joined"] = Field(
        "each",
        description="compare every mapped student layer by itself, or all of them side by side "
        "at once",
    )
    mean_over: Literal["valid", "all", "batch_and_features"] = Field(
        "valid",
        description="hidden_mse: `all` counts padding too; normalized_mse: `batch_and_features` "
        "divides by the width (both as some releases do)",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> LayerSpec:
        if self.stack == "cross":
            raise ValueError("cross-attention has no hidden states; use stack: decoder")
        if self.pool is None and self.compare in ("mse", "normalized_mse"):
            raise ValueError(
                f"{self.compare} compares sentence vectors, which need `pool`: cls, mean or last; "
                "to compare every token use hidden_mse or cosine_distance"
            )
        if self.pool is not None and self.compare == "hidden_mse":
            raise ValueError("hidden_mse compares every token; leave `pool` out, or use mse")
        if self.through is not None and (
            self.project is not None or self.compare_layers == "joined"
        ):
            raise ValueError(
                "`through` brings the other term's map, for each layer; leave `project` and `compare_layers` "
                "out"
            )
        self._check_joined()
        self._check_projection()
        own = {"all": "hidden_mse", "batch_and_features": "normalized_mse"}
        if own.get(self.mean_over, self.compare) != self.compare:
            raise ValueError(
                f"mean_over: {self.mean_over} goes with {own[self.mean_over]}; leave it out"
            )
        return self

    def _check_joined(self) -> None:
        if self.compare_layers != "joined":
            return
        if self.mapping.combine == "costs":
            raise ValueError(
                "compare_layers: joined makes one vector of all layers; combine: costs keeps them apart"
            )
        if self.pairs == "mean":
            raise ValueError(
                "compare_layers: joined gives a single comparison; `pairs` has no effect, leave it out"
            )

    def _check_projection(self) -> None:
        if self.project is None:
            return
        reads_layers = self.mapping.reads_representations
        reads_pairs = reads_layers or self.mapping.reads_costs
        if reads_layers and self.compare_layers == "joined":
            raise ValueError(
                f"kind: {self.mapping.kind} maps layers before it weighs them, compare_layers: "
                "joined maps them after; leave `compare_layers` or `project` out"
            )
        if reads_pairs and self.project.share == "none":
            raise ValueError(
                f"kind: {self.mapping.kind} compares every student layer with every teacher layer "
                "in one space; set project.share to all"
            )
        if self.compare_layers == "joined" and self.project.share == "all":
            raise ValueError(
                "compare_layers: joined has a single map a side; `project.share` has no effect, leave it out"
            )


class AttentionSpec(MappedSpec):
    """Attention maps of mapped layers, head by head: probabilities (KL) or scores (MSE)."""

    compare: Literal["attention_kl", "attention_cross_entropy", "attention_mse"]
    masked: Literal["left_out", "zero"] = Field(
        "left_out",
        description="attention_mse: padding is left out; zero: padding, and every score of −100 or "
        "less, counts as a zero score (as in TinyBERT's release)",
    )
    rows: Literal["valid", "all"] = Field(
        "valid",
        description="attention_kl, attention_cross_entropy: queries that count; `all`: padding too "
        "(CR-ILD's release)",
    )
    keys: Literal["model", "own"] = Field(
        "model",
        description="attention_cross_entropy of mixed inputs: the keys of both partners, as the "
        "models see them, or the example's own alone (CR-ILD's release)",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> AttentionSpec:
        if self.masked == "zero" and self.compare != "attention_mse":
            raise ValueError("masked: zero goes with attention_mse; leave it out")
        if self.rows == "all" and self.compare == "attention_mse":
            raise ValueError(
                "rows: all goes with attention_kl and attention_cross_entropy; leave it out"
            )
        if self.keys == "own" and self.compare != "attention_cross_entropy":
            raise ValueError("keys: own goes with attention_cross_entropy; leave it out")
        return self


class RelationSpec(MappedSpec):
    """Relations between tokens (MiniLM, MiniLMv2, CR-ILD's T5): head counts and widths may differ."""

    compare: Literal["relation_kl", "relation_mse"]
    of: Literal["query", "key", "value", "query_key"] = Field(
        description="whose dot products with itself; relation_mse: also query_key, the attention "
        "scores of relation heads"
    )
    heads: Width | Literal["student", "teacher"] = Field(
        "student",
        description="relation heads that all heads' features are split into: a number, or the "
        "student's or the teacher's own count; it has to divide both widths",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> RelationSpec:
        if self.of == "query_key" and self.compare == "relation_kl":
            raise ValueError(
                "of: query_key goes with relation_mse; relation_kl relates queries, keys or values "
                "with themselves"
            )
        return self


_RELATIONS_MEAN: Any = Field(
    "valid",
    description="each example's valid tokens first, then the batch; all: one mean over all pairs and "
    "triples of the batch, and padding around a token counts (contextual KD's release)",
)


class WordRelationSpec(MappedSpec):
    """Relations among an example's tokens, or among a token's layers (contextual KD)."""

    compare: Literal["word_relation_kl", "word_relation_mse"]
    mean_over: Literal["valid", "all"] = _RELATIONS_MEAN
    window: int = Field(21, gt=2, le=10**6, description="word_relation_mse: tokens around a centre")

    @model_validator(mode="after")
    def _makes_sense(self) -> WordRelationSpec:
        if self.compare == "word_relation_kl" and "window" in self.model_fields_set:
            raise ValueError("`window` goes with word_relation_mse; leave it out")
        return self

    @model_serializer(mode="wrap")
    def _without_idle_key(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if self.compare == "word_relation_kl":
            del written["window"]
        return written


class LayerRelationSpec(MappedSpec):
    """Relations among the mapped layers of each token (contextual KD)."""

    compare: Literal["layer_relation_kl", "layer_relation_mse"]
    mean_over: Literal["valid", "all"] = _RELATIONS_MEAN

    @model_validator(mode="after")
    def _makes_sense(self) -> LayerRelationSpec:
        if self.mapping.combine == "costs":
            raise ValueError(
                f"{self.compare} needs one teacher layer for each student layer; "
                "combine: costs and kind: transport compare pairs"
            )
        if self.pairs == "mean":
            raise ValueError(f"{self.compare} is a single comparison; leave `pairs` out")
        return self


class ContrastSpec(MappedSpec):
    """A student's sentence told from those of other classes (CoDIR)."""

    needs_index = True

    compare: Literal["info_nce"]
    pool: Pooling = Field("mean", description="sentence vector of a layer")
    project: ProjectSpec = Field(description="learned maps of both sides to one width")
    temperature: Temperature = Field(0.07, description="divides the cosines")
    negatives: Count = Field(100, description="sentences of another label, from the memory")
    momentum: float = Field(0.5, ge=0, lt=1, description="share of its old vector a memory keeps")

    @model_validator(mode="after")
    def _makes_sense(self) -> ContrastSpec:
        if self.mapping.combine == "costs" or self.mapping.reads_representations:
            raise ValueError("info_nce puts layers side by side; use a fixed or random mapping")
        if self.pairs == "mean":
            raise ValueError("info_nce is a single comparison; leave `pairs` out")
        if self.project.sides != "both" or self.project.share == "all":
            raise ValueError("info_nce has one map a side: project: {to: 128}")
        return self


class ConsistencySpec(_Term):
    """MixUp only: the student on mixed input against the mixture of its clean outputs (CR-ILD)."""

    needs_teacher = False

    compare: Literal["attention_consistency", "hidden_consistency"]
    layers: str | LayerNumber | list[LayerNumber] = Field(
        "M", description="student layers; M is its depth"
    )
    stack: Literal["main", "encoder", "decoder"] = Field("main", description="whose layers")
    detach_target: bool = Field(False, description="no gradient through the target")
    target: Literal["mixed", "clean"] = Field(
        "mixed",
        description="which side is the target: the mixed input's output (the paper), or each clean "
        "output in turn, over its own keys (its release)",
    )
    through: str | None = Field(
        None,
        description="hidden_consistency: the term of the stage whose learned map of the student's "
        "states both sides pass first (W_H, in its release)",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> ConsistencySpec:
        if self.target == "clean" and self.detach_target:
            raise ValueError(
                "target: clean never lets a gradient through; `detach_target` has no effect, leave "
                "it out"
            )
        if self.through is not None and self.compare != "hidden_consistency":
            raise ValueError("`through` maps hidden states; leave it out")
        return self


TermSpec = Annotated[
    HardSpec
    | SoftSpec
    | ErrorWeightedSpec
    | LayerSpec
    | AttentionSpec
    | RelationSpec
    | WordRelationSpec
    | LayerRelationSpec
    | ContrastSpec
    | ConsistencySpec,
    Field(discriminator="compare"),
]

SPECS: dict[str, type[BaseModel]] = {
    name: spec
    for spec in get_args(get_args(TermSpec)[0])
    for name in get_args(spec.model_fields["compare"].annotation)
}
"""What each value of `compare` may say."""
