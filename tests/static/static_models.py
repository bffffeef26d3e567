"""Tiny static students with all numbers random, and texts that they read."""

from __future__ import annotations

from typing import Any

import torch

import tiny_runs as tiny
from limbeck.static import StaticStudent, static_student

TEXTS = [
    "good film",
    "the bad plot very slow",
    "good",
    "an unheard word good unheard",
    "",
    "bad bad bad long end film the plot a slow very good",
]


def student(**settings: Any) -> StaticStudent:
    """A student of the tiny tokenizer in which every weight is random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        made = static_student(tiny.tokenizer(), 6, **settings)
        for weight in made.parameters():
            torch.nn.init.normal_(weight)
    return made.eval()


def batch(texts: list[str], **settings: Any) -> dict[str, torch.Tensor]:
    coded = tiny.tokenizer()(texts, padding=True, return_tensors="pt", **settings)
    return {name: coded[name] for name in ("input_ids", "attention_mask")}


@torch.no_grad()
def outputs(model: StaticStudent, texts: list[str] = TEXTS) -> torch.Tensor:
    return model(**batch(texts)).logits
