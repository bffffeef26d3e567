"""Pairs of texts, a BERT that reads them by segment, and students whose tokenizers make no segment ids."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

import tiny_runs as tiny
from limbeck.activations import ActivationKey, Trace
from limbeck.training.step import Distiller

WITHOUT = ["input_ids", "attention_mask"]
WITH = ["input_ids", "token_type_ids", "attention_mask"]
LENGTH = 24


def tokenizer(names: list[str], **changes: Any) -> PreTrainedTokenizerFast:
    """The tokens of `tiny_runs`, and the inputs that a model's tokenizer makes of them."""
    return tiny.tokenizer().__class__(
        tokenizer_object=tiny.tokenizer().backend_tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=names,
        **changes,
    )


def segmented(layers: int = 4, *, seed: int = 5) -> BertForSequenceClassification:
    """A teacher that is right, and whose states are others where it reads a second text as a first."""
    teacher = tiny.knowing_teacher(layers)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        types = teacher.bert.embeddings.token_type_embeddings.weight
        types[1, 1:] = torch.randn(tiny.WIDTH - 1, generator=generator)
    return teacher


def distilbert(layers: int = 2) -> DistilBertForSequenceClassification:
    """A student of a family that has no segments."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return DistilBertForSequenceClassification(
            DistilBertConfig(
                vocab_size=len(tiny.SPECIAL) + len(tiny.WORDS),
                dim=tiny.WIDTH,
                n_heads=2,
                hidden_dim=24,
                n_layers=layers,
                max_position_embeddings=LENGTH,
                pad_token_id=0,
                id2label={0: "negative", 1: "positive"},
            )
        )


def save(model: PreTrainedModel, folder: Path, names: list[str], **changes: Any) -> str:
    model.save_pretrained(folder)
    tokenizer(names, **changes).save_pretrained(folder)
    return str(folder)


def write_pairs(path: Path, count: int) -> Path:
    """Pairs in which the first text praises or does not; the second is as long as it likes."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["first", "second", "verdict"])
        for row, text in enumerate(tiny.sentences(count)):
            other = " ".join(tiny.WORDS[2:][(row + word) % 8] for word in range(1 + row % 4))
            writer.writerow([text, other, "negative" if row % 2 else "positive"])
    return path


def settings(place: Path, **changes: Any) -> dict[str, Any]:
    return {
        "task": "pairs",
        "data": str(place / "pairs.csv"),
        "text_columns": ["first", "second"],
        "label_column": "verdict",
        "teacher": str(place / "teacher"),
        "student.init": str(place / "student"),
        "epochs": 1,
        "batch_size": 8,
        "max_length": LENGTH,
        "lr": 1e-3,
        "seed": 3,
        "cache": "never",
    } | changes


class Watched:
    """Every trace of a teacher that a student was compared with, whose it was, and the numbers of its examples."""

    def __init__(self, monkeypatch) -> None:
        self.steps: list[tuple[list[int], Trace, int]] = []
        forward = Distiller.forward

        def watching(distiller, inputs=None, *, step_state=None, teacher=None, **batch):
            def told(inputs, request):
                trace = teacher(inputs, request)
                self.steps.append((inputs.batch["index"].tolist(), trace, step_state.teacher))
                return trace

            asked = None if teacher is None else told
            return forward(distiller, inputs, step_state=step_state, teacher=asked, **batch)

        monkeypatch.setattr(Distiller, "forward", watching)


def compare(trace: Trace, folder: str, texts: list[tuple[str, ...]], tolerance=1e-5) -> int:
    """A trace against the checkpoint's own tokenizer and model; how many values there were."""
    logits, hidden, mask = by_hugging_face(folder, texts)
    compared = 0
    if trace.logits is not None:
        torch.testing.assert_close(trace.logits, logits, rtol=tolerance, atol=tolerance)
        compared += 1
    for seen, value in trace.values.items():
        expected = _pooled(hidden[seen.layer], mask, seen)
        valid = mask.bool() if seen.pool is None else slice(None)
        torch.testing.assert_close(value[valid], expected[valid], rtol=tolerance, atol=tolerance)
        compared += 1
    return compared


def by_hugging_face(
    folder: str, texts: list[tuple[str, ...]]
) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
    """Logits, hidden states and mask: the teacher's own tokenizer and forward pass, and nothing else."""
    words = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    columns = [list(column) for column in zip(*texts, strict=True)]
    limits = {"truncation": True, "max_length": LENGTH}
    batch = words(*columns, padding=True, return_tensors="pt", **limits)
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
    return output.logits, output.hidden_states, batch["attention_mask"]


def _pooled(states: Tensor, mask: Tensor, seen: ActivationKey) -> Tensor:
    assert seen.what == "hidden"
    if seen.pool == "cls":
        return states[:, 0]
    if seen.pool == "mean":
        weights = mask.unsqueeze(-1).to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1)
    return states
