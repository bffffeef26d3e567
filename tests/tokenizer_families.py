"""Tiny tokenizers of many families, trained on made-up words of many scripts."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer
from transformers import (
    AlbertTokenizer,
    BertTokenizer,
    DebertaV2Tokenizer,
    GemmaTokenizer,
    GPT2Tokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
    RobertaTokenizer,
    T5Tokenizer,
    XLMRobertaTokenizer,
)

SYLLABLES = [
    "ba ke li mo nu pra ster ing ed ly un re tion",
    "é ça über groß naï ñan",
    "ма мы ра си ли ко ва",
    "λλη νι κά ος",
    "של ום עו לם",
    "مر حبا سل ام",
    "हि न्दी नम स्ते",
    "東 京 大 学 日 本 語 の は",
    "한 국 어 안 녕",
    "ไท ย สวั สดี",
    "😀 🎬 👍🏽",
]
MARKS = ["!", "...", "don't", "C++", "12", "2026", "‘so’", "a_b/c", "  ", "\t", "ﬁ", "Å"]


def texts(count: int, seed: int = 0) -> list[str]:
    """Texts of words of one script each, some of them frequent, with marks between them."""
    chance = random.Random(seed)
    words = [
        "".join(chance.choices(script.split(), k=chance.randint(1, 4)))
        for script in SYLLABLES
        for _ in range(30)
    ]
    words += [word.capitalize() for word in words[:20]]
    frequent = [1 / (1 + place % 30) for place in range(len(words))]
    return [
        " ".join(chance.choices(words, frequent, k=8) + chance.choices(MARKS, k=1))
        for _ in range(count)
    ]


@functools.cache
def corpus() -> list[str]:
    return texts(600)


def _trained(tokenizer: Any, size: int = 900) -> Any:
    return tokenizer.train_new_from_iterator(iter(corpus()), size)


def _content(tokenizer: Any) -> dict[str, Any]:
    return json.loads(tokenizer.backend_tokenizer.to_str())


def _with_bytes(family: Any) -> Any:
    """As sentencepiece's BPE: a token for each byte, behind the special tokens."""
    model = _content(_trained(family()))["model"]
    special = [one for one in model["vocab"] if one.startswith("<")]
    listed = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    listed += [one for one in model["vocab"] if one not in special]
    merges = [tuple(pair) for pair in model["merges"]]
    return family(vocab={one: at for at, one in enumerate(listed)}, merges=merges)


def _llama_3() -> Any:
    """Whole words are looked up before they are merged, and special tokens stand behind the vocabulary."""
    content = _content(_trained(Qwen2Tokenizer()))
    content["model"]["ignore_merges"] = True
    # A word that no merges lead to.
    content["model"]["vocab"]["Ġprakelimo"] = len(content["model"]["vocab"])
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(content)))
    made.add_special_tokens(
        {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
    )
    return made


FAMILIES: dict[str, Callable[[], Any]] = {
    "bert-uncased": lambda: _trained(BertTokenizer()),
    "bert-cased": lambda: _trained(BertTokenizer(do_lower_case=False)),
    "gpt2": lambda: _trained(GPT2Tokenizer()),
    "roberta": lambda: _trained(RobertaTokenizer()),
    "qwen": lambda: _trained(Qwen2Tokenizer()),
    "llama-3": _llama_3,
    "llama-2": lambda: _with_bytes(LlamaTokenizer),
    "gemma": lambda: _with_bytes(GemmaTokenizer),
    "xlm-roberta": lambda: _trained(XLMRobertaTokenizer()),
    "t5": lambda: _trained(T5Tokenizer(extra_ids=5)),
    "albert": lambda: _trained(AlbertTokenizer()),
    "deberta-v3": lambda: _trained(DebertaV2Tokenizer()),
}


@functools.cache
def family(name: str) -> Any:
    return FAMILIES[name]()
