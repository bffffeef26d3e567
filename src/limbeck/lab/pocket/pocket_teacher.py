"""The deep small teacher of Pocket GLUE, and settings that are known to train it and its students.

Before the data stage of a training step. The teacher has many layers, because the tasks
compose in many steps, and is narrow, so that two cores train it in a minute or two. Recipes and the
quickstart read their numbers from here, so that they stand in one place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from transformers import ModernBertConfig, PretrainedConfig

from limbeck.lab.pocket.vocabulary import MAX_LENGTH, SPECIAL_TOKENS, vocabulary


class PocketSettings(NamedTuple):
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

    teacher: PocketSettings
    student: PocketSettings


def teacher_config(num_labels: int, **changes: Any) -> PretrainedConfig:
    """The configuration of the deep small teacher; one label means regression.

    A ModernBERT of twelve layers of width 64, without dropout, because the data is generated
    without noise. Its rotary positions learn scope and distance several times faster than learned
    positions do, also between two texts. `changes` override single fields.
    """
    settings: dict[str, Any] = {
        "vocab_size": len(vocabulary()),
        "hidden_size": 64,
        # The feed-forward layers are gated: three matrices instead of two.
        "intermediate_size": 96,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "max_position_embeddings": MAX_LENGTH,
        "local_attention": MAX_LENGTH,
        "global_attn_every_n_layers": 1,
        # Narrow layers learn from scratch when they start close to, but not at, the identity.
        "initializer_range": 0.05,
        "num_labels": num_labels,
        **_special_ids(),
    }
    if num_labels == 1:
        settings["problem_type"] = "regression"
    return ModernBertConfig(**{**settings, **changes})


def _special_ids() -> dict[str, int]:
    names = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "bos": "[CLS]", "eos": "[SEP]"}
    return {f"{name}_token_id": SPECIAL_TOKENS.index(token) for name, token in names.items()}


_SINGLE, _PAIR = 32, 16
"""Rows in a batch. Comparing two texts takes more steps to learn than reading one."""

_FAST, _SLOW = 1e-3, 5e-4
"""Peak rates. Where a pair is told by what lies deep in it, twelve layers lose their way at the first."""

# Epochs of the teacher, rows in a batch, the teacher's rate.
_TEACHERS = {
    "cola": (5, _SINGLE, _FAST), "sst2": (3, _SINGLE, _FAST), "mrpc": (5, _PAIR, _SLOW),
    "stsb": (3, _PAIR, _FAST), "qqp": (3, _PAIR, _SLOW), "mnli": (3, _PAIR, _SLOW),
    "qnli": (2, _PAIR, _FAST), "rte": (3, _PAIR, _FAST), "wnli": (3, _PAIR, _FAST),
    "ner": (3, _SINGLE, _FAST), "squad": (4, _PAIR, _FAST), "mlm": (5, _SINGLE, _FAST),
}  # fmt: skip

RECOMMENDED: dict[str, Recommended] = {
    task: Recommended(
        PocketSettings(epochs, lr=lr, batch_size=rows),
        PocketSettings(epochs=2, lr=_FAST, batch_size=rows),
    )
    for task, (epochs, rows, lr) in _TEACHERS.items()
}
"""By task name: settings of the teacher (from scratch) and of a student."""
