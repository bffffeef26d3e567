"""Being captured changes nothing: same outputs and gradients bit for bit, and nothing stays
behind."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from families import BY_NAME, FAMILIES, Family
from torch import nn

from limbeck.activations import Request, capture, kinds_available, number_of_layers
from limbeck.activations.anatomy import stack_of

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def _everything(family: Family, model: Any) -> Request:
    """All hidden states and all attention of every stack."""
    request = Request()
    stacks = ("encoder", "decoder", "cross") if family.encoder_decoder else ("main",)
    for stack in stacks:
        layers = range(1, number_of_layers(model, stack) + 1)
        for what in kinds_available(model, stack):
            if what == "hidden":
                request |= Request.hidden([0, *layers], stack=stack)
            else:
                request |= Request.attention(layers, what, stack=stack)
    return request


def _state(model: nn.Module) -> list[Any]:
    """Everything capture could leave on a model: attributes, hooks, submodules, configuration."""
    found: list[Any] = [model.config.to_dict(), id(model.config)]
    for name, module in model.named_modules():
        found.append((name, id(module), sorted(vars(module)), id(module._modules)))
        found.append([(key, id(child)) for key, child in module._modules.items()])
        found.extend(len(value) for key, value in sorted(vars(module).items()) if "hooks" in key)
    return found


def _train_step(model: Any, batch: dict[str, torch.Tensor], request: Request | None) -> Any:
    """Logits and gradients of one step in train mode, with or without capture."""
    torch.manual_seed(3)  # the same dropout
    asked = (request or Request()) | Request.of_logits()
    outputs = model(**batch) if request is None else capture(model, batch, asked)
    outputs.logits.square().sum().backward()
    return outputs.logits.detach(), [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    "family", [family for family in FAMILIES if family.has_head], ids=lambda family: family.name
)
def test_outputs_and_gradients_are_bit_equal(family: Family) -> None:
    plain, captured, batch = family.build().train(), family.build().train(), family.batch()
    if not family.maps:
        # These return their own attention maps when asked, which changes nothing else either.
        assert kinds_available(captured) == ("hidden", "probabilities")
    expected, expected_gradients = _train_step(plain, batch, None)
    logits, gradients = _train_step(captured, batch, _everything(family, captured))
    assert torch.equal(logits, expected)
    assert len(gradients) == len(expected_gradients) > 0
    assert all(map(torch.equal, gradients, expected_gradients))


@every_family
def test_nothing_stays_on_the_model(family: Family) -> None:
    model, batch = family.build(), family.batch()
    before = _state(model)
    request = _everything(family, model)
    for asked in (request, Request.hidden([1]), Request.attention([1])):
        capture(model, batch, asked)
        assert _state(model) == before


@every_family
def test_nothing_stays_after_an_exception(family: Family) -> None:
    def fail(*_: Any) -> None:
        raise ArithmeticError

    model, batch = family.build(), family.batch()
    handle = stack_of(model).modules[-1].register_forward_hook(fail)
    before = _state(model)
    request = _everything(family, model)
    with pytest.raises(ArithmeticError):
        capture(model, batch, request)
    assert _state(model) == before
    handle.remove()
    assert capture(model, batch, request).values.keys() == request.items


def test_hooks_and_forward_of_the_user_still_run() -> None:
    family = BY_NAME["bert"]
    model, batch = family.build(), family.batch()
    layer = model.bert.encoder.layer[0]
    calls = []
    layer.register_forward_hook(lambda *_: calls.append("hook"))
    original = layer.forward

    def own_forward(*args: Any, **kwargs: Any) -> Any:
        calls.append("forward")
        return original(*args, **kwargs)

    layer.forward = own_forward
    capture(model, batch, Request.hidden([0, 1]))
    assert calls == ["forward", "hook"]
    assert layer.forward is own_forward


@pytest.mark.parametrize("name", ["bert", "bert-bare", "albert", "t5"])
def test_captured_models_are_freed(name: str) -> None:
    family = BY_NAME[name]
    model = family.build()
    capture(model, family.batch(), Request.hidden([0, 1]) | Request.attention([1]))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_model_whose_layers_changed_is_looked_up_again() -> None:
    family = BY_NAME["bert"]
    model, batch = family.build(), family.batch()
    assert number_of_layers(model) == 3
    whole = model.bert.encoder.layer
    model.bert.encoder.layer = nn.ModuleList(list(whole)[:2])
    assert number_of_layers(model) == 2
    with torch.no_grad():
        expected = model(**batch, output_hidden_states=True).hidden_states[2]
        trace = capture(model, batch, Request.hidden([2]))
    assert torch.equal(next(iter(trace.values.values())), expected)
    del model.bert.encoder.layer[1]
    assert number_of_layers(model) == 1
