"""Tiny models and tokenizers of every kind, and rows they read."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForTokenClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

TAGS = ("O", "B-PER", "I-PER", "B-LOC")
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ann", "##a", "##belle", "lee", "saw",
          "rome", ".", "who", "?", "the", "cat", "and", "in"]  # fmt: skip


def tokenizer(side: str = "right") -> PreTrainedTokenizerFast:
    """WordPiece, so that words may have several pieces."""
    ids = {piece: number for number, piece in enumerate(PIECES)}
    core = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, padding_side=side, pad_token="[PAD]", unk_token="[UNK]",
        cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


HEADS = {
    "tokens": BertForTokenClassification,
    "spans": BertForQuestionAnswering,
    "masked": BertForMaskedLM,
}


def model(
    kind: str,
    *,
    layers: int = 2,
    width: int = 16,
    heads: int = 2,
    seed: int = 0,
    scale: float = 3.0,
) -> Any:
    """A random model of a kind in eval mode; the caller's random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "text":
            config = T5Config(
                vocab_size=len(PIECES), d_model=width, d_kv=8, d_ff=24, num_heads=heads,
                num_layers=layers, num_decoder_layers=layers, decoder_start_token_id=0,
                pad_token_id=0, eos_token_id=3, dropout_rate=0.0, initializer_factor=scale,
            )  # fmt: skip
            return T5ForConditionalGeneration(config).eval()
        if kind == "causal-lm":
            decoder = LlamaConfig(
                vocab_size=len(PIECES), hidden_size=width, num_attention_heads=heads,
                intermediate_size=24, num_hidden_layers=layers, max_position_embeddings=64,
                initializer_range=0.3, pad_token_id=0, bos_token_id=2, eos_token_id=3,
            )  # fmt: skip
            return LlamaForCausalLM(decoder).eval()
        config = BertConfig(
            vocab_size=len(PIECES), hidden_size=width, num_attention_heads=heads,
            intermediate_size=24, num_hidden_layers=layers, max_position_embeddings=64,
            num_labels=len(TAGS) if kind == "tokens" else 2, initializer_range=0.3,
        )  # fmt: skip
        return HEADS[kind](config).eval()


def ids(*lengths: int, extra: int = 0, seed: int = 5) -> dict[str, torch.Tensor]:
    """Token ids without special ones, padded on the right, `extra` more than needed."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths)
    tokens = torch.randint(5, len(PIECES), (len(lengths), width), generator=generator)
    mask = torch.arange(width).expand(len(lengths), -1) < torch.tensor(lengths)[:, None]
    return {
        "input_ids": torch.nn.functional.pad(tokens * mask, (0, extra)),
        "attention_mask": torch.nn.functional.pad(mask.long(), (0, extra)),
        "index": torch.arange(len(lengths)),
    }


def labels(rows: list[list[int]], width: int) -> torch.Tensor:
    """Lists of labels as a tensor padded with -100."""
    return torch.tensor([row + [-100] * (width - len(row)) for row in rows])
