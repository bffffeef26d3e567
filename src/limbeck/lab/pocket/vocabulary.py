"""The word-level tokenizer of Pocket GLUE: one token a word, nothing unknown.

Before the data stage of a training step. It is an ordinary fast tokenizer of transformers, built in
code: it saves, loads and pads like any other, and marks where a second text begins.
"""

from __future__ import annotations

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from limbeck.lab.pocket.lexicon import WORDS

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_LENGTH = 128
"""Longest sequence in tokens that the tokenizer and the teacher take, which is the usual length
limit of a GLUE run; every example is much shorter."""


def vocabulary() -> dict[str, int]:
    """Token to id: the special tokens first, then every word in alphabetical order."""
    return {token: index for index, token in enumerate((*SPECIAL_TOKENS, *WORDS))}


def tokenizer() -> PreTrainedTokenizerFast:
    """A fresh word-level tokenizer that knows every word Pocket GLUE can generate.

    It gives no token types, because the teacher takes none. Instead [MASK] opens the second text of
    a pair, so that a model need not count separators to tell the texts apart.
    """
    ids = vocabulary()
    core = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 [MASK]:1 $B:1 [SEP]:1",
        special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]", "[MASK]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=MAX_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
    )
