"""Which tokenizer and which model from scratch a pocket task takes, by its kind.

Before the data stage of a training step. Text to text has a vocabulary of its own: the words of the
prompts, class names and numbers, and an encoder and a decoder.
"""

from typing import Any, NamedTuple

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import ModernBertConfig, PretrainedConfig, PreTrainedTokenizerFast, T5Config

from limbeck.lab.pocket.lexicon import MAX_LENGTH, SPECIAL_TOKENS, WORDS, tokenizer, vocabulary
from limbeck.students.shapes import TOY_MODELS, ToyModels
from limbeck.tasks.task import TASKS, Task
from limbeck.tasks.text import TEXT

# The deep small teacher of Pocket GLUE, and settings that are known to train it and its students.


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
"""Peak rates. If a pair's label depends on deep structure, twelve layers diverge at the first."""

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


_PAD, _UNKNOWN, _END = TEXT_TOKENS = ("<pad>", "<unk>", "</s>")

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
    # A vocabulary needs no labels; two are transformers' default for a head.
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
    return {token: index for index, token in enumerate((*TEXT_TOKENS, *words))}


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
        "pad_token_id": TEXT_TOKENS.index(_PAD),
        "eos_token_id": TEXT_TOKENS.index(_END),
        "decoder_start_token_id": TEXT_TOKENS.index(_PAD),
    }
    return T5Config(**{**settings, **changes})


TOY_MODELS.register("pocket")(ToyModels(config_of, tokenizer_of))
