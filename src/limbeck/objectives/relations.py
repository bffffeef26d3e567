"""Attention maps and relations of mapped layers, compared head by head.

Part of `limbeck.objectives`. Internal-KD, ILD, TinyBERT and BERT-EMD compare attention maps, MiniLM
and MiniLMv2 relations, which work with any head counts and widths.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import ActivationKey, Trace
from limbeck.activations.request import What
from limbeck.objectives import mapped
from limbeck.objectives.base import Shape
from limbeck.objectives.registration import objective
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Width


class AttentionSpec(mapped.MappedSpec):
    """Attention maps of mapped layers, head by head: probabilities (KL) or scores (MSE)."""

    compare: str = Field(
        description="a comparison of attention: attention_kl, attention_cross_entropy, attention_mse, or "
        "one that you have registered"
    )
    masked: Literal["left_out", "zero"] = Field(
        "left_out",
        description="attention_mse: padding is left out; zero: padding, and every score of −100 or "
        "less, counts as a zero score (as in TinyBERT's release)",
    )
    rows: Literal["valid", "all"] = Field(
        "valid",
        description="attention_kl, attention_cross_entropy: queries that count; `all`: padding too (CR-ILD's release)",
    )
    keys: Literal["model", "own"] = Field(
        "model",
        description="attention_cross_entropy of mixed inputs: the keys of both partners, as the "
        "models see them, or the example's own alone (CR-ILD's release)",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> "AttentionSpec":
        comparison = mapped.comparison_of(self.compare)
        if self.masked == "zero" and "zero" not in comparison.variants:
            raise ValueError(_goes_with("masked: zero", lambda one: "zero" in one.variants))
        if self.rows == "all" and "rows" not in comparison.takes:
            raise ValueError(_goes_with("rows: all", lambda one: "rows" in one.takes))
        if self.keys == "own" and "keys" not in comparison.takes:
            raise ValueError(_goes_with("keys: own", lambda one: "keys" in one.takes))
        return self

    @property
    def needs_mixed(self) -> str:
        """The name that distinguishes partners' keys."""
        return "keys: own separates partners' keys" if self.keys == "own" else ""


def _goes_with(what: str, able: Callable[[mapped.LayerComparison], bool]) -> str:
    return f"{what} goes with {' and '.join(mapped.names_where(able))}; leave it out"


@mapped.takes_comparisons("probabilities", "scores")
class AttentionMatch(mapped.ComparedTerm):
    """Attention probabilities by KL or cross-entropy, or scaled scores before the softmax by squared error.

    Raises:
        LimbeckError: the two sides' head counts differ.
    """

    settings_class = AttentionSpec
    settings: AttentionSpec
    lowest_layer = 1

    def __init__(self, settings: AttentionSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        student, teacher = self.student_shape.heads, self.teacher_shape.heads
        if student != teacher:
            raise LimbeckError(
                f"{setting}: {settings.compare} compares head with head, and the student has {student} "
                f"attention heads, the teacher {teacher}",
                "compare relation heads, which need no equal heads: compare: relation_kl, of: query "
                "(recipe minilmv2), or scores: compare: relation_mse, of: query_key",
            )

    @property
    def sees_padding(self) -> bool:
        """Where a release counts padded queries, or masked scores as zeros."""
        return self.settings.rows == "all" or self.settings.masked == "zero"

    def seen(self, layer: int) -> ActivationKey:
        """The layer's attention: probabilities (B, H, Q, K); scores where the term masks them itself."""
        what: What = "probabilities" if self.comparison.sees == "probabilities" else "scores"
        return ActivationKey(what, layer, None, self.stack)

    def masks(self, student: Trace) -> mapped.Masks:
        """For mixed input the example's own keys, if the recipe requires it."""
        found = super().masks(student)
        if self.settings.keys == "model":
            return found
        if student.mixed is None:
            raise LimbeckError(
                f"{self.setting}: keys: own separates partners' keys, and no examples are mixed",
                "add mixup: {alpha: 1} to the recipe, or leave `keys` out",
            )
        mixed, stack = student.mixed, "cross" if self.stack == "cross" else self.stack
        return mapped.Masks(found.tokens, mixed.pair(mixed.clean.mask(stack))[0])

    def distance(self, state: Tensor, target: Tensor, masks: mapped.Masks) -> Tensor:
        """The term named by the recipe's `compare`."""
        if self.settings.rows == "all":
            masks = masks._replace(tokens=torch.ones_like(masks.tokens))
        masks = masks._replace(causal=self.student_shape.causal)
        return self.comparison.by(self.settings.masked)(state, target, masks)


@mapped.comparison("attention_kl", sees="probabilities", takes=["rows"])
def _attention_kl(student: Tensor, teacher: Tensor, masks: mapped.Masks) -> Tensor:
    """KL of the probabilities, mean over heads and valid queries."""
    return F.attention_kl(student, teacher, masks.tokens, masks.keys)


@mapped.comparison("attention_cross_entropy", sees="scores", takes=["rows", "keys"])
def _attention_cross_entropy(student: Tensor, teacher: Tensor, masks: mapped.Masks) -> Tensor:
    """Cross-entropy of the probabilities, mean over heads and valid queries."""
    return F.attention_cross_entropy(
        student, teacher, masks.tokens, masks.keys, causal=masks.causal
    )


# TinyBERT's release takes a score this low for one that the model's mask closed.
_CLOSED_IN_RELEASES = -100.0


def _zeroed(scores: Tensor, outside: Tensor) -> Tensor:
    return scores.masked_fill(outside | (scores <= _CLOSED_IN_RELEASES), 0.0)


def _zero_where_masked(student: Tensor, teacher: Tensor, masks: mapped.Masks) -> Tensor:
    outside = ~masks.keys.bool()[:, None, None, :]
    return F.mse(_zeroed(student, outside), _zeroed(teacher, outside))


@mapped.comparison("attention_mse", sees="scores", variants={"zero": _zero_where_masked})
def _attention_mse(student: Tensor, teacher: Tensor, masks: mapped.Masks) -> Tensor:
    """Squared error of the scores before the softmax, mean over heads and valid pairs."""
    return F.attention_mse(student, teacher, masks.tokens, masks.keys, causal=masks.causal)


class RelationSpec(mapped.MappedSpec):
    """Relations between tokens (MiniLM, MiniLMv2, CR-ILD's T5): head counts and widths may differ."""

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
    def _makes_sense(self) -> "RelationSpec":
        if self.of == "query_key" and self.compare == "relation_kl":
            raise ValueError(
                "of: query_key goes with relation_mse; relation_kl relates queries, keys or values with themselves"
            )
        return self


@objective("relation_kl", "relation_mse", settings=RelationSpec)
class RelationMatch(mapped.MappedTerm):
    """Query, key or value relations R = softmax(XXᵀ/√r) by KL, or scores by squared error.

    All heads' features are joined and split again into relation heads, so that any head counts and
    widths meet (MiniLMv2). The scores of `query_key` are the attention scores QKᵀ/√r of relation
    heads (CR-ILD, App. F.2), over the keys that a causal stack lets a query see.
    """

    settings: RelationSpec
    lowest_layer = 1

    def __init__(self, settings: RelationSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        own = {"student": self.student_shape.heads, "teacher": self.teacher_shape.heads}
        self.heads = own[settings.heads] if isinstance(settings.heads, str) else settings.heads

    @property
    def related(self) -> tuple[What, What]:
        """The factors of the relation: the rows' and the columns' features."""
        return (
            ("query", "key")
            if self.settings.of == "query_key"
            else (self.settings.of, self.settings.of)
        )

    def seen(self, layer: int) -> ActivationKey:
        """The layer's queries, keys or values (B, H, N, d_head): of the rows."""
        return self.takes(layer)[0]

    def takes(self, layer: int) -> tuple[ActivationKey, ActivationKey]:
        """Rows and columns; one and the same but for `query_key`."""
        rows, columns = (ActivationKey(what, layer, None, self.stack) for what in self.related)
        return rows, columns

    def read(self, trace: Trace, layer: int) -> Tensor:
        """Probabilities (KL) or scores, (B, A, Q, K), so that several layers' can be mixed."""
        rows, columns = (self._split(trace[seen]) for seen in self.takes(layer))
        masks = [
            trace.mask("decoder" if self.stack == "cross" and what == "query" else self.stack)
            for what in self.related
        ]
        if self.settings.compare == "relation_kl":
            return F.relations(rows, masks[0])
        return F.relation_scores(rows, columns, *masks)

    def _split(self, features: Tensor) -> Tensor:
        """(B, H, N, d_head) to (B, A, N, r): joined, then split again."""
        batch, heads, tokens, width = features.shape
        if heads == self.heads:
            return features
        if (heads * width) % self.heads:
            raise LimbeckError(
                f"{self.setting}.heads: {self.heads} relation heads do not divide "
                f"{heads * width} features ({heads} heads of {width})",
                "choose a number that divides both sides' features",
            )
        joined = features.transpose(1, 2).reshape(batch, tokens, self.heads, -1)
        return joined.transpose(1, 2)

    def distance(self, state: Tensor, target: Tensor, masks: mapped.Masks) -> Tensor:
        """KL(R_T ‖ R_S), or squared error, over valid tokens, of maps that may be mixtures."""
        # Across, only queries are the decoder's; elsewhere both masks are one.
        rows, columns = (masks.tokens if w == "query" else masks.keys for w in self.related)
        if self.settings.compare == "relation_kl":
            return F.attention_kl(state, target, rows)
        causal = self.settings.of == "query_key" and self.student_shape.causal
        return F.relation_mse(state, target, rows, columns, causal=causal)


# Relations inside a representation, compared: among words, and among layers (contextual KD). Nothing
# is compared across the sides but angles and similarities, so widths may differ.


_RELATIONS_MEAN: Any = Field(
    "valid",
    description="each example's valid tokens first, then the batch; all: one mean over all pairs and "
    "triples of the batch, and padding around a token counts (contextual KD's release)",
)


class WordRelationSpec(mapped.MappedSpec):
    """Relations among an example's tokens, or among a token's layers (contextual KD)."""

    mean_over: Literal["valid", "all"] = _RELATIONS_MEAN
    window: int = Field(21, gt=2, le=10**6, description="word_relation_mse: tokens around a centre")

    @model_validator(mode="after")
    def _makes_sense(self) -> "WordRelationSpec":
        if self.compare == "word_relation_kl" and "window" in self.model_fields_set:
            raise ValueError("`window` goes with word_relation_mse; leave it out")
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_unsaid(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if self.compare == "word_relation_kl":
            written.pop("window", None)
        return written


@objective("word_relation_kl", "word_relation_mse", settings=WordRelationSpec)
class WordRelation(mapped.MappedTerm):
    """The relations between an example's tokens in a layer."""

    settings: WordRelationSpec

    @property
    def sees_differences(self) -> bool:
        """Angles between differences to a center."""
        return self.settings.compare == "word_relation_mse"

    @property
    def sees_padding(self) -> bool:
        """Around a token, where the release averages over complete windows."""
        return self.settings.mean_over == "all" and self.settings.compare == "word_relation_mse"

    def distance(self, state: Tensor, target: Tensor, masks: mapped.Masks) -> Tensor:
        """Pairs by KL, or angles in a window by squared error."""
        mask, over = masks.tokens, self.settings.mean_over
        if self.settings.compare == "word_relation_kl":
            return F.word_relation_kl(state, target, mask, mean_over=over)
        return F.word_relation_mse(state, target, mask, window=self.settings.window, mean_over=over)


class LayerRelationSpec(mapped.MappedSpec):
    """Relations among the mapped layers of each token (contextual KD)."""

    mean_over: Literal["valid", "all"] = _RELATIONS_MEAN

    @model_validator(mode="after")
    def _makes_sense(self) -> "LayerRelationSpec":
        if self.mapping.combine == "costs":
            raise ValueError(
                f"{self.compare} needs one teacher layer for each student layer; "
                "combine: costs and kind: transport compare pairs"
            )
        if self.pairs == "mean":
            raise ValueError(f"{self.compare} is a single comparison; leave `pairs` out")
        return self


@objective("layer_relation_kl", "layer_relation_mse", settings=LayerRelationSpec)
class LayerRelation(mapped.MappedTerm):
    """The relations between a token's states in the mapped layers.

    Raises:
        LimbeckError: fewer than two layers (three for angles) are mapped, and `mean_over` is `valid`.
    """

    settings: LayerRelationSpec

    def __init__(self, settings: LayerRelationSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        needed = 2 if settings.compare == "layer_relation_kl" else 3
        # With fewer, the release's mean over the entire batch is 0: the term exists but has no effect.
        if settings.mean_over != "all" and len(self.mapping.student_layers) < needed:
            raise LimbeckError(
                f"{setting}: {settings.compare} relates at least {needed} layers, and "
                f"{len(self.mapping.student_layers)} are mapped",
                "map more student layers (0 is the embedding output)",
            )

    @property
    def together(self) -> bool:
        """A layer is compared with the others."""
        return True

    @property
    def sees_differences(self) -> bool:
        """Angles between differences to a center."""
        return self.settings.compare == "layer_relation_mse"

    def compare(
        self, states: dict[int, Tensor], targets: dict[int, Tensor], masks: mapped.Masks
    ) -> Tensor:
        """All layers at once: (1)."""
        state = torch.stack(list(states.values()), dim=2)
        return self.distance(state, torch.stack(list(targets.values()), dim=2), masks)[None]

    def distance(self, state: Tensor, target: Tensor, masks: mapped.Masks) -> Tensor:
        """States (B, N, S, d): pairs by KL, or angles by squared error."""
        compared = F.layer_relation_kl
        if self.settings.compare == "layer_relation_mse":
            compared = F.layer_relation_mse
        return compared(state, target, masks.tokens, mean_over=self.settings.mean_over)
