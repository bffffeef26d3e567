"""Several teachers in one's place: who answers, and what."""

from __future__ import annotations

import pytest
import torch

import tiny_runs as tiny
from limbeck.activations import Request
from limbeck.data import Collator
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.support.words import short_names
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import (
    EnsembleTeam,
    SampledTeam,
    SamplingProbabilities,
    members_of,
)


@pytest.fixture
def members():
    return [Teacher(tiny.bert(layers, seed=layers)) for layers in (2, 3, 4)]


@pytest.fixture
def batch():
    return Collator(tiny.tokenizer())(list(tiny.rows(4)))


def plain_logits(member: Teacher, batch) -> torch.Tensor:
    """What transformers itself gives."""
    read = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        return member.model(**read).logits


def test_together_the_logits_are_the_weighted_mean(members, batch):
    team = EnsembleTeam(members, ("a", "b", "c"), [0.5, 0.3, 0.2])
    trace = team.at(StepState())(batch, Request.of_logits())
    each = [plain_logits(member, batch) for member in members]
    expected = torch.zeros(4, 2)
    for weight, logits in zip((0.5, 0.3, 0.2), each, strict=True):
        for row in range(4):
            for label in range(2):
                expected[row, label] += weight * logits[row, label]
    torch.testing.assert_close(trace.logits, expected)
    torch.testing.assert_close(trace.each, torch.stack(each))


def test_together_there_are_no_layers(members, batch):
    with pytest.raises(LimbeckError, match="no layers in common"):
        EnsembleTeam(members, ("a", "b", "c"), [1, 1, 1])(batch, Request.hidden([1]))


def test_only_the_drawn_teacher_runs(members, batch):
    ran = []
    for number, member in enumerate(members):
        member.model.register_forward_hook(lambda *_, number=number: ran.append(number))
    team = SampledTeam(members, ("a", "b", "c"), SamplingProbabilities([0.2, 0.5, 0.3]))
    for step in range(12):
        step_state = StepState(seed=4, step=step, teacher=team.pick(4, step))
        team.at(step_state)(batch, Request.of_logits())
        assert ran[-1] == step_state.teacher
    assert len(ran) == 12 and len(set(ran)) == 3


def test_others_can_answer_in_the_members_places(members):
    team = SampledTeam(members, ("a", "b", "c"), SamplingProbabilities([1, 0, 0]))
    others = [Teacher(tiny.bert(2)) for _ in members]
    replaced = team.answered_by(others)
    assert replaced.members == tuple(others) and replaced.sampling is team.sampling
    assert team.members == tuple(members)
    assert members[0].answered_by([others[0]]) is others[0]


def test_a_teacher_is_a_team_of_one(members):
    one = members[0]
    assert one.members == (one,) and one.at(StepState(step=9)) is one
    assert members_of(one) == (one,) and members_of(None) == ()


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["runs/a/student", "runs/b/"], ["a", "b"]),
        (["x/a", "y/a", "y/b"], ["x/a", "y/a", "y/b"]),
        (["google/bert", "bert-large"], ["bert", "bert-large"]),
        (["student"], ["student"]),
        (["runs/a/first_stage"], ["a/first_stage"]),
        (["runs/a/student", "runs/a/first_stage"], ["a", "a/first_stage"]),
        (["first_stage"], ["first_stage"]),
    ],
)
def test_short_names(paths, expected):
    assert short_names(paths) == expected


def test_a_run_that_is_called_student_keeps_its_name(tmp_path):
    run = tmp_path / "runs" / "student"
    (run / "student").mkdir(parents=True)
    assert short_names([str(run), "runs/alone"]) == ["student", "alone"]
    assert short_names([str(run / "student"), "runs/alone"]) == ["student", "alone"]
