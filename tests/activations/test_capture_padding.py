"""Padding changes nothing of what is seen at real tokens, and masks say which those are."""

from __future__ import annotations

import pytest
import torch
from families import BY_NAME, EXAMPLES, FAMILIES, TOKENS, Family

from limbeck.activations import ActivationKey, Request, capture, token_mask
from limbeck.support.errors import LimbeckError

text_families = pytest.mark.parametrize(
    "family", [family for family in FAMILIES if not family.image], ids=lambda family: family.name
)


@text_families
def test_padding_to_twice_the_length_changes_nothing(family: Family) -> None:
    model = family.build()
    request = Request.hidden([0, 2, 3]) | Request.attention([2])
    with torch.no_grad():
        short = capture(model, family.batch(), request)
        long = capture(model, family.batch(extra=TOKENS), request)
    real = short.mask()
    assert torch.equal(long.mask()[:, :TOKENS], real)
    assert not long.mask()[:, TOKENS:].any()
    for layer in (0, 2, 3):
        seen = ActivationKey("hidden", layer)
        torch.testing.assert_close(
            short[seen][real], long[seen][:, :TOKENS][real], rtol=0, atol=1e-5
        )
    seen = ActivationKey("probabilities", 2)
    rows = real[:, None, :].expand(short[seen].shape[:3])
    torch.testing.assert_close(
        short[seen][rows], long[seen][:, :, :TOKENS, :TOKENS][rows], rtol=0, atol=1e-5
    )


@text_families
@pytest.mark.parametrize("grad", [False, True])
def test_pooled_states_are_those_of_real_tokens(family: Family, grad: bool) -> None:
    model, batch = family.build(), family.batch()
    request = Request.hidden([0, 2])
    for pool in ("mean", "cls", "last"):
        request |= Request.hidden([0, 2, 3], pool=pool)
    with torch.set_grad_enabled(grad):
        trace = capture(model, batch, request)
    for layer in (0, 2):
        hidden = trace[ActivationKey("hidden", layer)]
        for row, length in enumerate((TOKENS, 6, 4)):
            expected = {
                "mean": sum(hidden[row, token] for token in range(length)) / length,
                "cls": hidden[row, 0],
                "last": hidden[row, length - 1],
            }
            for pool, value in expected.items():
                got = trace[ActivationKey("hidden", layer, pool)][row]
                torch.testing.assert_close(got, value, rtol=0, atol=1e-6)
                assert got.requires_grad == grad


def test_only_the_pooled_states_are_kept_without_gradients() -> None:
    family = BY_NAME["bert"]
    with torch.no_grad():
        trace = capture(family.build(), family.batch(), Request.hidden([1, 2], pool="mean"))
    assert {tuple(value.shape) for value in trace.values.values()} == {(EXAMPLES, 16)}


def test_images_have_no_padding() -> None:
    family = BY_NAME["vit"]
    model, batch = family.build(), family.batch()
    expected = torch.ones(EXAMPLES, 10, dtype=torch.bool)  # 3 x 3 patches and the class token
    assert torch.equal(token_mask(model, batch), expected)
    trace = capture(model, batch, Request.hidden([3], pool="mean") | Request.of_logits())
    assert torch.equal(trace.mask(), expected)
    hidden = capture(model, batch, Request.hidden([3]))[ActivationKey("hidden", 3)]
    torch.testing.assert_close(trace[ActivationKey("hidden", 3, "mean")], hidden.mean(1))


def test_without_an_attention_mask_every_token_is_real() -> None:
    family = BY_NAME["bert"]
    batch = {"input_ids": family.batch()["input_ids"]}
    assert token_mask(family.build(), batch).all()


def test_decoder_masks() -> None:
    family = BY_NAME["t5-generation"]
    model, batch = family.build(), family.batch()
    assert token_mask(model, batch, "decoder").shape == (EXAMPLES, 5)
    assert token_mask(model, batch, "decoder").all()
    assert torch.equal(token_mask(model, batch, "cross"), batch["attention_mask"].bool())
    del batch["decoder_input_ids"]
    batch["labels"] = torch.tensor([[5, 6, 2], [7, 2, -100], [2, -100, -100]])
    expected = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    assert torch.equal(token_mask(model, batch, "decoder"), expected)
    classifier = BY_NAME["t5"]
    mask = token_mask(classifier.build(), classifier.batch(), "decoder")
    assert torch.equal(mask, classifier.batch()["attention_mask"].bool())


def test_a_mask_that_is_not_per_token_is_refused() -> None:
    family = BY_NAME["bert"]
    batch = family.batch()
    batch["attention_mask"] = batch["attention_mask"][:, None, None, :]
    with pytest.raises(LimbeckError, match="attention_mask has 4 dimensions"):
        capture(family.build(), batch, Request.of_logits())
