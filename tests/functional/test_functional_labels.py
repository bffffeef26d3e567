"""Soft labels against hand-worked numbers, plain loops and torch's own hard cross-entropy."""

import math

import pytest
import torch
import torch.nn.functional as F

from limbeck.functional import soft_cross_entropy, soft_kl

# Logits whose softmax is known: log p. Teacher (¼, ¾) and student (½, ½).
TEACHER = torch.tensor([[math.log(0.25), math.log(0.75)]])
STUDENT = torch.tensor([[math.log(0.5), math.log(0.5)]])


def test_hand_worked():
    # −¼·ln ½ − ¾·ln ½ = ln 2
    assert soft_cross_entropy(STUDENT, TEACHER).item() == pytest.approx(math.log(2), rel=1e-6)
    # ¼·ln(¼/½) + ¾·ln(¾/½) = −0.1732868 + 0.3040988
    assert soft_kl(STUDENT, TEACHER).item() == pytest.approx(0.1308120, abs=1e-6)
    # the other way round it would be ½·ln 2 + ½·ln ⅔ = 0.1438410
    assert soft_kl(TEACHER, STUDENT).item() == pytest.approx(0.1438410, abs=1e-6)


def test_temperature_hand_worked():
    # τ = 2 halves the logits: the teacher's odds 1:9 become 1:3, which is (¼, ¾) again.
    teacher = torch.tensor([[0.0, math.log(9)]])
    student = torch.zeros(1, 2)
    assert soft_kl(student, teacher, temperature=2).item() == pytest.approx(0.1308120, abs=1e-6)
    scaled = soft_kl(student, teacher, temperature=2, scale_by_t2=True)
    assert scaled.item() == pytest.approx(4 * 0.1308120, abs=1e-5)
    scaled = soft_cross_entropy(student, teacher, temperature=2, scale_by_t2=True)
    assert scaled.item() == pytest.approx(4 * math.log(2), rel=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_against_a_loop(temperature):
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 5, 4, generator=generator) * 3
    cross_entropy = kl = 0.0
    for s, t in zip(student.tolist(), teacher.tolist(), strict=True):
        s_sum = sum(math.exp(z / temperature) for z in s)
        t_sum = sum(math.exp(z / temperature) for z in t)
        for z_s, z_t in zip(s, t, strict=True):
            p, q = math.exp(z_t / temperature) / t_sum, math.exp(z_s / temperature) / s_sum
            cross_entropy -= p * math.log(q) / len(student)
            kl += p * math.log(p / q) / len(student)
    actual = soft_cross_entropy(student, teacher, temperature=temperature)
    assert actual.item() == pytest.approx(cross_entropy, rel=1e-5)
    assert soft_kl(student, teacher, temperature=temperature).item() == pytest.approx(kl, rel=1e-4)


def test_a_certain_teacher_is_a_hard_label_even_for_a_student_sure_of_the_opposite():
    labels = torch.tensor([2, 0])
    certain = F.one_hot(labels, 3) * 1000.0
    student = torch.tensor([[300.0, 0.0, -300.0], [0.1, 0.2, 0.3]], requires_grad=True)
    hard = F.cross_entropy(student, labels)
    (hard_gradient,) = torch.autograd.grad(hard, student)
    for loss in (soft_cross_entropy, soft_kl):
        value = loss(student, certain)
        assert value.item() == pytest.approx(hard.item(), rel=1e-6)
        (gradient,) = torch.autograd.grad(value, student)
        torch.testing.assert_close(gradient, hard_gradient)


def test_both_give_the_student_the_gradient_of_softmax_difference():
    """The textbook gradient, (softmax(z_S) − softmax(z_T)) / B."""
    student = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]], requires_grad=True)
    teacher = torch.tensor([[0.3, 0.1, 0.9], [2.0, 2.0, 2.0]])
    expected = (student.detach().softmax(-1) - teacher.softmax(-1)) / 2
    for loss in (soft_cross_entropy, soft_kl):
        (gradient,) = torch.autograd.grad(loss(student, teacher), student)
        torch.testing.assert_close(gradient, expected)


def test_gradient_keeps_its_size_as_temperature_grows_when_scaled():
    student = torch.tensor([[1.0, 2.0, 0.5]], requires_grad=True)
    teacher = torch.tensor([[0.3, 0.1, 0.9]])

    def gradient_norm(temperature):
        value = soft_kl(student, teacher, temperature=temperature, scale_by_t2=True)
        return torch.autograd.grad(value, student)[0].norm().item()

    assert gradient_norm(1000.0) == pytest.approx(gradient_norm(100.0), rel=0.02)


def test_a_shift_of_all_logits_changes_nothing():
    student, teacher = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
    value = soft_kl(student, teacher)
    torch.testing.assert_close(soft_kl(student + 50.0, teacher - 50.0), value)
