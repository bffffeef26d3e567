"""Pooling against hand-picked positions, with padding on either side and holes."""

import pytest
import torch

from limbeck.functional import pool
from limbeck.support.errors import LimbeckError

# hidden[b, n] = (10b + n, −(10b + n)): the value says where it came from.
HIDDEN = torch.tensor([[[10.0 * b + n, -(10.0 * b + n)] for n in range(4)] for b in range(4)])
MASK = torch.tensor(
    [
        [1, 1, 1, 0],  # right padding: first 0, last 2, mean 1
        [0, 0, 1, 1],  # left padding: 12, 13, 12.5
        [1, 0, 1, 0],  # a hole: 20, 22, 21
        [0, 1, 0, 0],  # one token: 31
    ]
).bool()
EXPECTED = {
    "cls": [0.0, 12.0, 20.0, 31.0],
    "last": [2.0, 13.0, 22.0, 31.0],
    "mean": [1.0, 12.5, 21.0, 31.0],
}


@pytest.mark.parametrize("how", EXPECTED)
def test_hand_picked(how):
    expected = [[value, -value] for value in EXPECTED[how]]
    assert pool(HIDDEN, MASK, how).tolist() == expected
    assert pool(HIDDEN, MASK.long(), how).tolist() == expected


@pytest.mark.parametrize("how", EXPECTED)
def test_padding_of_any_content_changes_nothing(how):
    longer = torch.cat([HIDDEN, torch.full((4, 4, 2), float("nan"))], 1)
    mask = torch.cat([MASK, torch.zeros(4, 4).bool()], 1)
    assert torch.equal(pool(longer, mask, how), pool(HIDDEN, MASK, how))


@pytest.mark.parametrize("how", EXPECTED)
def test_an_empty_example_gives_zeros(how):
    hidden = HIDDEN.clone().requires_grad_()
    mask = MASK.clone()
    mask[2] = False
    pooled = pool(hidden, mask, how)
    assert pooled[2].tolist() == [0.0, 0.0]
    pooled.sum().backward()
    assert hidden.grad[2].abs().sum() == 0


def test_gradient_reaches_the_chosen_tokens_only():
    expected = {
        "cls": [1.0, 0.0, 0.0, 0.0],
        "last": [0.0, 0.0, 1.0, 0.0],
        "mean": [1 / 3, 1 / 3, 1 / 3, 0.0],
    }
    for how, row in expected.items():
        hidden = HIDDEN.clone().requires_grad_()
        pool(hidden, MASK, how)[0, 0].backward()
        assert hidden.grad[0, :, 0].tolist() == pytest.approx(row)
        assert hidden.grad[1:].abs().sum() == 0


@pytest.mark.parametrize("how", EXPECTED)
def test_half_precision_is_pooled_in_float32(how):
    # 512 ones and one 1/256: bfloat16 cannot hold the sum, float32 can.
    hidden = torch.ones(1, 513, 1, dtype=torch.bfloat16)
    hidden[0, -1] = 1 / 256
    pooled = pool(hidden, torch.ones(1, 513).bool(), how)
    assert pooled.dtype == torch.float32
    expected = {"cls": 1.0, "last": 1 / 256, "mean": (512 + 1 / 256) / 513}
    assert pooled.item() == pytest.approx(expected[how], rel=1e-6)


def test_unknown_pooling_names_the_choices():
    with pytest.raises(LimbeckError, match="unknown pooling 'meen'") as caught:
        pool(HIDDEN, MASK, "meen")
    assert "did you mean 'mean'? choices: cls, mean, last" in str(caught.value)
