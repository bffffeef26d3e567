"""Distances of hidden states against hand-worked numbers and plain loops."""

import math

import pytest
import torch

from limbeck.functional import cosine_distance, hidden_mse, mse, normalized_mse


def random_sides(*shape):
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(3)).unbind()


def test_mse_hand_worked():
    # differences 1, 2, 0, 3: (1 + 4 + 0 + 9) / 4
    student, teacher = (
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        torch.tensor([[0.0, 0.0], [3.0, 1.0]]),
    )
    assert mse(student, teacher).item() == 3.5
    assert mse(student[:, 1], teacher[:, 1]).item() == 6.5  # a regression's outputs: (4 + 9) / 2


def test_normalized_mse_hand_worked():
    # (3, 4) → (.6, .8); (0, 2) → (0, 1): .36 + .04 = .4. Opposite vectors: 4. Mean 2.2.
    student = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    teacher = torch.tensor([[0.0, 2.0], [-5.0, 0.0]])
    assert normalized_mse(student, teacher).item() == pytest.approx(2.2, rel=1e-6)
    assert normalized_mse(student[0], teacher[0]).item() == pytest.approx(0.4, rel=1e-6)


def test_normalized_mse_ignores_length_and_is_twice_the_cosine_distance():
    student, teacher = random_sides(3, 4, 7)
    value = normalized_mse(student, teacher)
    torch.testing.assert_close(normalized_mse(student * 100, teacher / 30), value)
    torch.testing.assert_close(2 * cosine_distance(student, teacher), value)


def test_normalized_mse_keeps_its_digits_between_near_vectors():
    # A turn by angle φ moves a unit vector by 2·sin(φ/2): squared ≈ φ² = 1e-8.
    angle = 1e-4
    student = torch.tensor([[math.cos(angle), math.sin(angle)]])
    assert normalized_mse(student, torch.tensor([[1.0, 0.0]])).item() == pytest.approx(
        1e-8, rel=1e-3
    )


@pytest.mark.parametrize("loss", [normalized_mse, cosine_distance])
def test_a_zero_vector_gives_a_finite_value_and_gradient(loss):
    student = torch.zeros(2, 3, requires_grad=True)
    value = loss(student, torch.zeros(2, 3))
    value.backward()
    assert value.isfinite()
    assert student.grad.isfinite().all()


def test_cosine_distance_hand_worked():
    # right angle 1; same direction 0; opposite 2; (3, 4)·(4, 3) / 25 = .96 → .04
    student = torch.tensor([[[1.0, 0.0], [2.0, 0.0]], [[0.0, 1.0], [3.0, 4.0]]])
    teacher = torch.tensor([[[0.0, 1.0], [5.0, 0.0]], [[0.0, -1.0], [4.0, 3.0]]])
    assert cosine_distance(student, teacher).item() == pytest.approx(3.04 / 4, abs=1e-6)
    # Example 0 keeps only its first token: (1 + (2 + .04) / 2) / 2, not 3.04 / 3.
    mask = torch.tensor([[True, False], [True, True]])
    assert cosine_distance(student, teacher, mask).item() == pytest.approx(1.01, abs=1e-6)


def test_hidden_mse_hand_worked():
    # Example 0 has one valid token: (1 + 9) / 2 = 5. Example 1 has two: (4 + 0) / 2 and 0, mean 1.
    # The batch: (5 + 1) / 2.
    student = torch.tensor([[[1.0, 3.0], [99.0, 99.0]], [[2.0, 0.0], [1.0, 1.0]]])
    teacher = torch.tensor([[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]])
    mask = torch.tensor([[True, False], [True, True]])
    assert hidden_mse(student, teacher, mask).item() == 3.0


def test_hidden_mse_and_cosine_against_loops():
    student, teacher = random_sides(3, 4, 5)
    mask = torch.tensor([[1, 1, 0, 1], [0, 1, 0, 0], [1, 1, 1, 1]]).bool()
    squared, angular = [], []
    for b in range(3):
        token_squared, token_angular = [], []
        for n in range(4):
            if mask[b, n]:
                s, t = student[b, n].tolist(), teacher[b, n].tolist()
                token_squared.append(sum((x - y) ** 2 for x, y in zip(s, t, strict=True)) / 5)
                dot = sum(x * y for x, y in zip(s, t, strict=True))
                token_angular.append(1 - dot / (math.hypot(*s) * math.hypot(*t)))
        squared.append(sum(token_squared) / len(token_squared))
        angular.append(sum(token_angular) / len(token_angular))
    assert hidden_mse(student, teacher, mask).item() == pytest.approx(sum(squared) / 3, rel=1e-5)
    assert cosine_distance(student, teacher, mask).item() == pytest.approx(
        sum(angular) / 3, rel=1e-5
    )


def test_hidden_mse_leaves_its_inputs_alone():
    student, teacher = random_sides(2, 3, 4)
    before = student.clone(), teacher.clone()
    hidden_mse(student, teacher, torch.tensor([[1, 0, 0], [1, 1, 0]]).bool())
    assert torch.equal(student, before[0])
    assert torch.equal(teacher, before[1])
