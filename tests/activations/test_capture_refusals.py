"""What cannot be captured is refused with the choices and the fix; facts about models;
requests."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from families import BY_NAME, FAMILIES, Family
from torch import nn

from limbeck.activations import (
    ActivationKey,
    Request,
    Trace,
    capture,
    hidden_size,
    kinds_available,
    number_of_heads,
    number_of_layers,
    stack_layers,
    stack_layers_name,
)
from limbeck.support.errors import LimbeckError

MAPS = ("probabilities", "scores", "query", "key", "value")
LAYERS = {
    "bert": "bert.encoder.layer",
    "bert-bare": "encoder.layer",
    "roberta": "roberta.encoder.layer",
    "xlm-roberta": "roberta.encoder.layer",
    "distilbert": "distilbert.transformer.layer",
    "electra": "electra.encoder.layer",
    "modernbert": "model.layers",
    "deberta-v2": "deberta.encoder.layer",
    "mpnet": "mpnet.encoder.layer",
    "t5": "transformer.encoder.block",
    "t5-generation": "encoder.block",
    "t5-encoder": "encoder.block",
    "bart": "model.encoder.layers",
    "llama": "model.layers",
    "qwen3": "model.layers",
    "gpt2": "transformer.h",
    "gpt2-bare": "h",
}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_facts(family: Family) -> None:
    model = family.build()
    assert number_of_layers(model) == 3
    assert hidden_size(model) == 16
    assert number_of_heads(model) == (4 if family.name in ("llama", "qwen3") else 2)
    assert kinds_available(model) == ("hidden", *(MAPS if family.maps else MAPS[:1]))
    if family.name in LAYERS:
        assert stack_layers_name(model) == LAYERS[family.name]
        assert stack_layers(model) is model.get_submodule(LAYERS[family.name])
    if family.encoder_decoder:
        assert number_of_layers(model, "decoder") == 2
        assert kinds_available(model, "cross") == MAPS
        assert "decoder" in stack_layers_name(model, "decoder")
        assert number_of_heads(model, "decoder") == (4 if family.name == "bart" else 2)
    else:
        with pytest.raises(LimbeckError, match="choices: main"):
            number_of_layers(model, "decoder")


def test_shared_layers_cannot_be_picked() -> None:
    with pytest.raises(LimbeckError, match="share one module"):
        stack_layers(BY_NAME["albert"].build())


@pytest.mark.parametrize("name", ["deberta-v2", "mpnet"])
@pytest.mark.parametrize("what", ["scores", "query", "key", "value"])
def test_models_outside_the_interface_show_probabilities_only(name: str, what: Any) -> None:
    family = BY_NAME[name]
    with pytest.raises(LimbeckError, match=rf"does not show '{what}'[^$]*hidden, probabilities"):
        capture(family.build(), family.batch(), Request.attention([1], what))


def test_every_missing_layer_is_named_with_those_that_exist() -> None:
    family = BY_NAME["bert"]
    request = Request.hidden([3, 4, 12]) | Request.attention([5])
    with pytest.raises(LimbeckError, match="layers for 'hidden': 0 to 3") as caught:
        capture(family.build(), family.batch(), request)
    assert len(caught.value.problems) == 3
    assert "layers for 'probabilities': 1 to 3" in str(caught.value)


def test_layers_without_attention_are_told_from_those_that_have() -> None:
    """Of a hybrid model, whose first and third layer are convolutions."""
    torch.manual_seed(0)
    config = hf.Lfm2Config(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=3,
        num_attention_heads=2, num_key_value_heads=2, layer_types=["conv", "full_attention", "conv"],
    )  # fmt: skip
    model = hf.Lfm2ForCausalLM(config).eval()
    batch = {"input_ids": torch.tensor([[2, 3, 4]]), "attention_mask": torch.ones(1, 3).long()}
    trace = capture(model, batch, Request.attention([2]))
    probabilities = trace[ActivationKey("probabilities", 2)]
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(1, 2, 3))
    for layer in (1, 3):
        with pytest.raises(LimbeckError, match=rf"layer {layer} of \S+ has no attention") as caught:
            capture(model, batch, Request.attention([layer]))
        assert "layers that have: 2" in str(caught.value)


def test_missing_stack() -> None:
    family = BY_NAME["bert"]
    with pytest.raises(LimbeckError, match="no stack 'cross'"):
        capture(family.build(), family.batch(), Request.attention([1], stack="cross"))


def test_wrapped_and_foreign_models() -> None:
    family = BY_NAME["bert"]
    model, batch = family.build(), family.batch()
    for wrapped, message in (
        (nn.DataParallel(model), "one process per device"),
        (nn.Linear(2, 2), "not a transformers PreTrainedModel"),
    ):
        with pytest.raises(LimbeckError, match=message):
            capture(wrapped, batch, Request.of_logits())  # type: ignore[arg-type]


def test_logits_without_a_head() -> None:
    family = BY_NAME["bert-bare"]
    with pytest.raises(LimbeckError, match="no head"):
        capture(family.build(), family.batch(), Request.of_logits())


def inputs_given(model: torch.nn.Module) -> list[set[str]]:
    """Names of the inputs of every pass from now on."""
    given: list[set[str]] = []
    model.register_forward_pre_hook(
        lambda module, args, inputs: given.append({*inputs}), with_kwargs=True
    )
    return given


def test_decoder_without_input() -> None:
    family = BY_NAME["t5-generation"]
    model, batch = family.build(), family.batch()
    del batch["decoder_input_ids"]
    with pytest.raises(LimbeckError, match="decoder_input_ids"):
        capture(model, batch, Request.hidden([1], stack="decoder"))
    batch["labels"] = torch.tensor([[5, 6, 2], [7, 2, -100], [2, -100, -100]])
    given = inputs_given(model)
    trace = capture(model, batch, Request.of_logits() | Request.hidden([1], stack="decoder"))
    assert given and not {"labels"} & set().union(*given)
    assert torch.equal(trace.logits, model(**batch).logits)


def test_labels_and_unknown_keys_do_not_reach_the_model() -> None:
    family = BY_NAME["bert"]
    model, batch = family.build(), family.batch()
    extra = {"labels": torch.tensor([0, 1, 2]), "index": torch.arange(3)}
    given = inputs_given(model)
    trace = capture(model, {**batch, **extra}, Request.of_logits())
    assert given and not {"labels", "index"} & set().union(*given)
    assert torch.equal(trace.logits, model(**batch).logits)
    distill = BY_NAME["distilbert"].build()  # takes no token types, which a BERT tokenizer gives
    types = {"token_type_ids": torch.zeros(3, 9, dtype=torch.long)}
    assert capture(distill, {**batch, **types}, Request.of_logits()).logits.shape == (3, 3)


@pytest.mark.parametrize(
    ("what", "layer", "pool", "stack", "message"),
    [
        ("hiden", 1, None, "main", "did you mean 'hidden'"),
        ("hidden", -1, None, "main", "count layers from 0"),
        ("probabilities", 0, None, "main", "count layers from 1"),
        ("hidden", 1, "men", "main", "did you mean 'mean'"),
        ("key", 1, "mean", "main", "only hidden states are pooled"),
        ("hidden", 1, None, "cross", "use 'decoder'"),
        ("hidden", 1, None, "decodr", "did you mean 'decoder'"),
    ],
)
def test_requests_that_no_model_can_meet(
    what: Any, layer: int, pool: Any, stack: Any, message: str
) -> None:
    with pytest.raises(LimbeckError, match=message):
        Request(frozenset({ActivationKey(what, layer, pool, stack)}))


def test_requests_unite() -> None:
    united = Request.hidden([1]) | Request.hidden([1, 2]) | Request.of_logits()
    assert united.items == {ActivationKey("hidden", 1), ActivationKey("hidden", 2)}
    assert united.logits
    assert not Request.hidden([1]).logits


def test_traces_say_what_they_hold() -> None:
    trace = Trace(values={ActivationKey("hidden", 1): torch.zeros(1)})
    with pytest.raises(LimbeckError, match="captured: hidden of main layer 1"):
        trace[ActivationKey("hidden", 2, "mean")]
    with pytest.raises(LimbeckError, match="no token mask"):
        trace.mask("decoder")
