"""A tiny teacher with a vocabulary that can be cut, and rows that it is right about."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from limbeck.static import train_tokenizer

FILLERS = [
    f"{first}{last}"
    for first in ("ba", "ke", "li", "mo", "nu")
    for last in ("ra", "si", "to", "vel", "wun")
]


def texts(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Texts with their labels, good and bad in turn."""
    chance = random.Random(seed)
    words = (("good", "bad")[row % 2] for row in range(count))
    return [
        (" ".join([word, *chance.choices(FILLERS, k=chance.randint(2, 5)), f"n{row}"]), word)
        for row, word in enumerate(words)
    ]


def write_rows(path: Path, count: int, seed: int = 0) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "label"])
        writer.writerows(texts(count, seed))
    return path


def write_teacher(
    folder: Path, hidden: int = 32, head: Any = BertForSequenceClassification
) -> Path:
    """Random weights: what is measured of it does not depend on them."""
    tokenizer = train_tokenizer([text for text, _ in texts(300)], 400)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=hidden, num_attention_heads=4, num_hidden_layers=3,
        intermediate_size=2 * hidden, max_position_embeddings=128, pad_token_id=tokenizer.pad_token_id,
        id2label={0: "bad", 1: "good"},
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
