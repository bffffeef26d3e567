"""MT-BERT's loss by loops and by hand."""

from __future__ import annotations

import math

import pytest
import torch

from limbeck.functional import error_weighted_cross_entropy, error_weighted_mse
from limbeck.support.errors import LimbeckError


def test_two_teachers_by_hand():
    """One example, two classes, label 1; the student is undecided, so every CE with it is ln 2."""
    student = torch.zeros(1, 2)
    # Probabilities of the label: ¾ and ¼.
    teachers = torch.tensor([[[0.0, math.log(3)]], [[math.log(3), 0.0]]])
    found = error_weighted_cross_entropy(student, teachers, torch.tensor([1]))
    right, wrong = 1 + math.log(4 / 3), 1 + math.log(4)
    assert found.item() == pytest.approx(math.log(2) / right + math.log(2) / wrong)


def test_loops_over_teachers_examples_and_classes():
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(3, 4, generator=generator)
    teachers = torch.randn(2, 3, 4, generator=generator)
    labels, temperature = [2, 0, 3], 2.0
    total = 0.0
    for row, label in enumerate(labels):
        own = torch.softmax(student[row] / temperature, 0)
        for teacher in teachers:
            soft = torch.softmax(teacher[row] / temperature, 0)
            distance = -sum(float(soft[c]) * math.log(float(own[c])) for c in range(4))
            error = -math.log(float(torch.softmax(teacher[row], 0)[label]))
            total += distance / (1 + error)
    found = error_weighted_cross_entropy(
        student, teachers, torch.tensor(labels), temperature=temperature
    )
    assert found.item() == pytest.approx(total / 3, rel=1e-5)


def test_regression_by_hand():
    """Outputs 1 and 3 for a label of 2: errors of 1 each; the student says 0."""
    found = error_weighted_mse(
        torch.tensor([0.0]), torch.tensor([[1.0], [3.0]]), torch.tensor([2.0])
    )
    assert found.item() == pytest.approx(1 / 2 + 9 / 2)


def test_half_precision_comes_out_in_float32():
    student = torch.zeros(2, 2, dtype=torch.bfloat16)
    teachers = torch.zeros(3, 2, 2, dtype=torch.bfloat16)
    found = error_weighted_cross_entropy(student, teachers, torch.tensor([0, 1]))
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(3 * math.log(2) / (1 + math.log(2)))


def test_other_classes_are_refused():
    with pytest.raises(LimbeckError, match="soft label of several teachers"):
        error_weighted_cross_entropy(
            torch.zeros(2, 3), torch.zeros(1, 2, 2), torch.zeros(2, dtype=torch.long)
        )
