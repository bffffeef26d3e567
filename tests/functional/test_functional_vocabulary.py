"""Soft labels of some tokens of a vocabulary: loops, bounds, and expectations over all that can be sampled."""

import itertools
import math

import pytest
import torch

from limbeck import functional as F
from limbeck.support.errors import LimbeckError


def random(*shape, seed=0, scale=2.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def softmax(logits, temperature):
    terms = [math.exp(z / temperature) for z in logits]
    return [term / sum(terms) for term in terms]


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("k", [1, 3])
def test_top_k_with_a_tail_against_a_loop(k, temperature):
    student, teacher = random(4, 6), random(4, 6, seed=1)
    expected = 0.0
    for s, t in zip(student.tolist(), teacher.tolist(), strict=True):
        p, q = softmax(t, temperature), softmax(s, temperature)
        top = sorted(range(6), key=lambda token: -p[token])[:k]
        rest = [token for token in range(6) if token not in top]
        outcomes = [(p[token], q[token]) for token in top]
        outcomes.append((sum(p[token] for token in rest), sum(q[token] for token in rest)))
        expected += sum(a * math.log(a / b) for a, b in outcomes) / 4
    ids, logs, tail = F.top_tokens(teacher, k, temperature=temperature)
    torch.testing.assert_close(logs.exp().sum(-1) + tail.exp(), torch.ones(4))
    value = F.topk_kl(student, ids, logs, tail, temperature=temperature)
    assert value.item() == pytest.approx(expected, rel=1e-5)


def test_the_whole_vocabulary_is_soft_kl_and_less_of_it_is_never_more():
    student, teacher = random(3, 8).requires_grad_(), random(3, 8, seed=1)
    whole = F.soft_kl(student, teacher, temperature=2.0)
    values = []
    for k in range(1, 9):
        kept = F.top_tokens(teacher, k, temperature=2.0)
        values.append(F.topk_kl(student, *kept, temperature=2.0))
    assert values == sorted(values)
    torch.testing.assert_close(values[-1], whole)
    expected, actual = (torch.autograd.grad(value, student)[0] for value in (whole, values[-1]))
    torch.testing.assert_close(actual, expected)


def test_top_k_of_a_student_that_agrees_is_0_and_so_is_its_gradient():
    teacher = random(3, 8)
    student = teacher.clone().requires_grad_()
    value = F.topk_kl(student, *F.top_tokens(teacher, 2))
    (gradient,) = torch.autograd.grad(value, student)
    assert value.item() == pytest.approx(0.0, abs=1e-6)
    assert gradient.abs().max().item() == pytest.approx(0.0, abs=1e-6)


def test_a_certain_teacher_leaves_nothing_to_the_tail():
    teacher = torch.tensor([[200.0, 0.0, 0.0]])
    student = random(1, 3).requires_grad_()
    value = F.topk_kl(student, *F.top_tokens(teacher, 1))
    torch.testing.assert_close(value, -student.log_softmax(-1)[0, 0])
    (gradient,) = torch.autograd.grad(value, student)
    assert gradient.isfinite().all()


def test_the_tails_of_both_keep_their_digits():
    # 1 − Σ in float32 would be 0 on both sides.
    teacher = torch.tensor([[30.0, 1.0, 0.0]])
    _, _, tail = F.top_tokens(teacher, 1)
    expected = math.log((math.exp(1) + 1) / (math.exp(30) + math.exp(1) + 1))
    assert tail.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("k", [0, 4])
def test_k_is_some_of_the_vocabulary(k):
    with pytest.raises(LimbeckError, match=f"k is {k}, and the vocabulary has 3 tokens"):
        F.top_tokens(torch.zeros(1, 3), k)


# ---- sampled tokens ----


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_value_and_gradient_of_sampled_tokens_are_unbiased(temperature):
    """The expectation itself: all ordered samples of two tokens out of three, by their probability."""
    student, teacher = random(1, 3).requires_grad_(), random(1, 3, seed=1)
    shares = softmax(teacher[0].tolist(), temperature)
    expected = F.soft_cross_entropy(student, teacher, temperature=temperature)
    (slope,) = torch.autograd.grad(expected, student)
    value, gradient = 0.0, torch.zeros(1, 3)
    for drawn in itertools.product(range(3), repeat=2):
        chance = shares[drawn[0]] * shares[drawn[1]]
        ids = torch.tensor([sorted(drawn)])
        counts = torch.tensor([[2, 0] if drawn[0] == drawn[1] else [1, 1]])
        one = F.sampled_cross_entropy(student, ids, counts, temperature=temperature)
        value += chance * one.item()
        gradient += chance * torch.autograd.grad(one, student)[0]
    assert value == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(gradient, slope)


def test_the_likeliest_tokens_alone_would_be_biased():
    """Why counts are kept: renormalised, the first k teach that the rest cannot be."""
    student, teacher = random(1, 3).requires_grad_(), random(1, 3, seed=1)
    (slope,) = torch.autograd.grad(F.soft_cross_entropy(student, teacher), student)
    kept, ids = teacher.topk(2)
    cut = torch.full_like(teacher, float("-inf")).scatter(-1, ids, kept)
    (other,) = torch.autograd.grad(F.soft_cross_entropy(student, cut), student)
    assert (slope - other).abs().max() > 0.01


def test_samples_are_counted_and_their_shares_are_the_teachers():
    generator = torch.Generator().manual_seed(3)
    teacher = random(2, 5, seed=1)
    ids, counts = F.sample_tokens(teacher, 4000, temperature=2.0, generator=generator)
    assert ids.shape == counts.shape == (2, 4000)
    assert counts.sum(-1).tolist() == [4000, 4000]
    assert (ids.diff(dim=-1) >= 0).all()
    found = torch.zeros(2, 5).scatter_add_(-1, ids, counts.float()) / 4000
    # Five standard errors of a share are below 0.04.
    assert (found - (teacher / 2.0).softmax(-1)).abs().max() < 0.04
    for row in range(2):
        seen = ids[row][counts[row] > 0].tolist()
        assert seen == sorted(set(seen))


def test_the_same_generator_samples_the_same():
    teacher = random(3, 6)
    first, again = (
        F.sample_tokens(teacher, 8, generator=torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_a_position_without_counts_adds_nothing_and_weights_weigh():
    student = random(2, 4)
    ids, counts = torch.tensor([[1, 1], [0, 3]]), torch.tensor([[0, 0], [1, 1]])
    logs = student.log_softmax(-1)
    expected = -(logs[1, 0] + logs[1, 3]) / 2 / 2
    torch.testing.assert_close(F.sampled_cross_entropy(student, ids, counts), expected)
    weighed = F.sampled_cross_entropy(student, ids, counts, weights=torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(weighed, 3 * expected)
