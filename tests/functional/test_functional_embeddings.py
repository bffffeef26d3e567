"""Terms of sentence embeddings against explicit loops, and worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from limbeck.functional import (
    cosine_matrix,
    embedding_cosine,
    embedding_mse,
    similarity_kl,
    similarity_mse,
)


def sides(batch: int = 4, width: int = 3, other: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, width), (batch, other)
    student, teacher = (torch.randn(shape, generator=generator) for shape in shapes)
    return student, teacher


def cosine(first: torch.Tensor, second: torch.Tensor) -> float:
    products = [float(a) * float(b) for a, b in zip(first, second, strict=True)]
    lengths = [math.sqrt(sum(float(a) ** 2 for a in side)) for side in (first, second)]
    return sum(products) / (lengths[0] * lengths[1])


def test_squared_error_by_loops():
    student, teacher = sides()
    total = sum(
        (float(student[i, k]) - float(teacher[i, k])) ** 2 for i in range(4) for k in range(3)
    )
    assert embedding_mse(student, teacher).item() == pytest.approx(total / 4, rel=1e-5)


def test_it_is_the_mse_loss_of_sentence_transformers_summed_over_the_width():
    from sentence_transformers.sentence_transformer import losses

    student, teacher = sides()
    loss = losses.MSELoss(torch.nn.Identity())
    theirs = loss.compute_loss_from_embeddings([student], [teacher])
    torch.testing.assert_close(embedding_mse(student, teacher), 3 * theirs)


def test_of_unit_vectors_it_is_twice_one_minus_the_cosine():
    student, teacher = (torch.nn.functional.normalize(side, dim=-1) for side in sides())
    twice = 2 * embedding_cosine(student, teacher).item()
    assert embedding_mse(student, teacher).item() == pytest.approx(twice, rel=1e-5)


def test_cosine_by_loops_and_weights():
    student, teacher = sides()
    each = [1 - cosine(student[i], teacher[i]) for i in range(4)]
    assert embedding_cosine(student, teacher).item() == pytest.approx(sum(each) / 4, rel=1e-5)
    weights = torch.tensor([0.0, 2.0, 1.0, 0.5])
    weighted = sum(w * value for w, value in zip(weights.tolist(), each, strict=True)) / 4
    found = embedding_cosine(student, teacher, weights=weights)
    assert found.item() == pytest.approx(weighted, rel=1e-5)


def test_similarities_by_loops_whatever_the_widths():
    student, teacher = sides(other=5)
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    total = sum(
        (cosine(student[i], student[j]) - cosine(teacher[i], teacher[j])) ** 2 for i, j in pairs
    )
    assert similarity_mse(student, teacher).item() == pytest.approx(total / len(pairs), rel=1e-5)


def test_three_sentences_by_hand():
    """The student sees three right angles, the teacher a pair that is alike: two of six entries are off by 1."""
    student = torch.eye(3)
    teacher = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    assert similarity_mse(student, teacher).item() == pytest.approx(2 / 6)
    assert cosine_matrix(teacher).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_lists_by_loops():
    student, teacher = sides(other=5)
    temperature, total = 0.3, 0.0
    for i in range(4):
        others = [j for j in range(4) if j != i]
        shares = []
        for side in (student, teacher):
            raised = [math.exp(cosine(side[i], side[j]) / temperature) for j in others]
            shares.append([value / sum(raised) for value in raised])
        total += sum(t * math.log(t / s) for s, t in zip(*shares, strict=True))
    found = similarity_kl(student, teacher, temperature=temperature)
    assert found.item() == pytest.approx(total / 4, rel=1e-4)


@pytest.mark.parametrize("term", [similarity_mse, similarity_kl])
def test_one_sentence_has_no_others(term):
    student, teacher = sides(batch=1)
    student.requires_grad_()
    value = term(student, teacher)
    value.backward()
    assert value.item() == 0
    assert student.grad.abs().sum() == 0


@pytest.mark.parametrize("term", [similarity_mse, similarity_kl])
def test_turning_a_space_changes_no_similarity(term):
    student, teacher = sides()
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(4)))
    assert term(3 * student @ turn, teacher).item() == pytest.approx(
        term(student, teacher).item(), rel=1e-4
    )
    assert term(teacher @ turn, teacher).item() == pytest.approx(0, abs=1e-6)
