"""Every example of a step counts alike, and every one that was trained on is counted."""

from __future__ import annotations

import pytest
import torch
from transformers import TrainingArguments

from limbeck.data import Collator
from limbeck.run import distill
from limbeck.training import DistillationConfig, DistillationTrainer
from tiny_runs import bert, knowing_teacher, rows, save, tokenizer, write_csv


def trainer(folder, count, batch, accumulation=1, method="kd", **changes) -> DistillationTrainer:
    settings = {"max_steps": 1, "optim": "sgd", "max_grad_norm": 0.0, "learning_rate": 0.1}
    settings["save_strategy"] = "no"
    args = TrainingArguments(
        str(folder),
        use_cpu=True,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        lr_scheduler_type="constant",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        **(settings | changes),
    )
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return DistillationTrainer(
        bert(2, **none),
        knowing_teacher(3),
        DistillationConfig.like(args, method=method),
        train_dataset=rows(count),
        data_collator=Collator(tokenizer()),
    )


@pytest.mark.parametrize(
    ("count", "batch", "accumulation"),
    [(6, 4, 2), (5, 4, 2), (9, 2, 5), (7, 3, 4)],
    ids=["4+2", "4+1", "2+2+2+2+1", "3+3+1, fewer parts than asked for"],
)
def test_a_step_in_parts_is_the_step_of_one_batch(tmp_path, count, batch, accumulation):
    whole = trainer(tmp_path, count, count)
    parts = trainer(tmp_path, count, batch, accumulation)
    before = {name: value.clone() for name, value in whole.student.state_dict().items()}
    for one in (whole, parts):
        one.train()
        assert one.state.global_step == 1
    moved = 0.0
    for name, value in whole.student.state_dict().items():
        step = (value - before[name]).abs().max().item()
        moved = max(moved, step)
        # Sums of a batch of other sizes round otherwise: a few units of float32 in the last place.
        bound = 32 * torch.finfo(torch.float32).eps * max(value.abs().max().item(), 1.0)
        assert (parts.student.state_dict()[name] - value).abs().max().item() <= bound, name
    assert moved > 1e-3
    entries = [
        next(entry for entry in one.state.log_history if "learning_rate" in entry)
        for one in (whole, parts)
    ]
    for name in ("loss", "term/hard", "term/soft"):
        assert entries[1][name] == pytest.approx(entries[0][name], rel=1e-5)


@pytest.mark.parametrize(
    ("steps", "examples"), [(1, 32), (2, 54), (3, 54 + 32), (4, 2 * 54), (5, 2 * 54 + 32)]
)
def test_examples_are_counted_as_they_are_trained_on(tmp_path, steps, examples):
    """54 rows in batches of 32: an epoch is a step of 32 and one of 22."""
    made = trainer(tmp_path, 54, 32, method="kd-soft", max_steps=steps)
    made.train()
    assert made.progress.examples(made.training_rows) == examples


def test_examples_go_on_being_counted_after_a_stop(tmp_path):
    saving = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    trainer(tmp_path, 54, 32, method="kd-soft", **saving).train()
    for step in (1, 2):  # inside an epoch, and at its end
        again = trainer(tmp_path, 54, 32, method="kd-soft", **saving)
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert again.progress.examples(54) == 54 + 32
        assert [entry["step"] for entry in again.progress.epochs] == [2, 3]


def test_a_run_that_stops_inside_an_epoch_records_what_it_saw(tmp_path):
    result = distill(
        "kd-soft",
        out=tmp_path / "run",
        report=False,
        teacher=str(save(knowing_teacher(3), tmp_path / "teacher")),
        task="reviews",
        data=str(write_csv(tmp_path / "reviews.csv", 60)),
        text_columns=["review"],
        label_column="verdict",
        max_length=24,
        batch_size=32,
        max_steps=1,
        group_by_length=False,
        **{"student.layers": 2},
    )
    assert result.record.examples.train == 54
    assert result.record.cost.student_examples == 32
    assert result.record.stages[0].student_examples == 32
