"""A method of several parts, killed in any of them and begun again, ends as an unbroken training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import own_rows as own
import pytest
import torch
from transformers import TrainerCallback

import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationConfig, DistillationTrainer

# Twelve rows in batches of four: three steps an epoch; saved after every step.
PLANS: dict[str, dict[str, Any]] = {
    "tinybert": {"first_stage": {"max_steps": 4, "lr": 1e-3}, "teacher": lambda: own.bert(4, 1)},
    "takd": {"teacher": lambda: [own.bert(2, 1), own.bert(4, 2), own.bert(3, 3)]},
    "skd-student-rank": {
        "teacher": lambda: [own.bert(2, 1), own.bert(4, 2)],
        "method": Recipe.load("skd-student-rank", **{"team.student_epochs": None}),
    },
    "skd-best-of": {
        "teacher": lambda: [own.bert(2, 1), own.bert(4, 2)],
        "method": Recipe.load("skd-best-of", **{"team.student_epochs": None}),
    },
}


class Kill(TrainerCallback):
    """Ends the process at an event of the part whose folder has this name."""

    def __init__(self, folder: str, event: str, at: int) -> None:
        self.folder, self.at = folder, at
        setattr(self, f"on_{event}", self.kill)

    def kill(self, args, state, control, **kwargs):
        if str(args.output_dir).endswith(self.folder) and state.global_step == self.at:
            raise tiny.KilledError


def build(folder: Path, plan: str, *callbacks: TrainerCallback, **changes: Any) -> Any:
    torch.manual_seed(int.from_bytes(os.urandom(4)))  # a new process starts anywhere
    given = dict(PLANS[plan])
    teacher, method = given.pop("teacher")(), given.pop("method", plan)
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1} | changes
    return tiny.trainer_of(
        own.bert(2),
        own.arguments(folder / "out", **settings),
        teacher=teacher,
        method=method,
        train_dataset=own.sentences(),
        eval_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
        callbacks=list(callbacks),
        **given,
    )


def outcome(trainer: Any) -> dict[str, Any]:
    def timeless(history):
        return [
            {k: v for k, v in entry.items() if "loss" in k or k in ("part", "step", "term/soft")}
            for entry in history
            # The Trainer's own summary is of the last start alone.
            if "train_loss" not in entry
        ]

    return {
        "weights": trainer.student.state_dict(),
        "history": timeless(trainer.state.log_history),
        "parts": {part.name: timeless(part.log_history) for part in trainer.parts},
        "examples": trainer.progress.examples(trainer.training_rows),
    }


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    found: dict[str, dict[str, Any]] = {}

    def run(plan: str) -> dict[str, Any]:
        if plan not in found:
            trainer = build(tmp_path_factory.mktemp("unbroken"), plan)
            trainer.train()
            found[plan] = outcome(trainer)
        return found[plan]

    return run


@pytest.mark.parametrize(
    ("plan", "kills"),
    [
        # Inside the first stage, then inside the last one.
        ("tinybert", [("first_stage", "step_begin", 2), ("out", "step_begin", 3)]),
        # After the first stage's last step, before it is kept as finished; and just as the last begins.
        pytest.param(
            "tinybert",
            [("first_stage", "train_end", 4), ("out", "step_begin", 0)],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("takd", [("assistants/01-teacher-3", "step_begin", 2), ("out", "step_begin", 2)]),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "takd", [("assistants/02-teacher-1", "step_begin", 1)], marks=pytest.mark.slow
        ),
        ("skd-student-rank", [("students/teacher-2", "step_begin", 1), ("out", "step_begin", 1)]),
        pytest.param(
            "skd-best-of", [("tries/teacher-rank", "step_begin", 2)], marks=pytest.mark.slow
        ),
        pytest.param(
            "skd-best-of", [("students/teacher-2", "step_begin", 2)], marks=pytest.mark.slow
        ),
    ],
)
def test_a_killed_training_ends_as_an_unbroken_one(tmp_path, unbroken, plan, kills):
    for number, (folder, event, step) in enumerate(kills):
        trainer = build(tmp_path, plan, Kill(folder, event, step))
        with pytest.raises(tiny.KilledError):
            trainer.train(resume_from_checkpoint=number > 0)
    trainer = build(tmp_path, plan)
    trainer.train(resume_from_checkpoint=True)
    found, expected = outcome(trainer), dict(unbroken(plan))
    weights = found.pop("weights")
    for name, value in expected.pop("weights").items():
        assert torch.equal(weights[name], value), name
    if any(folder == "out" for folder, *_ in kills):
        del found["parts"], expected["parts"]  # a first stage is not even looked at again
    assert found == expected


@pytest.mark.parametrize("where", ["first_stage/checkpoint-2", "checkpoint-3"])
@pytest.mark.slow
def test_a_checkpoint_of_any_part_may_be_named(tmp_path, unbroken, where):
    build(tmp_path, "tinybert").train()
    trainer = build(tmp_path, "tinybert")
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / where))
    found, expected = outcome(trainer), unbroken("tinybert")
    assert found["history"] == expected["history"]
    for name, value in expected["weights"].items():
        assert torch.equal(found["weights"][name], value), name


@pytest.mark.slow
def test_what_an_earlier_training_left_is_not_taken_for_this_ones(tmp_path, unbroken):
    other = build(tmp_path, "tinybert", learning_rate=5e-3, seed=1)
    other.train()
    trainer = build(tmp_path, "tinybert", Kill("first_stage", "step_begin", 2))
    with pytest.raises(tiny.KilledError):
        trainer.train()
    trainer = build(tmp_path, "tinybert")
    trainer.train(resume_from_checkpoint=True)
    for name, value in unbroken("tinybert")["weights"].items():
        assert torch.equal(trainer.student.state_dict()[name], value), name


def test_there_has_to_be_something_to_go_on_from(tmp_path):
    with pytest.raises(LimbeckError, match="holds no training to resume"):
        build(tmp_path, "tinybert").train(resume_from_checkpoint=True)
    plain = DistillationTrainer(
        own.bert(2),
        None,
        DistillationConfig.like(
            own.arguments(tmp_path / "plain", save_strategy="steps", save_steps=1),
            method="finetune",
        ),
        train_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
    )
    plain.train()
    with pytest.raises(LimbeckError, match="no checkpoint of a method of several parts"):
        build(tmp_path, "tinybert").train(
            resume_from_checkpoint=str(tmp_path / "plain" / "checkpoint-1")
        )


@pytest.mark.slow
def test_parts_that_are_gone_are_said(tmp_path):
    build(tmp_path, "takd").train()
    (tmp_path / "out" / "assistants" / "02-teacher-1" / "checkpoint-4" / "checksums.json").unlink()
    with pytest.raises(LimbeckError, match=r"02-teacher-1 does not contain the parts trained"):
        build(tmp_path, "takd").train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))


def test_training_again_begins_anew(tmp_path):
    trainer = build(tmp_path, "tinybert", save_strategy="no")
    trainer.train()
    first = trainer.progress.examples(12)
    trainer.train()
    assert trainer.progress.examples(12) == first == 16
    assert len(trainer.progress.epochs) == 2
    assert [part.name for part in trainer.parts] == ["first_stage"]


@pytest.mark.slow
def test_a_part_is_found_where_only_the_best_scores_are_kept(tmp_path, unbroken):
    """Its last step had no better score, so that no checkpoint would be of it."""
    best = {"save_strategy": "best", "eval_strategy": "steps", "eval_steps": 1}
    best |= {"metric_for_best_model": "loss", "greater_is_better": True}
    first = build(tmp_path, "takd", **best)
    first.train()
    again = build(tmp_path, "takd", **best)
    again.train(resume_from_checkpoint=True)
    for name, value in first.student.state_dict().items():
        assert torch.equal(again.student.state_dict()[name], value), name
