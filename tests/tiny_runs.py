"""Tiny models, a tokenizer and rows that tests of the engine and of whole runs train on."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import Model, WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    TrainerCallback,
)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = ["good", "bad", "film", "plot", "very", "a", "the", "slow", "long", "end"]
WIDTH = 16


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    return tokenizer_of(WordLevel(vocabulary, unk_token="[UNK]"))


def tokenizer_of(model: Model) -> PreTrainedTokenizerFast:
    """Of words between spaces, with BERT's special tokens."""
    backend = Tokenizer(model)
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def bert(layers: int, *, seed: int = 0, **changes) -> BertForSequenceClassification:
    """A random BERT with its usual dropout; the caller's random state is left alone."""
    settings = {
        "hidden_size": WIDTH,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "num_hidden_layers": layers,
        "vocab_size": len(SPECIAL) + len(WORDS),
        "max_position_embeddings": 24,
        "pad_token_id": 0,
        "id2label": {0: "negative", 1: "positive"},
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertForSequenceClassification(BertConfig(**(settings | changes)))


def knowing_teacher(
    layers: int = 4, *, regression: bool = False, width: int = WIDTH, heads: int = 2
) -> BertForSequenceClassification:
    """A teacher that is right by construction: attention carries `good` or `bad` to the head."""
    labels = {"id2label": {0: "LABEL_0"}} if regression else {}
    teacher = bert(layers, hidden_size=width, num_attention_heads=heads, **labels)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for weight in teacher.parameters():
            weight.normal_(0, 0.01)  # layers that differ a little, so that matching them is work
        for module in teacher.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
        embeddings = teacher.bert.embeddings.word_embeddings.weight
        embeddings[4, 0], embeddings[5, 0] = 1.0, -1.0  # good, bad
        for layer in teacher.bert.encoder.layer:
            layer.attention.self.value.weight.add_(torch.eye(width))
            layer.attention.output.dense.weight.add_(torch.eye(width))
        teacher.bert.pooler.dense.weight.add_(torch.eye(width))
        teacher.classifier.weight[:, 0] = torch.tensor([1.0] if regression else [-1.0, 1.0])
    return teacher.eval()


def sentences(count: int) -> list[str]:
    """Of different lengths; even ones praise. All differ: where words repeat, by the spaces between them."""
    fillers = WORDS[2:]
    return [
        (" " * (1 + row // (5 * len(fillers)))).join(
            ["good" if row % 2 == 0 else "bad"]
            + [fillers[(row * 3 + word) % len(fillers)] for word in range(1 + row % 5)]
        )
        for row in range(count)
    ]


def rows(count: int, *, regression: bool = False) -> Dataset:
    """Encoded examples: ids, mask, labels and index."""
    encoded = tokenizer()(sentences(count), return_token_type_ids=False)
    praise = [1 - row % 2 for row in range(count)]
    labels = [row * 0.5 for row in praise] if regression else praise
    return Dataset.from_dict({**encoded, "labels": labels, "index": list(range(count))})


def write_csv(path: Path, count: int, *, regression: bool = False) -> Path:
    """A user's own file: text, label, and a column nobody asked for."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["review", "verdict", "page"])
        for row, text in enumerate(sentences(count)):
            praise = row % 2 == 0
            number = f"{(4.0 if praise else 1.0) + (row % 5) / 10:.1f}"
            label = number if regression else ("positive" if praise else "negative")
            writer.writerow([text, label, row])
    return path


def save(model: BertForSequenceClassification, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


class KilledError(Exception):
    """Stands for the end of the process."""


class Kill(TrainerCallback):
    """Ends the process at an event: `Kill("step_begin", 7)` before the step after step 7."""

    def __init__(self, event: str, at: int) -> None:
        self.at = at
        setattr(self, f"on_{event}", self._kill)

    def _kill(self, args, state, control, **kwargs):
        if state.global_step == self.at:
            raise KilledError


def continued(recipe, out, *steps, **options):
    """A run whose process ends before the step after each of `steps` in turn, and that is begun again each time."""
    from limbeck.run import distill
    from limbeck.training import DistillationTrainer

    original = DistillationTrainer.__init__
    for step in steps:

        def dying(self, *args, step=step, **kwargs):
            original(self, *args, **kwargs)
            self.add_callback(Kill("step_begin", step))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DistillationTrainer, "__init__", dying)
            with pytest.raises(KilledError):
                distill(recipe, out=out, report=False, **options)
    return distill(recipe, out=out, report=False, **options)


def trainer_of(student, args, *, teacher=None, kind=None, **settings):
    """A `DistillationTrainer` of plain arguments, and settings of the trainer or of its configuration."""
    from limbeck.training import DistillationTrainer
    from limbeck.training.config import OWN_SETTINGS, DistillationConfig
    from limbeck.training.method import OBJECTS

    first = settings.pop("first_stage", None) or {}
    own = {name: settings.pop(name) for name in OWN_SETTINGS if name in settings}
    if own.get("objectives") is not None:
        own.pop("method", None)
    if said := {key: value for key, value in first.items() if key not in OBJECTS}:
        own["first_stage"] = said
    if objects := {key: value for key, value in first.items() if key in OBJECTS}:
        settings["first_stage"] = objects
    make = kind or DistillationTrainer
    return make(student, teacher, DistillationConfig.like(args, **own), **settings)
