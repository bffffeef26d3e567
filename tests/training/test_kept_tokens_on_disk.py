"""A trainer's text-to-text teacher of whose vocabulary some tokens are kept on disk: as live, and after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_trainers import arguments, steps_logged
from transformers import T5Config, T5ForConditionalGeneration

import tiny_runs as tiny
from limbeck import DistillationConfig, DistillationTrainer
from limbeck.data import Collator
from limbeck.outputs.cache import Store
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TEXT

ROWS = 12


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path) -> Store:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    return Store(tmp_path / "store")


def t5(layers: int, seed: int) -> T5ForConditionalGeneration:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return T5ForConditionalGeneration(
            T5Config(
                vocab_size=len(tiny.SPECIAL) + len(tiny.WORDS), d_model=16, d_kv=8, d_ff=24,
                num_layers=layers, num_heads=2, decoder_start_token_id=0, pad_token_id=0,
                dropout_rate=0.0, initializer_factor=2.0,
            )
        )  # fmt: skip


def trainer(folder: Path, cache: str, tokens: str, *callbacks) -> DistillationTrainer:
    """Three epochs of three steps; targets are the last words of texts, one to three of them."""
    rows = tiny.rows(ROWS).remove_columns(["labels"])
    targets = [row["input_ids"][-2 - place % 3 :] for place, row in enumerate(rows)]
    objectives = {"soft": {"compare": "soft_kl", "tokens": tokens, "temperature": 2.0}}
    plain = arguments(folder, num_train_epochs=3, save_strategy="steps", save_steps=2)
    return DistillationTrainer(
        t5(1, seed=4),
        t5(2, seed=3),
        DistillationConfig.like(plain, cache_teacher_outputs=cache, objectives=objectives),
        train_dataset=rows.add_column("labels", targets),
        data_collator=Collator(tiny.tokenizer(), kind=TEXT),
        callbacks=list(callbacks),
    )


def losses(made: DistillationTrainer) -> list[float]:
    return [entry["loss"] for entry in steps_logged(made)]


@pytest.mark.parametrize("tokens", ["top3", "sample5"])
def test_kept_tokens_teach_as_live_ones_and_after_a_kill(tmp_path, store, tokens):
    live = trainer(tmp_path / "live", "off", tokens)
    live.train()
    with pytest.raises(tiny.KilledError):
        trainer(tmp_path / "disk", "disk", tokens, tiny.Kill("step_begin", 5)).train()
    again = trainer(tmp_path / "disk", "disk", tokens)
    again.train(resume_from_checkpoint=True)
    assert isinstance(again.teacher, CachedTeacher) and again.teacher.fresh == 0
    assert len(losses(again)) == 9
    assert losses(again) == pytest.approx(losses(live), rel=1e-3)
    for name, value in live.student.state_dict().items():
        torch.testing.assert_close(again.student.state_dict()[name], value, atol=2e-4, rtol=2e-3)
    (entry,) = store.entries()
    assert entry.outputs.tokens.kept == f"{tokens}@2"


def test_more_tokens_than_there_are_is_refused(tmp_path):
    with pytest.raises(LimbeckError, match="k is 999, and the vocabulary has"):
        trainer(tmp_path, "disk", "top999").train()
