"""Layer weights, flows, ranks, mixing and contrast: hand-worked, looped, or solved another way."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from limbeck.functional import (
    attention_weights,
    info_nce,
    mix,
    rank_distribution,
    transport_flow,
)
from limbeck.support.errors import LimbeckError


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_attention_weights_hand_worked():
    # Dot products ln 1, ln 3 (not divided by √2): weights ¼, ¾; and ln 2, ln 2 apart from that.
    student = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    teacher = torch.tensor([[[0.0, math.log(2)], [math.log(3), math.log(2)]]])
    expected = torch.tensor([[[0.25, 0.75], [0.5, 0.5]]])
    torch.testing.assert_close(attention_weights(student, teacher), expected)


def test_attention_weights_in_buckets_equal_a_softmax_of_each_bucket_alone():
    student = torch.randn(3, 2, 4, generator=generator())
    teacher = torch.randn(3, 5, 4, generator=generator(1))
    allowed = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1]]).bool()
    weights = attention_weights(student, teacher, allowed)
    torch.testing.assert_close(
        weights[:, :1, :3], attention_weights(student[:, :1], teacher[:, :3])
    )
    torch.testing.assert_close(
        weights[:, 1:, 3:], attention_weights(student[:, 1:], teacher[:, 3:])
    )
    assert (weights[:, ~allowed] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2))


def test_attention_weights_against_a_loop():
    student = torch.randn(2, 2, 3, generator=generator())
    teacher = torch.randn(2, 4, 3, generator=generator(1))
    weights = attention_weights(student, teacher)
    for b in range(2):
        for j in range(2):
            dots = [
                sum(student[b, j, i].item() * teacher[b, k, i].item() for i in range(3))
                for k in range(4)
            ]
            total = sum(math.exp(dot) for dot in dots)
            expected = [math.exp(dot) / total for dot in dots]
            assert weights[b, j].tolist() == pytest.approx(expected, rel=1e-5)


def test_a_student_layer_allowed_none_gets_zeros_and_gradients_stay_finite():
    student = torch.randn(1, 2, 3, generator=generator(), requires_grad=True)
    teacher = torch.randn(1, 2, 3, generator=generator(1), requires_grad=True)
    allowed = torch.tensor([[False, False], [True, True]])
    weights = attention_weights(student, teacher, allowed)
    assert weights[0, 0].tolist() == [0.0, 0.0]
    (weights * torch.tensor([1.0, 2.0])).sum().backward()
    assert student.grad[0, 0].abs().sum() == 0
    assert student.grad[0, 1].abs().sum() > 0
    assert teacher.grad.isfinite().all()


def test_attention_weights_of_layers_with_large_dot_products_stay_finite():
    large = torch.full((1, 2, 768), 2.0**10)  # whose dot products are exact, so equal everywhere
    weights = attention_weights(large, large, torch.tensor([[True, False], [True, True]]))
    assert weights.tolist() == [[[1.0, 0.0], [0.5, 0.5]]]


def test_transport_flow_hand_worked():
    # Two layers to two: the cheap diagonal takes all it can, ½; the rest must cross.
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    flow = transport_flow(costs, torch.tensor([0.75, 0.25]), torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(flow, torch.tensor([[0.5, 0.25], [0.0, 0.25]]))


@pytest.mark.parametrize("seed", range(5))
def test_transport_flow_against_a_linear_program(seed):
    costs = torch.rand(3, 5, generator=generator(seed))
    supply = torch.rand(3, generator=generator(seed + 10)).softmax(0)
    demand = torch.rand(5, generator=generator(seed + 20)).softmax(0)
    rows = np.kron(np.eye(3), np.ones(5))
    columns = np.kron(np.ones(3), np.eye(5))
    solved = linprog(
        costs.flatten().double().numpy(),
        A_eq=np.vstack([rows, columns])[:-1],  # the last equation follows from the others
        b_eq=torch.cat([supply, demand]).double().numpy()[:-1],
    )
    flow = transport_flow(costs, supply, demand)
    assert (flow >= 0).all()
    torch.testing.assert_close(flow.sum(1), supply)
    torch.testing.assert_close(flow.sum(0), demand)
    assert (flow * costs).sum().item() == pytest.approx(solved.fun, abs=1e-6)


def test_transport_flow_is_a_constant_of_the_costs_type():
    costs = torch.rand(2, 3, generator=generator(), dtype=torch.float32, requires_grad=True)
    weights = torch.full((2,), 0.5, requires_grad=True)
    thirds = torch.full((3,), 1 / 3, dtype=torch.float64)
    flow = transport_flow(costs, weights, thirds)
    assert flow.dtype == torch.float32
    assert not flow.requires_grad
    assert transport_flow(costs.bfloat16(), weights, thirds).dtype == torch.float32


def test_transport_flow_keeps_masses_that_do_not_sum_to_one():
    flow = transport_flow(
        torch.rand(2, 2, generator=generator()), torch.tensor([2.0, 1.0]), torch.tensor([0.5, 2.5])
    )
    torch.testing.assert_close(flow.sum(1), torch.tensor([2.0, 1.0]))
    torch.testing.assert_close(flow.sum(0), torch.tensor([0.5, 2.5]))


@pytest.mark.parametrize(
    ("cost", "student", "teacher", "message"),
    [
        (float("nan"), [0.5, 0.5], [0.5, 0.5], "not finite"),
        (0.0, [0.5, float("inf")], [0.5, 0.5], "not finite"),
        (0.0, [0.5, 0.5], [0.5, 0.6], "sum to 1, teacher weights to 1.1"),
        (0.0, [1.5, -0.5], [0.5, 0.5], "0 or more"),
        (0.0, [0.0, 0.0], [0.0, 0.0], "not all 0"),
    ],
)
def test_transport_flow_refuses_what_has_no_plan(cost, student, teacher, message):
    costs = torch.tensor([[cost, 1.0], [1.0, 0.0]])
    with pytest.raises(LimbeckError, match=message):
        transport_flow(costs, torch.tensor(student), torch.tensor(teacher))


def test_info_nce_hand_worked():
    # Cosines: positive 1 (length does not matter), negatives 0 and −1; τ = ½ doubles them.
    student = torch.tensor([[2.0, 0.0]])
    positive = torch.tensor([[7.0, 0.0]])
    negatives = torch.tensor([[[0.0, 3.0], [-1.0, 0.0]]])
    # −ln(e² / (e² + e⁰ + e⁻²)) = ln(1 + 0.1353353 + 0.0183156)
    value = info_nce(student, positive, negatives, temperature=0.5)
    assert value.item() == pytest.approx(0.1429316, abs=1e-6)


def test_info_nce_limits():
    student, positive = torch.randn(2, 3, 4, generator=generator()).unbind()
    same = positive.unsqueeze(1).expand(-1, 6, -1)
    chance = info_nce(student, positive, same, temperature=0.07)
    assert chance.item() == pytest.approx(math.log(7), rel=1e-5)
    assert info_nce(student, positive, same[:, :0], temperature=0.07).item() == 0.0


def test_info_nce_against_a_loop_with_finite_differences():
    student, positive = torch.randn(2, 3, 4, generator=generator(), dtype=torch.float64).unbind()
    negatives = torch.randn(3, 5, 4, generator=generator(1), dtype=torch.float64)

    def cosine(x, y):
        dot = sum(p * q for p, q in zip(x, y, strict=True))
        return dot / (math.hypot(*x) * math.hypot(*y))

    total = 0.0
    for s, p, others in zip(student.tolist(), positive.tolist(), negatives.tolist(), strict=True):
        odds = [math.exp(cosine(s, x) / 0.3) for x in [p, *others]]
        total -= math.log(odds[0] / sum(odds)) / 3
    value = info_nce(student, positive, negatives, temperature=0.3)
    assert value.item() == pytest.approx(total, rel=1e-9)
    torch.autograd.gradcheck(
        lambda *sides: info_nce(*sides, temperature=0.3),
        [x.requires_grad_() for x in (student, positive, negatives)],
    )


@pytest.mark.parametrize("left_out", [0.0, math.inf, math.nan])
def test_info_nce_takes_as_many_negatives_as_each_example_has(left_out):
    """The mean of one call an example, whatever stands where there is none."""
    student, positive = torch.randn(2, 3, 4, generator=generator(), dtype=torch.float64).unbind()
    negatives = torch.randn(3, 5, 4, generator=generator(1), dtype=torch.float64)
    mask = torch.tensor([[0, 1, 0, 1, 1], [0] * 5, [1] * 5])
    student.requires_grad_()
    alone = [
        info_nce(s[None], p[None], n[m.bool()][None], temperature=0.3)
        for s, p, n, m in zip(student, positive, negatives, mask, strict=True)
    ]
    expected = sum(alone) / 3
    (gradient,) = torch.autograd.grad(expected, student)
    negatives[mask == 0] = left_out
    value = info_nce(student, positive, negatives, mask, temperature=0.3)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, student)[0], gradient)
    assert alone[1].item() == 0.0 and alone[0].item() > 0


def test_info_nce_in_half_precision_and_under_autocast_is_float32():
    student, positive = torch.randn(2, 3, 4, generator=generator()).bfloat16().unbind()
    negatives = torch.randn(3, 5, 4, generator=generator(1)).bfloat16()
    wide = info_nce(student.float(), positive.float(), negatives.float(), temperature=0.07)
    with torch.autocast("cpu", torch.bfloat16):
        value = info_nce(student, positive, negatives, temperature=0.07)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, wide)


def test_mix_hand_worked():
    a, b = torch.tensor([[4.0], [4.0]]), torch.tensor([[8.0], [0.0]])
    assert mix(a, b, 0.25).tolist() == [[7.0], [1.0]]
    assert torch.equal(mix(a, b, 1), a)
    assert torch.equal(mix(a, b, 0), b)
    # one λ an example
    assert mix(a, b, torch.tensor([[0.25], [0.5]])).tolist() == [[7.0], [2.0]]
    assert mix(a.bfloat16(), b.bfloat16(), 0.25).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([80.0, 90.0, 85.0], [1 / 6, 3 / 6, 2 / 6]),
        ([80.0, 90.0, 90.0], [1 / 6, 2.5 / 6, 2.5 / 6]),
        ([1, 1, 1, 1], [0.25] * 4),
        ([-3.0, -7.5], [2 / 3, 1 / 3]),
        ([42.0], [1.0]),
    ],
)
def test_rank_distribution_hand_worked(scores, expected):
    for given in (scores, torch.tensor(scores), np.array(scores)):
        assert rank_distribution(given).tolist() == pytest.approx(expected, rel=1e-6)
    assert rank_distribution(scores).dtype == torch.float32


@pytest.mark.parametrize("scores", [[], [1.0, float("nan")], [float("inf")]])
def test_rank_distribution_refuses_what_has_no_rank(scores):
    with pytest.raises(LimbeckError, match="cannot be ranked"):
        rank_distribution(torch.tensor(scores))
