"""Which tokenizer and which model from scratch a pocket task takes, by its kind.

Before the data stage of a training step. Text to text has a vocabulary of its own: the words of the
prompts, class names and numbers, and an encoder and a decoder.
"""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PretrainedConfig, PreTrainedTokenizerFast, T5Config

from limbeck.lab.pocket.lexicon import WORDS
from limbeck.lab.pocket.pocket_teacher import PocketSettings, teacher_config
from limbeck.lab.pocket.vocabulary import MAX_LENGTH, tokenizer
from limbeck.students.shapes import TOY_MODELS, ToyModels
from limbeck.tasks.task import TASKS, Task
from limbeck.tasks.text import TEXT

_PAD, _UNKNOWN, _END = SPECIAL_TOKENS = ("<pad>", "<unk>", "</s>")

TEXT_TEACHER = PocketSettings(epochs=3, lr=1e-3, batch_size=16)
TEXT_STUDENT = PocketSettings(epochs=2, lr=1e-3, batch_size=16)
"""How to train a text-to-text model on any pocket task: the teacher from scratch, and a student."""


def tokenizer_of(task: Task) -> PreTrainedTokenizerFast:
    """A fresh tokenizer that knows every word the task's model reads or writes."""
    return text_tokenizer() if task.kind is TEXT else tokenizer()


def config_of(
    task: Task, *, layers: int | None = None, width: int | None = None, heads: int | None = None
) -> PretrainedConfig:
    """The configuration of the deep small teacher of the task, or in another shape.

    An encoder-decoder's `layers` are its encoder's. Feed-forward layers stay as wide as they are
    in proportion.
    """
    if task.kind is TEXT:
        changes = {"num_layers": layers, "d_model": width, "num_heads": heads}
        if width is not None and heads is not None:
            changes |= {"d_ff": 2 * width, "d_kv": width // heads}
        return text_config(**_given(changes))
    changes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    if width is not None:
        changes |= {"intermediate_size": 3 * width // 2}
    # A vocabulary needs no labels; two are what transformers gives a head by itself.
    return teacher_config(len(task.kind.head_labels(task) or ("", "")), **_given(changes))


def _given(changes: dict[str, int | None]) -> dict[str, int]:
    return {key: value for key, value in changes.items() if value is not None}


def text_vocabulary() -> dict[str, int]:
    """Token to id: special tokens, then prompts, class names, numbers and words, sorted."""
    written = {
        *TASKS,
        *(f"{column}:" for task in TASKS.values() for column in task.text_columns),
        *(label for task in TASKS.values() for label in task.kind.row_classes(task)),
        *(f"{fifth / 5:.1f}" for fifth in range(26)),
    }
    words = sorted(written | set(WORDS))
    return {token: index for index, token in enumerate((*SPECIAL_TOKENS, *words))}


def text_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer that ends a text with </s>, as T5's does."""
    ids = text_vocabulary()
    core = Tokenizer(models.WordLevel(ids, unk_token=_UNKNOWN))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single=f"$A {_END}", pair=f"$A {_END} $B {_END}", special_tokens=[(_END, ids[_END])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=_PAD,
        unk_token=_UNKNOWN,
        eos_token=_END,
        model_max_length=MAX_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
    )


def text_config(**changes: Any) -> T5Config:
    """A small T5: six layers read, two write. `changes` override single fields."""
    settings: dict[str, Any] = {
        "vocab_size": len(text_vocabulary()),
        "d_model": 64,
        "d_kv": 8,
        "d_ff": 128,
        "num_layers": 6,
        "num_decoder_layers": 2,
        # A head knows places only by one learned number for each distance, in all layers the
        # same: many narrow heads, with a number of its own for each distance up to 16.
        "num_heads": 8,
        "relative_attention_num_buckets": 64,
        "relative_attention_max_distance": MAX_LENGTH,
        # Generated without noise, the data need no dropout.
        "dropout_rate": 0.0,
        "feed_forward_proj": "gated-gelu",
        "pad_token_id": SPECIAL_TOKENS.index(_PAD),
        "eos_token_id": SPECIAL_TOKENS.index(_END),
        "decoder_start_token_id": SPECIAL_TOKENS.index(_PAD),
    }
    return T5Config(**{**settings, **changes})


TOY_MODELS.register("pocket")(ToyModels(config_of, tokenizer_of))
