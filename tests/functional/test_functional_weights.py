"""Losses in which each example counts as it is told to, and what a model's confidence is: loops and numbers."""

import math

import pytest
import torch

from limbeck import functional as F
from limbeck.support.errors import LimbeckError


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2


STUDENT, TEACHER = random(5, 3), random(5, 3, seed=1)
LABELS = torch.tensor([0, 2, 1, 1, 0])
WEIGHTS = torch.tensor([0.0, 1.0, 0.25, 2.0, 0.5])
LOSSES = {
    "soft_cross_entropy": lambda s, t, w: F.soft_cross_entropy(s, t, temperature=2, weights=w),
    "soft_kl": lambda s, t, w: F.soft_kl(s, t, temperature=2, scale_by_t2=True, weights=w),
    "pseudo_label": lambda s, t, w: F.pseudo_label(s, t, weights=w),
    "mse": lambda s, t, w: F.mse(s, t, weights=w),
    "dkd": lambda s, t, w: F.dkd(s, t, LABELS[: len(s)], weights=w),
    "error_weighted": lambda s, t, w: F.error_weighted_cross_entropy(
        s, torch.stack([t, t.flip(1)]), LABELS[: len(s)], weights=w
    ),
}
every_loss = pytest.mark.parametrize("name", LOSSES)


@every_loss
def test_an_example_counts_as_much_as_it_weighs_and_the_mean_is_over_all(name):
    loss = LOSSES[name]
    if name in ("dkd", "error_weighted"):  # they read labels by place
        alone = [loss(STUDENT, TEACHER, torch.eye(5)[i]).item() * 5 for i in range(5)]
        plain = sum(alone) / 5
        assert loss(STUDENT, TEACHER, None).item() == pytest.approx(plain, rel=1e-5)
    else:
        alone = [loss(STUDENT[[i]], TEACHER[[i]], None).item() for i in range(5)]
    expected = sum(w * one for w, one in zip(WEIGHTS.tolist(), alone, strict=True)) / 5
    assert loss(STUDENT, TEACHER, WEIGHTS).item() == pytest.approx(expected, rel=1e-5)


@every_loss
def test_weights_of_one_change_nothing(name):
    loss = LOSSES[name]
    plain = loss(STUDENT, TEACHER, None)
    torch.testing.assert_close(loss(STUDENT, TEACHER, torch.ones(5)), plain)


@every_loss
def test_what_does_not_count_reaches_neither_value_nor_gradient(name):
    weights = torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0])
    found = []
    for odd in (0.0, 50.0):
        student = STUDENT.clone()
        student[0] += odd * torch.tensor([1.0, -1.0, 0.0])
        student.requires_grad_()
        value = LOSSES[name](student, TEACHER, weights)
        (gradient,) = torch.autograd.grad(value, student)
        assert gradient[0].abs().max() == 0
        found.append(value.item())
    assert found[0] == found[1]


def test_batches_of_a_step_add_up_to_one_large_batch():
    whole = F.soft_kl(STUDENT[:4], TEACHER[:4], weights=WEIGHTS[:4])
    halves = [
        F.soft_kl(STUDENT[part], TEACHER[part], weights=WEIGHTS[part])
        for part in (slice(0, 2), slice(2, 4))
    ]
    torch.testing.assert_close(torch.stack(halves).mean(), whole)


def test_a_pseudo_label_is_the_teachers_class():
    student = torch.tensor([[math.log(0.25), math.log(0.75)]] * 2)
    teacher = torch.tensor([[0.1, 0.0], [-3.0, 5.0]])
    # −(ln ¼ + ln ¾)/2
    assert F.pseudo_label(student, teacher).item() == pytest.approx(0.8369882, rel=1e-6)


def test_a_pseudo_label_of_a_tie_is_shared():
    student = torch.zeros(1, 3, requires_grad=True)
    F.pseudo_label(student, torch.tensor([[2.0, -1.0, 2.0]])).backward()
    # softmax − (½, 0, ½)
    torch.testing.assert_close(student.grad, torch.tensor([[-1 / 6, 1 / 3, -1 / 6]]))


def test_confidence_by_hand():
    logits = torch.tensor([[math.log(0.7), math.log(0.2), math.log(0.1)], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(F.top_probability(logits), torch.tensor([0.7, 1 / 3]))
    # (0.7·ln 0.7 + 0.2·ln 0.2 + 0.1·ln 0.1) / −ln 3
    assert F.normalized_entropy(logits).tolist() == pytest.approx([0.7298466, 1.0], abs=1e-6)


def test_entropy_is_torchs_own_over_the_largest_one():
    logits = random(7, 5)
    expected = torch.distributions.Categorical(logits=logits).entropy() / math.log(5)
    torch.testing.assert_close(F.normalized_entropy(logits), expected)
    # By the last axis, however many stand before it.
    torch.testing.assert_close(F.normalized_entropy(logits.expand(3, 7, 5)), expected.expand(3, 7))


def test_a_class_that_is_ruled_out_has_no_part_in_the_entropy():
    logits = torch.tensor([[0.0, 0.0, float("-inf")]])
    assert F.normalized_entropy(logits).item() == pytest.approx(math.log(2) / math.log(3))
    with pytest.raises(LimbeckError, match="one output"):
        F.normalized_entropy(torch.zeros(2, 1))
