"""Capture of models that read images: ViT's tokens, and CNNs of which only the answers are seen."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    ConvNextConfig,
    ConvNextForImageClassification,
    SwinConfig,
    SwinForImageClassification,
)

import image_sets as sets
from limbeck.activations import Request, capture, number_of_layers, stack_names, token_mask
from limbeck.lab.cifar_nets import CifarNetForImageClassification, configuration_of
from limbeck.objectives import ModelShape
from limbeck.support.errors import LimbeckError

BATCH = {
    "pixel_values": torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0)),
    "labels": torch.arange(3),
    "index": torch.arange(3),
}


def layerless():
    yield CifarNetForImageClassification(configuration_of("resnet-8")).eval()
    yield CifarNetForImageClassification(configuration_of("wrn-16-1")).eval()
    yield sets.hf_resnet()
    yield ConvNextForImageClassification(
        ConvNextConfig(patch_size=2, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
    ).eval()
    yield SwinForImageClassification(
        SwinConfig(image_size=8, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2],
                   window_size=2)
    ).eval()  # fmt: skip


@pytest.mark.parametrize("model", [*layerless()], ids=lambda model: type(model).__name__)
def test_nets_without_token_layers_show_their_answers_alone(model):
    assert stack_names(model) == ()
    with torch.no_grad():
        trace = capture(model, BATCH, Request.of_logits())
        assert torch.equal(trace.logits, model(pixel_values=BATCH["pixel_values"]).logits)
    assert torch.equal(token_mask(model, BATCH), torch.ones(3, 1, dtype=torch.bool))
    assert ModelShape.of(model) == ModelShape(0, 0, 0, labels=model.config.num_labels)
    for look in (
        lambda: capture(model, BATCH, Request.hidden([1])),
        lambda: number_of_layers(model),
    ):
        with pytest.raises(LimbeckError, match=r"only the logits(.|\n)*kd-soft"):
            look()


def test_vit_shows_its_layers_and_counts_its_tokens_once():
    model = sets.vit(2)
    trace = capture(model, BATCH, Request.hidden([0, 1, 2]) | Request.of_logits())
    states = model(pixel_values=BATCH["pixel_values"], output_hidden_states=True).hidden_states
    for layer, state in enumerate(states):
        (seen,) = [seen for seen in trace.values if seen.layer == layer]
        assert torch.allclose(trace[seen], state, atol=1e-6)
    # Four patches of 4 × 4 pixels and the class token.
    assert torch.equal(trace.mask(), torch.ones(3, 5, dtype=torch.bool))
    assert torch.equal(token_mask(model, BATCH), trace.mask())
    calls = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    inner = model.vit.register_forward_hook(lambda *_: calls.append(1))
    assert token_mask(model, BATCH).shape == (3, 5)
    assert calls == []
    handle.remove()
    inner.remove()
