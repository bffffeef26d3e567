"""Trainers derived from `DistillationTrainer`, and checkpoints that other terms have made."""

from __future__ import annotations

import own_rows as own
import pytest

import tiny_runs as tiny
from limbeck import DistillationTrainer
from limbeck.support.errors import LimbeckError


class Scaled(DistillationTrainer):
    """Takes an argument of its own, and multiplies every loss by it."""

    def __init__(self, *args, gain=1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.gain = gain

    def compute_loss(self, *args, **kwargs):
        own.GAINS.append((self.gain, str(self.args.output_dir).rpartition("/")[2]))
        return super().compute_loss(*args, **kwargs)


def build(folder, made=DistillationTrainer, method="kd", given=None, **changes):
    settings = {
        "teacher": own.bert(3, 1),
        "train_dataset": tiny.rows(8),
        "data_collator": own.OwnCollator(),
        "method": method,
    }
    arguments = own.arguments(
        folder, **({"save_strategy": "steps", "save_steps": 1} | (given or {}))
    )
    return tiny.trainer_of(own.bert(2), arguments, kind=made, **(settings | changes))


@pytest.mark.parametrize("method", ["tinybert", "kd"])
def test_arguments_of_a_subclass_hold_for_every_part(tmp_path, monkeypatch, method):
    monkeypatch.setattr(own, "GAINS", [], raising=False)
    first = {"first_stage": {"max_steps": 1}} if method == "tinybert" else {}
    build(tmp_path / "own", Scaled, method, gain=3.0, **first).train()
    parts = ["first_stage"] if method == "tinybert" else []
    assert [(3.0, part) for part in [*parts, "own", "own"]] == own.GAINS


@pytest.mark.parametrize(
    ("other", "key"),
    [
        ({"method": "kd-soft"}, "hard"),
        ({"method": "rail-kd-l"}, "rail"),
        (
            {"objectives": {"hard": {"compare": "hard_label"}, "soft": {"compare": "soft_kl"}}},
            "soft",
        ),
    ],
)
def test_a_checkpoint_of_other_terms_is_refused(tmp_path, other, key):
    build(tmp_path, given={"max_steps": 1}).train()
    again = build(tmp_path, **other)
    with pytest.raises(
        LimbeckError, match=rf"checkpoint-1 was trained by other terms: .*objectives\.{key}"
    ):
        again.train(resume_from_checkpoint=True)


def test_a_checkpoint_of_the_same_terms_goes_on(tmp_path):
    build(tmp_path, method="rail-kd-l", given={"max_steps": 1}).train()
    again = build(tmp_path, method="rail-kd-l")
    assert again.train(resume_from_checkpoint=True).global_step == 2
