"""A trainer on tiny models, with every setting open to change."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import TrainerCallback, TrainingArguments

import tiny_runs as tiny
from limbeck.data import Collator


def arguments(folder: Path, **changes) -> TrainingArguments:
    settings = {
        "output_dir": str(folder),
        "use_cpu": True,
        "num_train_epochs": 1,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }
    return TrainingArguments(**(settings | changes))


def make(folder: Path, *, method="kd", count=12, args=None, layers=2, student=None, **changes):
    settings = {
        "teacher": None if method == "finetune" else tiny.knowing_teacher(3),
        "method": method,
        "train_dataset": tiny.rows(count),
        "data_collator": Collator(tiny.tokenizer()),
    }
    return tiny.trainer_of(
        student or tiny.bert(layers),
        arguments(folder, **(args or {})),
        **(settings | changes),
    )


def still(layers: int = 2, **changes):
    """A student without dropout, so that steps can be compared."""
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return tiny.bert(layers, **none, **changes)


def steps_logged(trainer) -> list[dict]:
    return [entry for entry in trainer.state.log_history if "learning_rate" in entry]


class Gradients(TrainerCallback):
    """Keeps the gradients of the first step, before they are clipped away."""

    def __init__(self):
        self.found: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if state.global_step == 0:
            self.found = {
                name: weight.grad.clone()
                for name, weight in model.named_parameters()
                if weight.grad is not None
            }


def first_gradients(folder: Path, batch: int, accumulation: int, **changes):
    """The gradients of a first step, by weight, and what was logged of it."""
    seen = Gradients()
    args = {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "max_grad_norm": 0.0,
        "max_steps": 1,
    } | changes.pop("args", {})
    settings = {"student": still(3), "callbacks": [seen]} | changes
    trainer = make(folder, args=args, **settings)
    trainer.train()
    return seen.found, steps_logged(trainer)[0]
