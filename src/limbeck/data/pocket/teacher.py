"""The deep small teacher of Pocket GLUE, and settings that are known to train it and its students.

Before the data stage of a training step. The teacher has many layers, because the tasks
compose in many steps, and is narrow, so that two cores train it in a minute or two. Recipes and the
quickstart read their numbers from here, so that they stand in one place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from transformers import BertConfig, ModernBertConfig, PretrainedConfig

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


def teacher_config(num_labels: int, *, pair: bool = False, **changes: Any) -> PretrainedConfig:
    """The configuration of the deep small teacher; one label means regression.

    Twelve layers of width 64, without dropout, because the data is generated without noise. Of one
    sentence ModernBERT's rotary positions learn scope and distance several times faster; for pairs
    BERT's token types, which ModernBERT has not, tell the sentences apart. `changes` override
    single fields.
    """
    settings: dict[str, Any] = {
        "vocab_size": len(vocabulary()),
        "hidden_size": 64,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "max_position_embeddings": MAX_LENGTH,
        # Narrow layers learn from scratch when they start close to, but not at, the identity.
        "initializer_range": 0.05,
        "num_labels": num_labels,
        **_special_ids(),
    }
    if num_labels == 1:
        settings["problem_type"] = "regression"
    if pair:
        dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return BertConfig(**{**settings, "intermediate_size": 128, **dropout, **changes})
    # Its feed-forward layers are gated: three matrices instead of two.
    gated = {
        "intermediate_size": 96,
        "local_attention": MAX_LENGTH,
        "global_attn_every_n_layers": 1,
    }
    return ModernBertConfig(**{**settings, **gated, **changes})


def _special_ids() -> dict[str, int]:
    names = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "bos": "[CLS]", "eos": "[SEP]"}
    return {f"{name}_token_id": SPECIAL_TOKENS.index(token) for name, token in names.items()}


# Epochs and rate of the teacher.
_TEACHERS = {
    "cola": (5, 1e-3), "sst2": (3, 1e-3), "mrpc": (8, 5e-4), "stsb": (5, 5e-4), "qqp": (4, 5e-4),
    "mnli": (4, 5e-4), "qnli": (4, 5e-4), "rte": (5, 5e-4), "wnli": (8, 5e-4),
}  # fmt: skip

RECOMMENDED: dict[str, Recommended] = {
    task: Recommended(Settings(epochs, lr), Settings(epochs=2, lr=1e-3))
    for task, (epochs, lr) in _TEACHERS.items()
}
"""By task name: settings of the teacher (from scratch) and of a student."""
