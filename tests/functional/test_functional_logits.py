"""Correlations, decoupled KD and z-scores against plain loops, and numbers that released code printed."""

import math
import statistics

import pytest
import torch

from limbeck.functional import dist, dkd, soft_kl, standardize
from limbeck.support.errors import LimbeckError

STUDENT = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5], [0.0, 1.0, 0.75], [-2.0, 0.5, 1.0]])
TEACHER = torch.tensor([[1.0, -0.5, 3.0], [2.5, -1.0, 0.5], [0.25, 2.0, 1.0], [-1.0, -0.75, 2.0]])
LABELS = torch.tensor([2, 0, 1, 1])


def softmax(row, temperature):
    shares = [math.exp(value / temperature) for value in row]
    return [share / sum(shares) for share in shares]


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_dist_against_a_loop(temperature):
    ours, theirs = (
        [softmax(row, temperature) for row in side.tolist()] for side in (STUDENT, TEACHER)
    )
    inter = 1 - statistics.mean(map(statistics.correlation, ours, theirs))
    columns = zip(*ours, strict=True), zip(*theirs, strict=True)
    intra = 1 - statistics.mean(map(statistics.correlation, *columns))
    expected = temperature**2 * (3 * inter + 0.5 * intra)
    found = dist(STUDENT, TEACHER, beta=3, gamma=0.5, temperature=temperature)
    assert found.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_dkd_against_a_loop(temperature):
    target = others = 0.0
    for ours, theirs, label in zip(
        STUDENT.tolist(), TEACHER.tolist(), LABELS.tolist(), strict=True
    ):
        p, q = softmax(theirs, temperature), softmax(ours, temperature)
        target += p[label] * math.log(p[label] / q[label])
        target += (1 - p[label]) * math.log((1 - p[label]) / (1 - q[label]))
        for other in {0, 1, 2} - {label}:
            share, mine = p[other] / (1 - p[label]), q[other] / (1 - q[label])
            others += share * math.log(share / mine)
    expected = temperature**2 * (0.5 * target + 3 * others) / 4
    found = dkd(STUDENT, TEACHER, LABELS, alpha=0.5, beta=3, temperature=temperature)
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_both_parts_make_up_kd():
    """KL = TCKD + (1 − p_T[label])·NCKD (Zhao et al. 2022, Eq. 5), for one example."""
    for row in range(4):
        sides = STUDENT[row : row + 1], TEACHER[row : row + 1]
        one = LABELS[row : row + 1]
        rest = 1 - sides[1].softmax(-1)[0, one].item()
        parts = dkd(*sides, one, alpha=1, beta=rest, temperature=1)
        assert soft_kl(*sides).item() == pytest.approx(parts.item(), rel=1e-5)


def test_z_scores_against_a_loop():
    for row, found in zip(TEACHER.tolist(), standardize(TEACHER).tolist(), strict=True):
        mean, spread = statistics.mean(row), statistics.pstdev(row)
        assert found == pytest.approx([(value - mean) / spread for value in row], rel=1e-5)
    # They are the same for any scale and shift.
    torch.testing.assert_close(standardize(5 * TEACHER - 3), standardize(TEACHER))


def test_released_code_said_the_same():
    """hunto/DIST_KD (β = γ = 1, τ = 1) and megvii-research/mdistiller (α 1, β 8, τ 4), run on these logits."""
    assert dist(STUDENT, TEACHER, beta=1, gamma=1).item() == pytest.approx(RELEASED_DIST, rel=1e-5)
    assert dkd(STUDENT, TEACHER, LABELS).item() == pytest.approx(RELEASED_DKD, rel=1e-5)
    # sunshangquan/logit-standardization-KD at τ = 2; its σ is over K − 1.
    found = soft_kl(
        standardize(STUDENT),
        standardize(TEACHER),
        temperature=2 * math.sqrt(3 / 2),
        scale_by_t2=True,
    )
    assert found.item() / 1.5 == pytest.approx(RELEASED_STANDARDIZED, rel=1e-5)


RELEASED_DIST = 0.1992484
RELEASED_DKD = 1.4400940
RELEASED_STANDARDIZED = 0.0962002


def test_a_single_example_and_equal_logits_have_finite_gradients():
    for student in (torch.zeros(1, 3), torch.zeros(4, 3)):
        student.requires_grad_()
        teacher = TEACHER[: len(student)]
        total = dist(student, teacher) + dkd(student, teacher, LABELS[: len(student)])
        total = total + soft_kl(standardize(student), standardize(teacher))
        (gradient,) = torch.autograd.grad(total, student)
        assert gradient.isfinite().all()


def test_one_output_is_no_classes():
    with pytest.raises(LimbeckError, match="one output"):
        dist(torch.zeros(4, 1), torch.zeros(4, 1))
