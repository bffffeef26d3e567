"""Attention maps and relations of mapped layers, compared head by head.

Part of `limbeck.objectives`. Internal-KD, ILD, TinyBERT and BERT-EMD compare attention maps, MiniLM
and MiniLMv2 relations, which ask nothing of head counts and widths.
"""

from __future__ import annotations

import torch
from torch import Tensor

from limbeck import functional as F
from limbeck.capture import Seen, Trace
from limbeck.capture.request import What
from limbeck.errors import LimbeckError
from limbeck.objectives.matched import MappedTerm, Masks
from limbeck.objectives.shape import Shape
from limbeck.objectives.spec import AttentionSpec, RelationSpec


class AttentionMatch(MappedTerm):
    """Attention probabilities by KL or cross-entropy, or scaled scores before the softmax by squared error.

    Raises:
        LimbeckError: the two sides' head counts differ.
    """

    spec: AttentionSpec
    lowest_layer = 1

    def __init__(self, spec: AttentionSpec, shape: Shape, setting: str) -> None:
        super().__init__(spec, shape, setting)
        student, teacher = self.student_shape.heads, self.teacher_shape.heads
        if student != teacher:
            raise LimbeckError(
                f"{setting}: {spec.compare} compares head with head, and the student has {student} "
                f"attention heads, the teacher {teacher}",
                "compare relations, which need no equal heads: compare: relation_kl, of: query "
                "(recipe minilmv2)",
            )

    @property
    def sees_padding(self) -> bool:
        """Where a release counts padded queries, or masked scores as zeros."""
        return self.spec.rows == "all" or self.spec.masked == "zero"

    def seen(self, layer: int) -> Seen:
        """The layer's attention: probabilities (B, H, Q, K); scores where the term masks them itself."""
        what: What = "probabilities" if self.spec.compare == "attention_kl" else "scores"
        return Seen(what, layer, None, self.stack)

    def masks(self, student: Trace) -> Masks:
        """Of mixed input the example's own keys, where the recipe says so."""
        found = super().masks(student)
        if self.spec.keys == "model":
            return found
        if student.mixed is None:
            raise LimbeckError(
                f"{self.setting}: keys: own tells partners' keys apart, and nothing is mixed",
                "add mixup: {alpha: 1} to the recipe, or leave `keys` out",
            )
        own = student.mixed.clean
        return Masks(found.tokens, own.mask("cross" if self.stack == "cross" else self.stack))

    def distance(self, state: Tensor, target: Tensor, masks: Masks) -> Tensor:
        """Mean over heads and valid queries (KL), or valid pairs (MSE)."""
        if self.spec.compare != "attention_mse":
            every = self.spec.rows == "all"
            rows = torch.ones_like(masks.tokens) if every else masks.tokens
            if self.spec.compare == "attention_kl":
                return F.attention_kl(state, target, rows, masks.keys)
            return F.attention_cross_entropy(
                state, target, rows, masks.keys, causal=self.student_shape.causal
            )
        if self.spec.masked == "zero":
            outside = ~masks.keys.bool()[:, None, None, :]
            return F.mse(_zeroed(state, outside), _zeroed(target, outside))
        causal = self.student_shape.causal
        return F.attention_mse(state, target, masks.tokens, masks.keys, causal=causal)


# TinyBERT's release takes a score this low for one that the model's mask closed.
_CLOSED_IN_RELEASES = -100.0


def _zeroed(scores: Tensor, outside: Tensor) -> Tensor:
    return scores.masked_fill(outside | (scores <= _CLOSED_IN_RELEASES), 0.0)


class RelationMatch(MappedTerm):
    """Query, key or value relations R = softmax(XXᵀ/√r), by KL.

    All heads' features are joined and split again into relation heads, so that any head counts and
    widths meet (MiniLMv2).
    """

    spec: RelationSpec
    lowest_layer = 1

    def __init__(self, spec: RelationSpec, shape: Shape, setting: str) -> None:
        super().__init__(spec, shape, setting)
        own = {"student": self.student_shape.heads, "teacher": self.teacher_shape.heads}
        self.heads = own[spec.heads] if isinstance(spec.heads, str) else spec.heads

    def seen(self, layer: int) -> Seen:
        """The layer's queries, keys or values (B, H, N, d_head)."""
        return Seen(self.spec.of, layer, None, self.stack)

    def read(self, trace: Trace, layer: int) -> Tensor:
        """The relation map (B, A, N, N): a probability map, so that several layers' can be mixed."""
        of_decoder = self.stack == "cross" and not self._is_of_encoder
        mask = trace.mask("decoder" if of_decoder else self.stack)
        return F.relations(self._split(trace[self.seen(layer)]), mask)

    @property
    def _is_of_encoder(self) -> bool:
        return self.stack == "cross" and self.spec.of != "query"

    def _split(self, features: Tensor) -> Tensor:
        """(B, H, N, d_head) to (B, A, N, r): joined, then split anew."""
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

    def distance(self, state: Tensor, target: Tensor, masks: Masks) -> Tensor:
        """KL(R_T ‖ R_S) over valid tokens: `relation_kl`, on maps that may be mixtures."""
        mask = masks.keys if self._is_of_encoder else masks.tokens
        return F.attention_kl(state, target, mask)
