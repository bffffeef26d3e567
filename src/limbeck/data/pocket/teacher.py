"""The deep small teacher of Pocket GLUE, and settings that are known to train it and its students.

Before the data stage of a training step. The teacher is an ordinary BERT: many layers, because the
tasks compose in many steps, and narrow, so that two cores train it in a minute. Recipes and the
quickstart read their numbers from here, so that they stand in one place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from transformers import BertConfig

from limbeck.data.pocket.vocabulary import MAX_LENGTH, SPECIAL_TOKENS, vocabulary


class Settings(NamedTuple):
    """How to train a pocket model: AdamW, linear decay to zero after a linear warm-up."""

    epochs: int
    lr: float
    batch_size: int = 32
    warmup: float = 0.1
    """Share of all steps."""
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0


class Recommended(NamedTuple):
    """Settings of one task: the teacher from scratch, and a shallow student of it."""

    teacher: Settings
    student: Settings


def teacher_config(num_labels: int, **changes: Any) -> BertConfig:
    """The configuration of the deep small teacher; one label means regression.

    `changes` override single fields. Post-LN layers this narrow learn from scratch only when they
    start close to, but not at, the identity: an initial standard deviation of 0.05 trains where
    0.02 and 0.1 stall. There is no dropout, because the data is generated without noise.
    """
    settings: dict[str, Any] = {
        "vocab_size": len(vocabulary()),
        "hidden_size": 64,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "max_position_embeddings": MAX_LENGTH,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.05,
        "pad_token_id": SPECIAL_TOKENS.index("[PAD]"),
        "num_labels": num_labels,
    }
    if num_labels == 1:
        settings["problem_type"] = "regression"
    return BertConfig(**{**settings, **changes})


_EPOCHS = {
    "mnli": 4, "qqp": 4, "qnli": 4, "sst2": 5, "cola": 5, "stsb": 5, "mrpc": 7, "rte": 5, "wnli": 8,
}  # fmt: skip

RECOMMENDED: dict[str, Recommended] = {
    task: Recommended(Settings(epochs, lr=5e-4), Settings(epochs=2, lr=1e-3))
    for task, epochs in _EPOCHS.items()
}
"""By task name: settings of the teacher (from scratch) and of a student."""
