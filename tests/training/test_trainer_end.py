"""How training ends: with the best epoch, early, or with an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_trainers import make

import tiny_runs as tiny
from limbeck.support.errors import LimbeckError
from limbeck.training import Patience

# ---- when it goes wrong ----


class Spoil(tiny.TrainerCallback):
    """Makes the student's head produce no number any more, from a step on."""

    def __init__(self, at: int, event: str):
        self.at = at
        setattr(self, f"on_{event}", self.spoil)

    def spoil(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.at:
            with torch.no_grad():
                model.student.classifier.bias.fill_(float("nan"))


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    spoilt = Spoil(5, "step_begin")
    trainer = make(
        tmp_path,
        method="rail-kd-l",
        args={"num_train_epochs": 3, "save_strategy": "epoch", "logging_steps": 50},
        callbacks=[spoilt],
    )
    with pytest.raises(LimbeckError, match=r"non-finite loss by step 6: loss, hard, soft") as error:
        trainer.train()
    assert "rail" not in str(error.value).split("\n")[0]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]
    saved = load_file(tmp_path / "checkpoint-3" / "distiller.safetensors")
    assert all(torch.isfinite(value).all() for value in saved.values())


def test_it_ends_at_the_next_logged_step(tmp_path):
    trainer = make(tmp_path, callbacks=[Spoil(1, "step_begin")])
    with pytest.raises(LimbeckError, match="by step 2: loss, hard, soft"):
        trainer.train()


def test_weights_that_are_no_numbers_are_not_saved(tmp_path):
    """The step's loss was finite; only its update was not."""
    trainer = make(tmp_path, args={"save_strategy": "epoch"}, callbacks=[Spoil(3, "step_end")])
    with pytest.raises(LimbeckError, match=r"non-finite weights by step 3: .*classifier\.bias"):
        trainer.train()
    assert not list(tmp_path.iterdir())


# ---- the best epoch ----


def run_with_scores(folder: Path, scores: list[float], **changes):
    """Epoch by epoch these dev scores, whatever the student answers."""
    left = list(scores)
    trainer = make(
        folder,
        eval_dataset=tiny.rows(4),
        compute_metrics=lambda prediction: {"primary": left.pop(0)},
        args={
            "num_train_epochs": len(scores),
            "eval_strategy": "epoch",
            "save_strategy": "epoch",
            "load_best_model_at_end": True,
            "metric_for_best_model": "primary",
            "greater_is_better": True,
            "save_total_limit": 1,
        },
        **changes,
    )
    kept = {}

    class Keep(tiny.TrainerCallback):
        def on_epoch_end(self, args, state, control, model=None, **kwargs):
            kept[round(state.epoch)] = {
                name: value.clone() for name, value in model.state_dict().items()
            }

    trainer.add_callback(Keep())
    trainer.train()
    return trainer, kept


@pytest.mark.parametrize(
    ("scores", "best"), [([50, 70, 60], 2), ([50, 60, 70], 3), ([50, 50, 50], 1)]
)
def test_the_best_epochs_weights_come_back(tmp_path, scores, best):
    trainer, kept = run_with_scores(tmp_path, scores)
    assert [entry["dev"]["primary"] for entry in trainer.progress.epochs] == scores
    for name, value in trainer.distiller.state_dict().items():
        assert torch.equal(value, kept[best][name]), name
    last = trainer.distiller.student.classifier.weight
    assert torch.equal(last, kept[3]["student.classifier.weight"]) == (best == 3)


@pytest.mark.parametrize(
    ("scores", "patience", "epochs"),
    [
        ([50, 40, 45, 90, 95], 2, 3),  # two epochs without a better one: the fourth never comes
        pytest.param([50, 40, 60, 55, 58, 99], 2, 5, marks=pytest.mark.slow),
        ([50, 50, 99], 1, 2),  # as good is not better
        pytest.param([50, 40, 51, 30], 2, 4, marks=pytest.mark.slow),
        ([10, 20, 30], 1, 3),
    ],
)
def test_patience_stops_after_epochs_that_are_no_better(tmp_path, scores, patience, epochs):
    trainer, _ = run_with_scores(tmp_path, scores, callbacks=[Patience(patience, "primary")])
    assert [entry["epoch"] for entry in trainer.progress.epochs] == list(range(1, epochs + 1))
    best = int(np.argmax(scores[:epochs])) + 1
    assert trainer.state.best_global_step == 3 * best


def test_patience_waits_for_a_score(tmp_path):
    trainer = make(tmp_path, eval_dataset=tiny.rows(4), callbacks=[Patience(1, "primary")])
    assert "eval_loss" in trainer.evaluate()
