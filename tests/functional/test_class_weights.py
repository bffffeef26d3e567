"""Class weights and the focal loss: torch's own losses, scikit-learn's weights, loops and numbers by hand."""

import math

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from limbeck import functional as F
from limbeck.support.errors import LimbeckError


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2


LOGITS, LABELS = random(6, 3), torch.tensor([0, 2, -100, 1, 1, 0])
WEIGHTS = torch.tensor([0.5, 2.0, 3.0])


def test_weighted_cross_entropy_is_torchs_but_for_the_mean():
    total = torch.nn.CrossEntropyLoss(weight=WEIGHTS, reduction="sum")(LOGITS, LABELS)
    found = F.hard_cross_entropy(LOGITS, LABELS, class_weights=WEIGHTS)
    assert found.item() == pytest.approx(total.item() / 5, rel=1e-6)


def test_weights_of_one_change_nothing():
    found = F.hard_cross_entropy(LOGITS, LABELS, class_weights=torch.ones(3))
    assert found.item() == pytest.approx(F.hard_cross_entropy(LOGITS, LABELS).item(), rel=1e-6)


def test_two_halves_of_a_batch_add_up_to_it():
    both = F.hard_cross_entropy(LOGITS[[0, 1, 3, 4]], LABELS[[0, 1, 3, 4]], class_weights=WEIGHTS)
    halves = [
        F.hard_cross_entropy(LOGITS[part], LABELS[part], class_weights=WEIGHTS)
        for part in ([0, 1], [3, 4])
    ]
    assert both.item() == pytest.approx(sum(halves).item() / 2, rel=1e-6)


def test_focal_by_hand():
    # p = ¾: −(¼)²·ln ¾ = .0625 · .287682; p = ½: −(½)²·ln ½ = .25 · .693147
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])
    found = F.hard_cross_entropy(logits, torch.tensor([0, 1]), gamma=2)
    assert found.item() == pytest.approx((0.0179801 + 0.1732868) / 2, abs=1e-6)
    weighted = F.hard_cross_entropy(
        logits, torch.tensor([0, 1]), gamma=2, class_weights=torch.tensor([3.0, 1.0])
    )
    assert weighted.item() == pytest.approx((3 * 0.0179801 + 0.1732868) / 2, abs=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_shares_of_classes_by_a_loop(gamma):
    shares = random(6, 3, seed=1).softmax(-1)
    shares[2] = math.nan
    expected = 0.0
    for row in (0, 1, 3, 4, 5):
        odds = [math.exp(value) for value in LOGITS[row].tolist()]
        for number in range(3):
            p = odds[number] / sum(odds)
            part = shares[row, number].item() * WEIGHTS[number].item()
            expected -= part * (1 - p) ** gamma * math.log(p)
    found = F.hard_cross_entropy(LOGITS, shares, class_weights=WEIGHTS, gamma=gamma)
    assert found.item() == pytest.approx(expected / 5, rel=1e-5)


def test_tags_by_a_loop():
    logits, labels = random(2, 3, 3), torch.tensor([[0, -100, 2], [1, -100, -100]])
    each = -logits.log_softmax(-1)
    first = (0.5 * each[0, 0, 0] + 3.0 * each[0, 2, 2]) / 2
    expected = (first + 2.0 * each[1, 0, 1]) / 2
    found = F.token_cross_entropy(logits, labels, class_weights=WEIGHTS)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_balanced_as_scikit_learn_has_it():
    labels = np.array([0] * 7 + [1] * 2 + [2])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert F.balanced_weights(torch.tensor([7, 2, 1])).tolist() == pytest.approx(expected)
    # A class without rows plays no part in the others' weights.
    assert F.balanced_weights(torch.tensor([7, 0, 2, 1]))[[0, 2, 3]].tolist() == pytest.approx(
        expected
    )
    assert F.balanced_positive_weights(torch.tensor([2, 0, 10, 5]), 10).tolist() == [4, 1, 1, 1]


@pytest.mark.parametrize("gamma", [0.3, 2])
def test_a_certain_student_has_a_gradient(gamma):
    logits = torch.tensor([[80.0, 0.0], [-80.0, 0.0]], requires_grad=True)
    F.hard_cross_entropy(logits, torch.tensor([0, 0]), gamma=gamma).backward()
    assert logits.grad.isfinite().all()
    assert logits.grad[1, 0].item() == pytest.approx(-0.5, rel=1e-5)


def test_a_gamma_below_zero_is_refused():
    with pytest.raises(LimbeckError, match="gamma is -1"):
        F.hard_cross_entropy(LOGITS, LABELS, gamma=-1)
