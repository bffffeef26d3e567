"""Attention without padding, as flash kernels compute it: a stand-in for the kernel, on CPU.

transformers hands such a kernel the mask (B, K) of real tokens, or none where nothing is padded; the
kernel leaves padded tokens out of the computation.
"""

from __future__ import annotations

import pytest
import torch
from families import BY_NAME
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from limbeck.activations import Request, capture

NAME = "unpadded"  # transformers would look up what is called "flash" in its kernels
REQUEST = (
    Request.hidden([1, 2])
    | Request.hidden([2], "mean")
    | Request.attention([1, 2])
    | Request.attention([2], "value")
    | Request.of_logits()
)


def one_by_one(module, query, key, value, attention_mask, scaling=None, **kwargs):
    """Each example's real tokens by themselves; (B, N, H, d), zero at padding."""
    result = torch.zeros_like(query)
    for example in range(len(query)):
        real = torch.ones(query.shape[2], dtype=torch.bool)
        if attention_mask is not None:
            assert attention_mask.dim() == 2
            real = attention_mask[example].bool()
        q, k, v = (part[example][:, real] for part in (query, key, value))
        shares = (q @ k.mT * (scaling or q.shape[-1] ** -0.5)).softmax(-1)
        result[example][:, real] = shares @ v
    return result.transpose(1, 2), None


@pytest.fixture(autouse=True)
def kernel(monkeypatch):
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, NAME, one_by_one)
    monkeypatch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, NAME, flash_attention_mask)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("padded", [True, False])
def test_capture_sees_what_eager_attention_shows(name, padded):
    family = BY_NAME[name]
    model, batch = family.build("eager"), family.batch()
    if not padded:
        batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = capture(model, batch, REQUEST)
        model.set_attn_implementation(NAME)
        found = capture(model, batch, REQUEST)
        plain = model(**batch)
    assert model.config._attn_implementation == NAME
    for seen in REQUEST.items:
        ours, right = found[seen], expected[seen]
        if seen.what == "probabilities" or seen.what == "value":
            ours, right = ours.transpose(1, 2)[real], right.transpose(1, 2)[real]
        elif seen.pool is None:
            ours, right = ours[real], right[real]
        torch.testing.assert_close(ours, right, rtol=0, atol=2e-5, msg=str(seen))
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=2e-5)
    assert torch.equal(found.logits, plain.logits)
