"""What few models have: capped scores, hidden masks, no layers; and which attention sees what comes later."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from families import BY_NAME
from torch import nn

from limbeck.activations import ActivationKey, Request, capture
from limbeck.activations.anatomy import is_causal, stack_names
from limbeck.activations.recorders import _call
from limbeck.support.errors import LimbeckError

CAP = 1.5


def capped() -> hf.Gemma2ForCausalLM:
    """A model that caps its scores, with scores large enough for that to matter."""
    torch.manual_seed(0)
    config = hf.Gemma2Config(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=8, intermediate_size=24, attn_logit_softcapping=CAP, query_pre_attn_scalar=1,
        initializer_range=0.5, pad_token_id=1, layer_types=["full_attention"] * 2,
    )  # fmt: skip
    return hf.Gemma2ForCausalLM._from_config(config, attn_implementation="eager").eval()


def test_capped_scores_are_those_of_the_model():
    model, batch = capped(), BY_NAME["llama"].batch()
    with torch.no_grad():
        expected = model(**batch, output_attentions=True).attentions
        asked = Request.attention([1, 2]) | Request.attention([1, 2], "scores")
        trace = capture(model, batch, asked)
    for layer in (1, 2):
        found = trace[ActivationKey("probabilities", layer, None, "main")]
        torch.testing.assert_close(found, expected[layer - 1], rtol=0, atol=2e-5)
        scores = trace[ActivationKey("scores", layer, None, "main")]
        real = expected[layer - 1] > 0
        assert float(scores[real].abs().max()) <= CAP
        assert float(scores[real].abs().max()) > 0.9 * CAP  # the cap is at work


def test_attention_that_cannot_be_read_is_refused():
    ones = torch.ones(1, 2, 3, 4)
    with pytest.raises(LimbeckError, match="hides its mask in a list"):
        _call(nn.Identity(), ones, ones, ones, [], "flex_attention", {})
    with pytest.raises(LimbeckError, match="attention with sinks"):
        _call(nn.Identity(), ones, ones, ones, None, "eager", {"s_aux": torch.zeros(2)})


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("bert", {"main": False}),
        ("deberta-v2", {"main": False}),
        ("llama", {"main": True}),
        ("gpt2", {"main": True}),
        ("t5", {"encoder": False, "decoder": True, "cross": False}),
        ("bart", {"encoder": False, "decoder": True, "cross": False}),
    ],
)
def test_which_stacks_see_what_comes_later(family, expected):
    model = BY_NAME[family].build()
    assert {stack: is_causal(model, stack) for stack in expected} == expected


class Layerless(hf.PreTrainedModel):
    """A network without a list of layers."""

    config_class = hf.BertConfig

    def __init__(self, width: int) -> None:
        super().__init__(hf.BertConfig(hidden_size=4, num_hidden_layers=3))
        self.head = nn.Linear(width, width) if width else None
        self.post_init()


def test_a_model_without_layers_is_refused_and_one_of_outputs_alone_has_none():
    with pytest.raises(LimbeckError, match="no layers found in Layerless"):
        stack_names(Layerless(4))
    assert stack_names(Layerless(0)) == ()
