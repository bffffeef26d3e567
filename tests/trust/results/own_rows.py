"""A user's own things, none of them limbeck's: models, rows with columns of their own, collator, metrics, callback."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from datasets import Dataset
from transformers import DataCollatorWithPadding, TrainerCallback, TrainingArguments

import limbeck
import tiny_runs as tiny
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.tasks import PAIR_SCORE

ROWS = 12


@functools.cache
def sentences() -> Dataset:
    words = tiny.tokenizer()
    given = {"review": tiny.sentences(ROWS), "label": [1 - row % 2 for row in range(ROWS)]}
    return Dataset.from_dict(given).map(lambda row: words(row["review"]))


@functools.cache
def prompts() -> Dataset:
    """Text in, text out: the last word of the text."""
    words = tiny.tokenizer()
    rows = [words(text, return_token_type_ids=False) for text in tiny.sentences(ROWS)]
    columns = {name: [row[name] for row in rows] for name in ("input_ids", "attention_mask")}
    targets = [row["input_ids"][-2:] for row in rows]
    return Dataset.from_dict(columns | {"labels": targets, "page": list(range(ROWS))})


@functools.cache
def candidates() -> Dataset:
    """Three queries with four candidates each."""
    return sentences().map(
        lambda row, place: {"labels": float(row["label"]), "query_id": place // 4},
        with_indices=True,
        remove_columns=["label"],
    )


@functools.cache
def tuples() -> Dataset:
    """Four queries, each with what belongs to it and what does not."""
    grades = (float("nan"), 1.0, 0.0)
    return sentences().map(
        lambda row, place: {"grade": grades[place % 3], "query_id": place // 3},
        with_indices=True,
        remove_columns=["label"],
    )


@functools.cache
def _bert(layers: int, seed: int, **changes: Any) -> hf.BertForSequenceClassification:
    return tiny.bert(layers, seed=seed, **changes)


@functools.cache
def _t5(layers: int, seed: int) -> hf.T5ForConditionalGeneration:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return hf.T5ForConditionalGeneration(
            hf.T5Config(
                vocab_size=len(tiny.SPECIAL) + len(tiny.WORDS),
                d_model=tiny.WIDTH,
                d_kv=tiny.WIDTH // 2,
                d_ff=24,
                num_layers=layers,
                num_heads=2,
                decoder_start_token_id=0,
                pad_token_id=0,
            )
        )


def bert(layers: int, seed: int = 0, **changes: Any) -> hf.BertForSequenceClassification:
    """Fresh weights each time, though sampled once."""
    return _fresh(_bert(layers, seed, **changes))


def t5(layers: int, seed: int = 0) -> hf.T5ForConditionalGeneration:
    return _fresh(_t5(layers, seed))


def _fresh(model: Any) -> Any:
    again = type(model)(model.config)
    again.load_state_dict(model.state_dict())
    return again


def reranker(layers: int, seed: int = 0) -> Any:
    """Says of itself that its one output is a score."""
    return limbeck.build_student(bert(layers, seed, num_labels=1), kind=PAIR_SCORE)


def embedder(layers: int, seed: int = 0) -> Any:
    """Mean pooling and the division by the length, as an encoder without modules has them."""
    return SENTENCE_EMBEDDERS.from_config(bert(layers, seed).config)


class OwnCollator:
    """Pads as the user's script always did, and counts how often it was asked."""

    def __init__(self, *, text: bool = False) -> None:
        self.pad = DataCollatorWithPadding(tiny.tokenizer())
        self.text = text
        self.calls = 0

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        self.calls += 1
        if not self.text:
            return dict(self.pad(rows))
        batch = dict(self.pad([{k: v for k, v in row.items() if k != "labels"} for row in rows]))
        longest = max(len(row["labels"]) for row in rows)
        padded = [row["labels"] + [-100] * (longest - len(row["labels"])) for row in rows]
        return batch | {"labels": torch.tensor(padded)}


class Watch(TrainerCallback):
    """In which folder how many steps were made."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}

    def on_step_end(self, args, state, control, **kwargs):
        folder = str(args.output_dir)
        self.steps[folder] = self.steps.get(folder, 0) + 1


def accuracy(answer: hf.EvalPrediction) -> dict[str, float]:
    given = answer.predictions
    given = given[0] if isinstance(given, tuple) else given
    valid = answer.label_ids != -100
    return {"mine": float((given.argmax(-1) == answer.label_ids)[valid].mean())}


def first_is_best(answer: hf.EvalPrediction) -> dict[str, float]:
    grades, queries = answer.label_ids
    best = {int(query): answer.predictions[queries == query].argmax() for query in queries}
    found = [grades[queries == query][place] for query, place in best.items()]
    return {"mine": float(sum(found) / len(found))}


def arguments(folder: Path, **changes: Any) -> TrainingArguments:
    settings = {
        "use_cpu": True,
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }
    return TrainingArguments(str(folder), **(settings | changes))


def terms_by_part(history: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Which terms were logged in which part of a training; "" is the trainer's own stage."""
    found: dict[str, set[str]] = {}
    for entry in history:
        if "learning_rate" in entry:
            names = {key.removeprefix("term/") for key in entry if key.startswith("term/")}
            found.setdefault(entry.get("part", ""), set()).update(
                name for name in names if not name.startswith("loss (")
            )
    return found
