"""Relations among tokens and among layers: in loops over pairs and triples, and by hand."""

from __future__ import annotations

import math

import pytest
import torch

from limbeck.functional import (
    attention_kl,
    layer_relation_kl,
    layer_relation_mse,
    relation_kl,
    relations,
    word_relation_kl,
    word_relation_mse,
)

MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 1, 0], [0, 0, 0, 1, 0], [0, 1, 1, 0, 0]]).bool()


def pair(*shape: int, wider: int = 2, seed: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    *front, width = shape
    student = torch.randn(*front, width, generator=generator)
    return student, torch.randn(*front, width + wider, generator=generator)


def cosine(a: list[float], b: list[float]) -> float:
    norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms


def others(vectors: list[list[float]], centre: int) -> list[float]:
    """Softmax over the cosines of one vector to every other."""
    powers = [
        math.exp(cosine(vectors[centre], other))
        for place, other in enumerate(vectors)
        if place != centre
    ]
    return [power / sum(powers) for power in powers]


def pairs_by_loops(student: list[list[float]], teacher: list[list[float]]) -> list[float]:
    """KL(P_T ‖ P_S) of every vector that has another."""
    return [
        sum(
            t * math.log(t / s) for t, s in zip(others(teacher, i), others(student, i), strict=True)
        )
        for i in range(len(student))
        if len(student) > 1
    ]


def angles_by_loops(
    student: dict[int, list[float]], teacher: dict[int, list[float]], reach: int
) -> list[float]:
    """Squared differences of cos(h_j − h_i, h_k − h_i), by place; `reach` places to each side."""
    found = []
    for i in student:
        near = [j for j in student if j != i and abs(j - i) <= reach]
        for j in near:
            for k in near:
                if j != k:
                    angle = [
                        cosine(
                            [x - y for x, y in zip(side[j], side[i], strict=True)],
                            [x - y for x, y in zip(side[k], side[i], strict=True)],
                        )
                        for side in (student, teacher)
                    ]
                    found.append((angle[0] - angle[1]) ** 2)
    return found


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def test_word_pairs_hand_worked():
    # Cosines. Student: (0, 1) 1, (0, 2) 0, (1, 2) 0. Teacher: (0, 1) 0, (0, 2) 1, (1, 2) 0.
    student = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]])
    teacher = torch.tensor([[[1.0, 0.0], [0.0, 5.0], [4.0, 0.0]]])
    mask = torch.ones(1, 3).bool()
    # e/(e+1) = .7310586 and .2689414. Row 0 turns them round: (p − q)·ln(p/q) = .4621172.
    # Row 1: teacher ½ ½ against (p, q): ln ½ − ½ (ln p + ln q) = .1201145.
    # Row 2: teacher (p, q) against ½ ½: ln 2 + p ln p + q ln q = .1109438.
    expected = (0.4621172 + 0.1201145 + 0.1109438) / 3
    assert word_relation_kl(student, teacher, mask).item() == pytest.approx(expected, abs=1e-6)


def test_word_angles_hand_worked():
    # Student: a right angle at token 0, 45° at 1 and at 2. Teacher: an equilateral triangle.
    student = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    teacher = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]]])
    mask = torch.ones(1, 3).bool()
    # Each angle once for (j, k) and once for (k, j): ½², (½√2 − ½)² twice.
    expected = (0.25 + 2 * (math.sqrt(0.5) - 0.5) ** 2) / 3
    assert word_relation_mse(student, teacher, mask).item() == pytest.approx(expected, abs=1e-6)


def test_word_pairs_against_loops():
    student, teacher = pair(4, 5, 3)
    total = 0.0
    for b in range(4):
        real = [n for n in range(5) if MASK[b, n]]
        rows = pairs_by_loops(
            [student[b, n].tolist() for n in real], [teacher[b, n].tolist() for n in real]
        )
        total += mean(rows) / 4
    assert word_relation_kl(student, teacher, MASK).item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(("window", "reach"), [(3, 1), (5, 2), (21, 10)])
def test_word_angles_against_loops(window, reach):
    student, teacher = pair(4, 5, 3)
    total = 0.0
    for b in range(4):
        real = [n for n in range(5) if MASK[b, n]]
        angles = angles_by_loops(
            {n: student[b, n].tolist() for n in real},
            {n: teacher[b, n].tolist() for n in real},
            reach,
        )
        total += mean(angles) / 4
    value = word_relation_mse(student, teacher, MASK, window=window).item()
    assert value == pytest.approx(total, rel=1e-5)


def test_layer_relations_against_loops():
    student, teacher = pair(4, 5, 4, 3)
    pairs, angles = 0.0, 0.0
    for b in range(4):
        real = [n for n in range(5) if MASK[b, n]]
        for n in real:
            sides = student[b, n].tolist(), teacher[b, n].tolist()
            pairs += mean(pairs_by_loops(*sides)) / len(real) / 4
            by_place = [dict(enumerate(side)) for side in sides]
            angles += mean(angles_by_loops(*by_place, reach=9)) / len(real) / 4
    assert layer_relation_kl(student, teacher, MASK).item() == pytest.approx(pairs, rel=1e-5)
    assert layer_relation_mse(student, teacher, MASK).item() == pytest.approx(angles, rel=1e-5)


def angle_of(side: list[list[float]], i: int, j: int, k: int) -> float:
    """cos(h_j − h_i, h_k − h_i); 0 where one of them is the centre itself."""
    to_j, to_k = ([x - y for x, y in zip(side[n], side[i], strict=True)] for n in (j, k))
    return cosine(to_j, to_k) if any(to_j) and any(to_k) else 0.0


def test_word_relations_over_all_against_loops():
    """As the release counts: all places of every real token's window, the ends standing for what is beyond."""
    student, teacher = pair(4, 5, 3)
    total = 0.0
    for b, i in MASK.nonzero().tolist():
        sides = student[b].tolist(), teacher[b].tolist()
        near = [min(max(i + step, 0), 4) for step in (-1, 0, 1)]
        for j in near:
            for k in near:
                ours, theirs = (angle_of(side, i, j, k) for side in sides)
                total += (ours - theirs) ** 2
    value = word_relation_mse(student, teacher, MASK, window=3, mean_over="all").item()
    assert value == pytest.approx(total / (11 * 3 * 3), rel=1e-5)


def test_word_pairs_over_all_against_loops():
    """As the release counts: over 25, 9, 1 and 4 pairs of the examples' real tokens."""
    student, teacher = pair(4, 5, 3)
    total = 0.0
    for b, mask in enumerate(MASK.tolist()):
        real = [n for n, there in enumerate(mask) if there]
        total += sum(pairs_by_loops(student[b, real].tolist(), teacher[b, real].tolist()))
    value = word_relation_kl(student, teacher, MASK, mean_over="all").item()
    assert value == pytest.approx(total / (25 + 9 + 1 + 4), rel=1e-5)


def test_layer_relations_over_all_against_loops():
    """As the release counts: over all pairs and triples of 4 layers, of all 11 real tokens."""
    student, teacher = pair(4, 5, 4, 3)
    pairs, angles = 0.0, 0.0
    for b, n in MASK.nonzero().tolist():
        sides = student[b, n].tolist(), teacher[b, n].tolist()
        pairs += sum(pairs_by_loops(*sides))
        by_place = [dict(enumerate(side)) for side in sides]
        angles += sum(angles_by_loops(*by_place, reach=9))
    both = {"mean_over": "all"}
    found = layer_relation_kl(student, teacher, MASK, **both).item()
    assert found == pytest.approx(pairs / (11 * 4 * 4), rel=1e-5)
    found = layer_relation_mse(student, teacher, MASK, **both).item()
    assert found == pytest.approx(angles / (11 * 4 * 4 * 4), rel=1e-5)


@pytest.mark.parametrize("loss", [word_relation_kl, word_relation_mse])
def test_a_single_token_has_no_relations(loss):
    student, teacher = pair(2, 3, 4)
    alone = torch.tensor([[0, 1, 0], [1, 0, 0]]).bool()
    student.requires_grad_()
    value = loss(student, teacher, alone)
    assert value.item() == 0.0
    value.backward()
    assert (student.grad == 0).all()
    one = loss(student[:, :1], teacher[:, :1], torch.ones(2, 1).bool())
    assert one.item() == 0.0


def test_two_layers_have_no_angle():
    student, teacher = pair(2, 3, 2, 4)
    assert layer_relation_mse(student, teacher, torch.ones(2, 3).bool()).item() == 0.0


@pytest.mark.parametrize("loss", [word_relation_kl, word_relation_mse])
def test_equal_tokens_do_not_break_the_gradient(loss):
    """Embeddings without positions (T5) give a repeated word the same vector twice."""
    student, teacher = pair(1, 4, 3)
    student[0, 2] = student[0, 0]
    student.requires_grad_()
    loss(student, teacher, torch.ones(1, 4).bool()).backward()
    assert student.grad.isfinite().all()
    assert student.grad.abs().max() < 100


def test_relations_sum_to_one_over_real_tokens():
    features = torch.randn(4, 2, 5, 3, generator=torch.Generator().manual_seed(1))
    features = features.masked_fill(~MASK[:, None, :, None], math.nan)
    maps = relations(features, MASK)
    assert maps.shape == (4, 2, 5, 5)
    for b in range(4):
        for q in range(5):
            if MASK[b, q]:
                assert maps[b, :, q].sum(-1).tolist() == pytest.approx([1.0, 1.0])
                assert (maps[b, :, q][:, ~MASK[b]] == 0).all()
                scores = [
                    math.exp(float(features[b, 1, q] @ features[b, 1, k]) / math.sqrt(3))
                    for k in range(5)
                    if MASK[b, k]
                ]
                expected = [score / sum(scores) for score in scores]
                assert maps[b, 1, q][MASK[b]].tolist() == pytest.approx(expected, rel=1e-5)


def test_comparing_relation_maps_is_relation_kl():
    student, teacher = pair(4, 2, 5, 3)
    student.requires_grad_()
    of_maps = attention_kl(relations(student, MASK), relations(teacher, MASK), MASK)
    direct = relation_kl(student, teacher, MASK)
    assert of_maps.item() == pytest.approx(direct.item(), rel=1e-5)
    one, other = (torch.autograd.grad(loss, student)[0] for loss in (of_maps, direct))
    torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)
