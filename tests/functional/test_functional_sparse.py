"""Sparse attention weights: by hand, and as the thresholds that a bisection finds."""

from __future__ import annotations

import math

import pytest
import torch

from limbeck.functional import attention_weights, sparse_attention_weights
from limbeck.functional.layers import TRANSFORMS, entmax, sparsemax
from limbeck.support.errors import LimbeckError

# The definition: weights are a power of what lies above a threshold, and sum to 1.
ABOVE = {
    "sparsemax": lambda score, threshold: max(score - threshold, 0.0),
    "entmax": lambda score, threshold: max(score / 2 - threshold, 0.0) ** 2,
}


def by_bisection(name: str, scores: list[float]) -> list[float]:
    low, high = min(scores) / 2 - 2 - max(map(abs, scores)), max(scores)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(ABOVE[name](score, middle) for score in scores) > 1:
            low = middle
        else:
            high = middle
    return [ABOVE[name](score, low) for score in scores]


@pytest.mark.parametrize(
    ("transform", "scores", "expected"),
    [
        # Above ¼: ¾ and ¼; −1 is below.
        (sparsemax, [1.0, 0.5, -1.0], [0.75, 0.25, 0.0]),
        (sparsemax, [3.0, 1.0], [1.0, 0.0]),
        (sparsemax, [2.0, 2.0, 2.0, 2.0], [0.25] * 4),
        # (½ − t)² + t² = 1 at t = (1 − √7)/4 = −.4114378.
        (entmax, [1.0, 0.0], [0.8307189, 0.1692811]),
        # (1 − 0)² = 1: the threshold just reaches the second.
        (entmax, [2.0, 0.0], [1.0, 0.0]),
        (entmax, [-5.0, -5.0], [0.5, 0.5]),
    ],
)
def test_hand_worked(transform, scores, expected):
    assert transform(torch.tensor(scores)).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_against_a_bisection(name, spread):
    scores = torch.randn(6, 7, generator=torch.Generator().manual_seed(3)) * spread
    found = TRANSFORMS[name](scores)
    for row, weights in zip(scores.tolist(), found.tolist(), strict=True):
        assert weights == pytest.approx(by_bisection(name, row), abs=1e-5)
        assert sum(weights) == pytest.approx(1.0, abs=1e-5)
    if spread == 5.0:
        assert (found == 0).any()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_between_no_points_of_the_simplex_is_one_nearer(name):
    """Sparsemax is the projection onto the simplex; both grow where scores do."""
    generator = torch.Generator().manual_seed(4)
    scores = torch.randn(5, generator=generator)
    weights = TRANSFORMS[name](scores)
    assert weights[scores.argsort()].diff().min() >= 0
    if name == "sparsemax":
        others = torch.rand(500, 5, generator=generator).softmax(-1)
        nearest = (weights - scores).norm()
        assert ((others - scores).norm(dim=-1) > nearest).all()


def dot_products(scores: list[list[float]]) -> tuple[torch.Tensor, torch.Tensor]:
    """A student and a teacher whose dot products are these (student layers × teacher layers)."""
    wanted = torch.tensor(scores)
    return wanted[None], torch.eye(wanted.shape[1])[None]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_layers_that_say_little_get_exactly_nothing(name):
    student, teacher = dot_products([[4.0, 0.0, 3.9], [1.0, 1.0, 1.0]])
    weights = sparse_attention_weights(student, teacher, transform=name)[0]
    assert weights[0, 1] == 0.0 and weights[0, 0] > weights[0, 2] > 0
    assert weights[1].tolist() == pytest.approx([1 / 3] * 3)
    assert (attention_weights(student, teacher) > 0).all()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_only_allowed_layers_share(name):
    student, teacher = dot_products([[5.0, 0.2, 0.1], [0.3, 9.0, 0.1], [1.0, 2.0, 3.0]])
    student.requires_grad_()
    allowed = torch.tensor([[0, 1, 1], [1, 0, 1], [0, 0, 0]]).bool()
    weights = sparse_attention_weights(student, teacher, allowed, transform=name)
    for row, pair in ((0, [0.2, 0.1]), (1, [0.3, 0.1])):
        expected = by_bisection(name, pair)
        assert weights[0, row][allowed[row]].tolist() == pytest.approx(expected, abs=1e-5)
    assert (weights[0][~allowed] == 0).all()
    weights[0, :, 2].sum().backward()
    assert student.grad.isfinite().all()
    assert student.grad[0, 2].abs().sum() == 0


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("size", [2.0**13, 2.0**27, 2.0**40])
def test_large_dot_products_keep_their_digits(name, size):
    """Hidden states of 768 features have dot products beside which 1 is rounded away.

    Powers of two have exact products, so that two of them are equal on every processor.
    """
    student, teacher = dot_products([[size, -size, size]])
    student.requires_grad_()
    for allowed in (None, torch.tensor([[True, False, True]])):
        weights = sparse_attention_weights(student, teacher, allowed, transform=name)
        assert weights.flatten().tolist() == pytest.approx([0.5, 0.0, 0.5], abs=1e-6)
        (gradient,) = torch.autograd.grad(weights[0, 0, 0], student)
        assert gradient.isfinite().all()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_one_layer_takes_all(name):
    student, teacher = dot_products([[0.7]])
    weights = sparse_attention_weights(student.requires_grad_(), teacher, transform=name)
    assert weights.item() == 1.0
    weights.sum().backward()
    assert student.grad.item() == pytest.approx(0.0, abs=1e-6)


def test_gradients_reach_the_layers_with_a_weight_alone():
    scores = torch.tensor([1.0, 0.5, -1.0], requires_grad=True)
    sparsemax(scores)[0].backward()
    # Inside the support: p_0 = z_0 − (z_0 + z_1 − 1)/2.
    assert scores.grad.tolist() == [0.5, -0.5, 0.0]
    scores = torch.tensor([1.0, 0.0, -9.0], requires_grad=True)
    entmax(scores)[0].backward()
    # s_i = √p_i inside: ∂p_0/∂z_0 = s_0 − s_0²/(s_0 + s_1).
    s_0, s_1 = math.sqrt(0.8307189), math.sqrt(0.1692811)
    expected = s_0 * s_1 / (s_0 + s_1)
    assert scores.grad.tolist() == pytest.approx([expected, -expected, 0.0], abs=1e-5)


def test_an_unknown_transform_is_refused():
    student, teacher = dot_products([[1.0, 2.0]])
    with pytest.raises(LimbeckError, match="sparsemax") as caught:
        sparse_attention_weights(student, teacher, transform="spasemax")
    assert "spasemax" in str(caught.value)
