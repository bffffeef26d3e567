"""One model's size and speed in the form that a record keeps.

A run calls it once for the student and once for
the teacher.
"""

from __future__ import annotations

from transformers import PreTrainedModel

from limbeck.activations import hidden_size, number_of_heads, number_of_layers, stack_names
from limbeck.evaluation.measuring import Size, count_parameters, flops_per_example
from limbeck.records import Latency, ModelFacts
from limbeck.support.errors import LimbeckError

PAPERS_TOKENS = 128
"""The length at which the papers' tables state FLOPs."""


def model_facts(
    model: PreTrainedModel, tokens: Size, *, latency_ms: Latency | None = None
) -> ModelFacts:
    """Parameters, layers, width, heads and the FLOPs of one example of that size, and of 128 tokens.

    A network without layers over tokens has no number of layers, width and heads here.

    Latency is passed in, because models that are compared have to be timed in turns
    (`measure.latencies`). Raises LimbeckError when the model cannot read that many tokens.
    """
    count = count_parameters(model)
    inside = bool(stack_names(model))
    return ModelFacts(
        parameters=count.total,
        embedding_parameters=count.embedding,
        layers=number_of_layers(model) if inside else None,
        hidden_size=hidden_size(model) if inside else None,
        heads=number_of_heads(model) if inside else None,
        flops_per_example=flops_per_example(model, tokens),
        flops_at_128=_flops_at_128(model) if isinstance(tokens, int) else None,
        latency_ms=latency_ms,
    )


def _flops_at_128(model: PreTrainedModel) -> int | None:
    """FLOPs of one example of 128 tokens; None for a model that cannot read so many."""
    try:
        return flops_per_example(model, PAPERS_TOKENS)
    except LimbeckError:
        return None
