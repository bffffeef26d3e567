"""A step of what distillation is done with elsewhere: TextBrewer, and the papers' released code.

Used by `end_to_end.py`. Both ask the teacher live at every step, in fp32.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, set_seed

from limbeck.data import EpochSampler
from limbeck.recipe import Recipe
from limbeck.run.prepare import prepare
from limbeck.run.prepared import Prepared

BATCH, LR = 32, 1e-4


def shuffled(prepared: Prepared, collate: Any, steps: int, seed: int) -> Iterator[Any]:
    """Batches of a random order, as many as are sampled."""
    sampler = EpochSampler(prepared.train.encoded, seed)
    loader = DataLoader(
        prepared.train.encoded.remove_columns("index"),
        BATCH,
        sampler=sampler,
        collate_fn=collate,
    )
    for _, batch in zip(range(steps), loader, strict=False):
        yield dict(batch)


def textbrewer(recipe: Recipe, steps: int, folder: Path) -> float:
    """Seconds of a step of TextBrewer's `GeneralDistiller`."""
    from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

    set_seed(recipe.seed)
    prepared = prepare(recipe)
    assert prepared.teacher is not None
    batches = list(shuffled(prepared, DataCollatorWithPadding(prepared.tokenizer), steps, 0))
    settings = TrainingConfig(
        device="cpu", output_dir=str(folder / "brewer"), log_dir=None, ckpt_epoch_frequency=100
    )
    wanted = DistillationConfig(temperature=1, hard_label_weight=0.5, kd_loss_weight=0.5)

    def student_adaptor(batch: Any, answers: Any) -> dict[str, Any]:
        return {"logits": answers.logits, "losses": answers.loss, "labels": batch["labels"]}

    def teacher_adaptor(batch: Any, answers: Any) -> dict[str, Any]:
        return {"logits": answers.logits}

    brewer = GeneralDistiller(
        settings, wanted, prepared.teacher, prepared.student.train(), teacher_adaptor,
        student_adaptor,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(prepared.student.parameters(), lr=LR)
    with brewer:
        brewer.train(optimizer, batches[:2], num_epochs=1, max_grad_norm=1.0, callback=None)
        began = time.perf_counter()
        brewer.train(optimizer, batches, num_epochs=1, max_grad_norm=1.0, callback=None)
        return (time.perf_counter() - began) / len(batches)


def papers(recipe: Recipe, steps: int) -> float:
    """Seconds of a step by the convention of the papers' released code."""
    set_seed(recipe.seed)
    prepared = prepare(recipe)
    student, teacher = prepared.student.train(), prepared.teacher
    assert teacher is not None
    for model in (student, teacher):
        model.set_attn_implementation("eager")
    outputs = {"output_hidden_states": True, "output_attentions": True}
    collate = DataCollatorWithPadding(prepared.tokenizer, padding="max_length", max_length=128)
    optimizer = torch.optim.AdamW(student.parameters(), lr=LR)
    seconds = []
    for batch in shuffled(prepared, collate, steps + 1, 0):
        began = time.perf_counter()
        with torch.no_grad():
            soft = teacher(**batch, **outputs).logits.softmax(-1)
        answers = student(**batch, **outputs)
        loss = 0.5 * answers.loss - 0.5 * (soft * answers.logits.log_softmax(-1)).sum(-1).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - began)
    return mean(seconds[1:])
