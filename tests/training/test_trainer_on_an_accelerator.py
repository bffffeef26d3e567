"""Training on an accelerator: no step waits for it, and stored teacher outputs teach as live ones do.

`pytest -m gpu`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers.masking_utils
from tiny_trainers import make, steps_logged, still
from transformers import TrainerCallback

import tiny_runs as tiny
from accelerated import accelerator
from limbeck.data import Collator
from limbeck.outputs.building import build
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.teachers.teacher import Teacher
from limbeck.training import DistillationTrainer

pytestmark = pytest.mark.gpu

METHODS = ["kd", "pkd-skip", "rail-kd-c", "alp-po", "codir", "tinybert"]


class NoWaiting(TrainerCallback):
    """From the third step on, until its end, whatever waits for the device is an error."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step >= 2:
            torch.cuda.set_sync_debug_mode("error")

    def on_step_end(self, args, state, control, **kwargs):
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture
def waits_are_errors(monkeypatch):
    if accelerator().type != "cuda":
        pytest.skip("only CUDA tells what waits for it")
    # transformers asks of a mask whether all of it is real, but not where a graph is recorded.
    monkeypatch.setattr(transformers.masking_utils, "is_tracing", lambda *_: True)
    yield NoWaiting()
    torch.cuda.set_sync_debug_mode("default")


def on(device: torch.device, folder: Path, *, log: int = 1, **changes) -> DistillationTrainer:
    args = {"use_cpu": device.type == "cpu", "logging_steps": log, "num_train_epochs": 3}
    return make(folder, count=16, args=args, **changes)


def from_disk(folder: Path, method: str, device: torch.device) -> CachedTeacher:
    """The teacher's outputs to all rows, for a method."""
    teacher = Teacher(tiny.knowing_teacher(4)).to(device)
    terms = on(device, folder, method=method, student=still(3), teacher=teacher).objectives
    wanted = Ask(terms.ever("teacher"), terms.differences("teacher").items)
    rows, collate, store = list(tiny.rows(16)), Collator(tiny.tokenizer()), Store(folder / "store")
    batches = [
        {name: value.to(device) for name, value in collate(rows[start : start + 8]).items()}
        for start in (0, 8)
    ]
    with store.writing("key") as entry:
        build(entry, teacher, batches, wanted, precision="fp32")
    return CachedTeacher(teacher, store.find("key"))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_no_step_waits(tmp_path, waits_are_errors, method, stored):
    device = accelerator()
    teacher = from_disk(tmp_path, method, device) if stored else tiny.knowing_teacher(4)
    trainer = on(device, tmp_path, log=100, method=method, student=still(3), teacher=teacher)
    trainer.add_callback(waits_are_errors)
    trainer.train()
    assert trainer.state.global_step == 12


@pytest.mark.parametrize("method", ["l-ild-mixup", "cr-ild", "wkd-uniform"])
def test_no_step_waits_that_mixes(tmp_path, waits_are_errors, method):
    trainer = on(
        accelerator(),
        tmp_path,
        log=100,
        method=method,
        student=still(3),
        teacher=tiny.knowing_teacher(4),
        callbacks=[waits_are_errors],
    )
    trainer.train()
    assert trainer.state.global_step == 12


@pytest.mark.parametrize("method", METHODS)
def test_stored_answers_teach_as_live_ones_do(tmp_path, method):
    device = accelerator()
    losses = []
    for teacher in (tiny.knowing_teacher(4), from_disk(tmp_path, method, device)):
        trainer = on(device, tmp_path, method=method, student=still(3), teacher=teacher)
        trainer.train()
        assert trainer.student.device.type == device.type
        losses.append([entry["loss"] for entry in steps_logged(trainer)])
    # Both learn from what float16 holds of the same numbers; steps add up.
    assert losses[1] == pytest.approx(losses[0], rel=5e-3, abs=1e-4)
