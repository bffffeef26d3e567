"""Attention maps against a twin with eager attention and Hugging Face's `output_attentions`."""

from __future__ import annotations

import pytest
import torch
from families import BY_NAME, FAMILIES, Family

from limbeck.activations import ActivationKey, Request, capture, number_of_layers

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
maps_families = pytest.mark.parametrize(
    "family", [family for family in FAMILIES if family.maps], ids=lambda family: family.name
)


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
                    trace[ActivationKey("probabilities", layer, None, stack)],
                    expected[key][layer - 1],
                    rtol=0,
                    atol=2e-5,
                )


@maps_families
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_scores_are_the_logarithm_of_probabilities_up_to_a_constant(
    family: Family, implementation: str
) -> None:
    model, batch = family.build(implementation), family.batch()
    with torch.no_grad():
        expected = family.eager(model)(**batch, output_attentions=True)
        for stack, key in _stacks(family).items():
            trace = capture(model, batch, Request.attention([1, 2], "scores", stack))
            for layer in (1, 2):
                probabilities = expected[key][layer - 1]
                difference = (
                    trace[ActivationKey("scores", layer, None, stack)] - probabilities.log()
                )
                # Within a row the difference is the logarithm of the softmax's denominator. A row
                # that sees nothing (padding in a local window) is uniform and has none.
                seen = probabilities > 0
                low = difference.masked_fill(~seen, float("inf")).amin(-1)
                high = difference.masked_fill(~seen, float("-inf")).amax(-1)
                rows = trace.mask("decoder" if stack == "cross" else stack)[:, None].expand_as(low)
                torch.testing.assert_close(low[rows], high[rows], rtol=0, atol=2e-4)


def test_query_key_and_value_are_those_of_the_projections() -> None:
    family = BY_NAME["bert"]
    model, batch = family.build(), family.batch()
    attention = model.bert.encoder.layer[1].attention.self
    outputs = {}
    for what in ("query", "key", "value"):
        getattr(attention, what).register_forward_hook(
            lambda _, __, output, what=what: outputs.__setitem__(what, output)
        )
    request = Request()
    for what in ("query", "key", "value"):
        request |= Request.attention([2], what)
    trace = capture(model, batch, request)
    for what in ("query", "key", "value"):
        heads = trace[ActivationKey(what, 2)]
        assert heads.shape == (3, 2, 9, 8)
        assert torch.equal(torch.cat([heads[:, 0], heads[:, 1]], dim=-1), outputs[what])


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_grouped_heads_are_repeated(name: str) -> None:
    family = BY_NAME[name]
    model, batch = family.build(), family.batch()
    entering = []
    model.model.layers[0].self_attn.o_proj.register_forward_hook(
        lambda _, args, __: entering.append(args[0])
    )
    request = Request.attention([1]) | Request.attention([1], "value")
    trace = capture(model, batch, request | Request.attention([1], "key"))
    value = trace[ActivationKey("value", 1)]
    assert trace[ActivationKey("key", 1)].shape == value.shape
    assert value.shape[1] == 4
    mixed = (trace[ActivationKey("probabilities", 1)] @ value).transpose(1, 2).flatten(2)
    torch.testing.assert_close(mixed, entering[0], rtol=0, atol=1e-5)


@maps_families
def test_gradients_flow_through_the_maps(family: Family) -> None:
    model, batch = family.build(), family.batch()
    twin = family.eager(model)
    stack, key = next(iter(_stacks(family).items()))
    capture(model, batch, Request.attention([2], stack=stack))[
        ActivationKey("probabilities", 2, None, stack)
    ].square().sum().backward()
    twin(**batch, output_attentions=True)[key][1].square().sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert gradients
    for name, parameter in twin.named_parameters():
        if name in gradients:
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-5)


def test_sdpa_models_never_enter_the_eager_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.bert import modeling_bert

    calls = []
    eager = modeling_bert.eager_attention_forward

    def counted(*args: object, **kwargs: object) -> object:
        calls.append(1)
        return eager(*args, **kwargs)

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", counted)
    family = BY_NAME["bert"]
    batch = family.batch()
    request = Request.attention([1, 2, 3])
    capture(family.build("sdpa"), batch, request)
    assert calls == []
    capture(family.build("eager"), batch, request)
    assert len(calls) == 3


def test_maps_are_free_of_dropout() -> None:
    family = BY_NAME["bert"]
    model, batch = family.build().train(), family.batch()
    probabilities = capture(model, batch, Request.attention([1]))[ActivationKey("probabilities", 1)]
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(3, 2, 9))


def test_without_a_scaling_scores_are_divided_by_the_root_of_the_heads_width() -> None:
    """What the kernels do by default, for modules that leave it to them."""
    family = BY_NAME["bert"]
    model, batch = family.build("sdpa"), family.batch()
    request = Request.attention([1, 2])
    expected = capture(model, batch, request)
    for module in model.modules():
        if hasattr(module, "scaling"):
            assert module.scaling == pytest.approx(module.attention_head_size**-0.5)
            module.scaling = None
    found = capture(model, batch, request)
    for key in request.items:
        torch.testing.assert_close(found[key], expected[key])
