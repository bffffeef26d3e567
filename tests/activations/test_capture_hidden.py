"""Hidden states and logits against Hugging Face's own, on every family, with padding in the
batch."""

from __future__ import annotations

import pytest
import torch
from families import BY_NAME, FAMILIES, Family

from limbeck.activations import ActivationKey, Request, capture, number_of_layers

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def _stacks(family: Family) -> dict[str, str]:
    """Stack name to the key of Hugging Face's output that holds its hidden states."""
    if family.encoder_decoder:
        return {"encoder": "encoder_hidden_states", "decoder": "decoder_hidden_states"}
    return {"main": "hidden_states"}


@every_family
def test_hidden_states_and_logits_equal_hugging_face(family: Family) -> None:
    model, batch = family.build(), family.batch()
    with torch.no_grad():
        expected = family.build()(**batch, output_hidden_states=True)
        for stack, key in _stacks(family).items():
            layers = range(number_of_layers(model, stack) + 1)
            request = Request.hidden(layers, stack=stack)
            if "logits" in expected:
                request |= Request.of_logits()
            trace = capture(model, batch, request)
            assert len(expected[key]) == len(layers)
            for layer in layers:
                torch.testing.assert_close(
                    trace[ActivationKey("hidden", layer, None, stack)],
                    expected[key][layer],
                    rtol=0,
                    atol=0,
                )
            if "logits" in expected:
                torch.testing.assert_close(trace.logits, expected.logits, rtol=0, atol=0)


def test_a_model_that_answers_with_tuples_shows_the_same() -> None:
    """`return_dict: false` in a configuration makes plain tuples of outputs, where a model still can."""
    family = BY_NAME["bert"]
    model, batch = family.build(), family.batch()
    request = Request.hidden([0, 1]) | Request.of_logits()
    expected = capture(model, batch, request)
    model.config.return_dict = False
    found = capture(model, batch, request)
    for key in request.items:
        torch.testing.assert_close(found[key], expected[key], rtol=0, atol=0)
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=0)


@every_family
def test_bare_stack_gives_the_same_hidden_states(family: Family) -> None:
    model, batch = family.build(), family.batch()
    with torch.no_grad():
        expected = family.build()(**batch, output_hidden_states=True)
        for stack, key in _stacks(family).items():
            for layer in range(number_of_layers(model, stack) + 1):
                trace = capture(model, batch, Request.hidden([layer], stack=stack))
                assert trace.logits is None
                torch.testing.assert_close(
                    trace[ActivationKey("hidden", layer, None, stack)],
                    expected[key][layer],
                    rtol=0,
                    atol=0,
                )
