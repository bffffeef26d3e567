"""Attention maps against a twin with eager attention and Hugging Face's `output_attentions`."""

from __future__ import annotations

import pytest
import torch
from families import FAMILIES, Family

from limbeck.capture import Request, Seen, capture, number_of_layers

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def _stacks(family: Family) -> dict[str, str]:
    if family.encoder_decoder:
        return {
            "encoder": "encoder_attentions",
            "decoder": "decoder_attentions",
            "cross": "cross_attentions",
        }
    return {"main": "attentions"}


@every_family
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_probabilities_equal_eager(family: Family, implementation: str) -> None:
    model, batch = family.build(implementation), family.batch()
    with torch.no_grad():
        expected = family.eager(model)(**batch, output_attentions=True)
        for stack, key in _stacks(family).items():
            layers = range(1, number_of_layers(model, stack) + 1)
            trace = capture(model, batch, Request.attention(layers, stack=stack))
            for layer in layers:
                torch.testing.assert_close(
                    trace[Seen("probabilities", layer, None, stack)],
                    expected[key][layer - 1],
                    rtol=0,
                    atol=2e-5,
                )
