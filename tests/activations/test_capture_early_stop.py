"""Without logits the pass stops behind the deepest layer asked for, with the same values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from families import BY_NAME, FAMILIES, Family

from limbeck.activations import ActivationKey, Request, capture
from limbeck.activations.anatomy import stack_of

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def _count_layer_calls(model: Any, stack: str = "main") -> list[int]:
    """A list that grows by a layer's number each time it runs."""
    calls: list[int] = []
    modules = stack_of(model, stack).modules
    for module in dict.fromkeys(modules):
        number = modules.index(module) + 1
        module.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    return calls


@every_family
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_deeper_layers_do_not_run(family: Family, depth: int) -> None:
    model, batch = family.build(), family.batch()
    asked = ActivationKey("hidden", depth)
    with torch.no_grad():
        whole = capture(model, batch, Request.hidden([1, 2, 3]))[asked]
        calls = _count_layer_calls(model)
        cut = capture(model, batch, Request.hidden([depth]))[asked]
    expected = [1] * depth if family.name == "albert" else list(range(1, depth + 1))
    assert calls == expected
    assert torch.equal(cut, whole)


@every_family
def test_attention_stops_early_too(family: Family) -> None:
    model, batch = family.build(), family.batch()
    asked = ActivationKey("probabilities", 2)
    with torch.no_grad():
        whole = capture(model, batch, Request.attention([1, 2, 3]))[asked]
        calls = _count_layer_calls(model)
        cut = capture(model, batch, Request.attention([2]))[asked]
    assert len(calls) == 2
    assert torch.equal(cut, whole)


def test_logits_keep_the_whole_model_running() -> None:
    family = BY_NAME["bert"]
    model, batch = family.build(), family.batch()
    calls = _count_layer_calls(model)
    capture(model, batch, Request.hidden([1]) | Request.of_logits())
    assert calls == [1, 2, 3]


@pytest.mark.parametrize("name", ["t5", "t5-generation", "bart"])
def test_decoder_is_cut_and_the_encoder_runs_whole(name: str) -> None:
    family = BY_NAME[name]
    model, batch = family.build(), family.batch()
    encoder, decoder = _count_layer_calls(model, "encoder"), _count_layer_calls(model, "decoder")
    request = Request.hidden([1], stack="encoder")
    capture(model, batch, request)
    assert (encoder, decoder) == ([1], [])
    encoder.clear()
    capture(model, batch, request | Request.attention([1], stack="cross"))
    assert (encoder, decoder) == ([1, 2, 3], [1])


def test_nothing_asked_runs_nothing() -> None:
    family = BY_NAME["bert"]
    model, batch = family.build(), family.batch()
    calls = _count_layer_calls(model)
    trace = capture(model, batch, Request())
    assert calls == []
    assert trace.values == {}
    assert torch.equal(trace.mask(), batch["attention_mask"].bool())
