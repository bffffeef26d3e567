"""A training step: gradients, types, and what is logged of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_trainers import arguments, first_gradients, make, steps_logged, still
from transformers import Trainer
from transformers.integrations import integration_utils

import tiny_runs as tiny
from limbeck.data import Collator
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationTrainer, tensorboard


@pytest.mark.parametrize("method", ["finetune", "rail-kd-l", "alp-kd"])
def test_accumulated_gradients_are_those_of_one_large_batch(tmp_path, method):
    split, in_parts = first_gradients(tmp_path, 4, 2, method=method)
    whole, at_once = first_gradients(tmp_path, 8, 1, method=method)
    assert split.keys() == whole.keys()
    assert any(name.startswith("student.classifier") for name in whole)
    for name, value in whole.items():
        torch.testing.assert_close(split[name], value, atol=1e-6, rtol=1e-5, msg=name)
    assert in_parts["loss"] == pytest.approx(at_once["loss"], abs=1e-6)


def test_fine_tuning_is_the_trainers_own(tmp_path):
    """The same batches through plain `transformers.Trainer`: the same losses and weights."""
    rows = tiny.rows(12)
    ours = make(tmp_path, method="finetune", student=still(2), train_dataset=rows)
    ours.train()

    class InOurOrder(Trainer):
        def _get_train_sampler(self, *args, **kwargs):
            return DistillationTrainer._get_train_sampler(ours, *args, **kwargs)

    theirs = InOurOrder(
        still(2),
        arguments(tmp_path),
        train_dataset=rows.remove_columns("index"),
        data_collator=Collator(tiny.tokenizer()),
    )
    theirs.train()
    for one, other in zip(steps_logged(ours), steps_logged(theirs), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-6)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)
    for one, other in zip(ours.student.parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_regression_is_the_trainers_own(tmp_path):
    rows = tiny.rows(8, regression=True)
    student = still(2, num_labels=1, id2label={0: "LABEL_0"})
    trainer = make(tmp_path, method="finetune", student=student, eval_dataset=rows)
    batch = Collator(tiny.tokenizer())(list(rows))
    index = batch.pop("index")
    assert len(index) == 8
    with torch.no_grad():
        expected = student.eval()(**batch).loss.item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-6)


def test_bf16_keeps_losses_in_float32(tmp_path):
    types = []

    class Watching(DistillationTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
            types.append({loss.dtype, *(term.dtype for term in outputs["terms"].values())})
            return (loss, outputs) if return_outputs else loss

    seen = []

    def watch(module, inputs, output):
        seen.append(output.dtype)

    student, teacher = still(2), tiny.knowing_teacher(3)
    for model in (student, teacher):
        model.bert.encoder.layer[0].intermediate.dense.register_forward_hook(watch)
    trainer = tiny.trainer_of(
        student,
        arguments(tmp_path, bf16=True),
        kind=Watching,
        teacher=teacher,
        method="rail-kd-l",
        train_dataset=tiny.rows(12),
        data_collator=Collator(tiny.tokenizer()),
    )
    trainer.train()
    assert types == [{torch.float32}] * 3
    assert seen == [torch.bfloat16] * 6
    assert {weight.dtype for weight in trainer.model.parameters()} == {torch.float32}
    assert all(np.isfinite(entry["loss"]) for entry in steps_logged(trainer))


# ---- logging ----


def test_logged_terms_add_up_to_the_loss(tmp_path):
    trainer = make(
        tmp_path,
        method="alp-kd",
        layers=3,
        count=20,
        args={"gradient_accumulation_steps": 2, "logging_steps": 2, "num_train_epochs": 2},
    )
    trainer.train()
    entries = steps_logged(trainer)
    assert len(entries) == 3
    for entry in entries:
        terms = {name: entry[f"term/{name}"] for name in ("hard", "soft", "attention")}
        assert all(value > 0 for value in terms.values())
        total = 0.3 * terms["hard"] + 0.5 * terms["soft"] + 0.2 * terms["attention"]
        assert entry["loss"] == pytest.approx(total, rel=1e-6)


def test_tensorboard_holds_every_term(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = tmp_path / "events"
    trainer = make(
        tmp_path, method="rail-kd-l", eval_dataset=tiny.rows(4), args={"eval_strategy": "epoch"}
    )
    trainer.add_callback(tensorboard(events))
    trainer.train()
    found = EventAccumulator(str(events))
    found.Reload()
    tags = set(found.Tags()["scalars"])
    assert {"train/loss", "train/term/hard", "train/term/soft", "train/term/rail"} <= tags
    assert "eval/loss" in tags
    for name in ("loss", "term/rail"):
        values = [(event.step, event.value) for event in found.Scalars(f"train/{name}")]
        logged = [(entry["step"], entry[name]) for entry in steps_logged(trainer)]
        assert values == [(step, pytest.approx(value, rel=1e-6)) for step, value in logged]


def test_every_epoch_leaves_an_entry(tmp_path):
    trainer = make(
        tmp_path,
        method="rail-kd-l",
        eval_dataset=tiny.rows(4),
        args={"num_train_epochs": 2, "eval_strategy": "epoch"},
    )
    trainer.train()
    first, second = trainer.progress.epochs
    assert (first["epoch"], first["step"], second["epoch"], second["step"]) == (1, 3, 2, 6)
    logged = steps_logged(trainer)
    for entry, steps in ((first, logged[:3]), (second, logged[3:])):
        for name, mean in entry["train"].items():
            key = name if name == "loss" else f"term/{name}"
            assert mean == pytest.approx(np.mean([step[key] for step in steps]), rel=1e-6)
        assert entry["dev"].keys() == {"loss"}
        assert entry["seconds"] > 0
        assert entry["active_layers"]["rail"][0][0] == 1
    seconds = trainer.progress.stopwatch.read()
    assert 0 < seconds["teacher"] < first["seconds"] + second["seconds"]
    assert trainer.progress.parts.read()["evaluation"] > 0


def test_tensorboard_that_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(integration_utils, "get_available_reporting_integrations", list)
    with pytest.raises(LimbeckError, match=r"pip install 'limbeck\[tensorboard\]'"):
        tensorboard(tmp_path)
