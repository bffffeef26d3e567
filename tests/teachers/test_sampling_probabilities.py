"""Who is sampled: π by hand, draws that follow it, and a bandit that learns it."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from safetensors.torch import load_model, save_model
from scipy.stats import chisquare

from limbeck.lab.bandit import Bandit
from limbeck.support.errors import LimbeckError
from limbeck.teachers.team import SamplingProbabilities, draw, shares


@pytest.mark.parametrize(
    ("by", "scores", "expected"),
    [
        ("uniform", None, [1 / 3, 1 / 3, 1 / 3]),
        ("teacher-rank", [88.0, 92.5, 90.0], [1 / 6, 3 / 6, 2 / 6]),
        ("student-rank", [70.0, 60.0, 70.0], [2.5 / 6, 1 / 6, 2.5 / 6]),
        ([3, 0, 1], None, [0.75, 0.0, 0.25]),
    ],
)
def test_shares(by, scores, expected):
    assert shares(by, scores, 3) == pytest.approx(expected)


def test_a_teacher_without_a_score_cannot_be_ranked():
    for unknown in (math.nan, None):
        with pytest.raises(LimbeckError, match="cannot be ranked"):
            shares("teacher-rank", [1.0, unknown], 2)


def test_draws_follow_the_distribution():
    expected = [0.1, 0.2, 0.3, 0.4]
    probabilities = SamplingProbabilities(expected)
    counts = Counter(probabilities.pick(seed=7, step=step) for step in range(4000))
    found = [counts[teacher] for teacher in range(4)]
    assert chisquare(found, np.array(expected) * 4000).pvalue > 0.01
    # And the test could fail: these draws do not follow another distribution.
    assert chisquare(found, [1000] * 4).pvalue < 1e-6


def test_a_draw_depends_on_seed_and_step_alone():
    probabilities = SamplingProbabilities([0.5, 0.5])
    forwards = [probabilities.pick(1, step) for step in range(50)]
    np.random.rand(3), torch.rand(3)
    backwards = [probabilities.pick(1, step) for step in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert forwards != [probabilities.pick(2, step) for step in range(50)]


def test_a_teacher_without_a_share_is_never_drawn():
    assert {draw(np.array([0.0, 1.0]), 3, step) for step in range(30)} == {1}


# ---- the bandit ----


def test_a_block_has_one_teacher():
    bandit = Bandit(3, block=5)
    picked = [bandit.pick(11, step) for step in range(40)]
    assert all(len(set(picked[start : start + 5])) == 1 for start in range(0, 40, 5))
    assert len(set(picked)) > 1
    assert [step for step in range(1, 12) if bandit.ends_block(step)] == [5, 10]


def test_two_updates_by_hand():
    """Two teachers, ε = 0.2, η = 0.5; drops of 0.4, 0.2, then 0.6."""
    bandit = Bandit(2, block=1, explore=0.2, rate=0.5)
    bandit.begin(1.0)
    bandit.begin(9.0)  # a resumed run measures nothing again
    bandit.learn(0, 0.6)
    assert bandit.weights.tolist() == [0.0, 0.0]  # the first reward has nothing to be held against
    bandit.learn(1, 0.4)
    # One reward before, 0.4: the drop of 0.2 is below it, so −1, over π = ½.
    assert bandit.weights.tolist() == pytest.approx([0.0, -1.0])
    learned = 1 / (1 + math.exp(-1))
    probabilities = [0.8 * learned + 0.1, 0.8 * (1 - learned) + 0.1]
    assert bandit.probabilities.tolist() == pytest.approx(probabilities)
    # Before: 0.2 and 0.4, quantiles 0.24 and 0.36; the drop of 0.6 is above both, so +1.
    bandit.learn(0, -0.2)
    assert bandit.weights.tolist() == pytest.approx([0.5 / probabilities[0], -1.0])


def test_chances_are_read_once_a_change():
    """On an accelerator each reading waits for it, and every step picks a teacher."""
    bandit, other = Bandit(2, block=1), Bandit(2, block=1)
    other.begin(1.0)
    for loss in (0.9, 0.7, 0.6):
        other.learn(0, loss)
    assert other.probabilities[0] != 0.5
    before = [bandit.pick(3, step) for step in range(20)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "cpu", None)
        assert [bandit.pick(3, step) for step in range(20)] == before
    bandit.load_state_dict(other.state_dict())
    assert bandit.probabilities.tolist() == other.probabilities.tolist()


def test_the_teacher_that_helps_is_drawn_more():
    bandit, loss, drawn = Bandit(3, block=1), 10.0, Counter()
    bandit.begin(loss)
    generator = np.random.default_rng(0)
    for step in range(300):
        teacher = bandit.pick(5, step)
        loss -= (0.02 if teacher == 2 else 0.01) + generator.normal(0, 0.005)
        bandit.learn(teacher, loss)
        drawn[teacher] += 1
    assert bandit.probabilities.argmax() == 2
    assert drawn[2] > 150
    # Every teacher keeps its chance.
    assert bandit.probabilities.min() >= 0.2 / 3 - 1e-9


def test_a_bandit_goes_on_from_its_saved_state(tmp_path):
    one = Bandit(2, block=1)
    one.begin(1.0)
    for step, loss in enumerate((0.9, 0.85, 0.6, 0.5)):
        one.learn(step % 2, loss)
    save_model(one, str(tmp_path / "state.safetensors"))
    other = Bandit(2, block=1)
    load_model(other, str(tmp_path / "state.safetensors"))
    for bandit in (one, other):
        bandit.learn(0, 0.45)
    assert one.probabilities.tolist() == other.probabilities.tolist()
