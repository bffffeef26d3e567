"""A tiny tokenizer, rows, and a teacher that is right by construction."""

from __future__ import annotations

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
)

from limbeck.support.errors import Problem
from limbeck.tasks import get_task

SST2 = get_task("sst2")
WORDS = ["good", "bad", "film", "plot", "very", "a"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def tokenizer(words: list[str] = WORDS, special: list[str] = SPECIAL) -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def config(**changes) -> BertConfig:
    settings = {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "vocab_size": 10,
        "pad_token_id": 0,
        "max_position_embeddings": 16,
        "id2label": {0: "negative", 1: "positive"},
    }
    return BertConfig(**(settings | changes))


def model(**changes) -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(config(**changes)).eval()


def knowing_teacher(swapped: bool = False, **changes) -> BertForSequenceClassification:
    """A teacher that is right by construction: attention carries `good` or `bad` to the head."""
    teacher = model(**changes)
    with torch.no_grad():
        for weight in teacher.parameters():
            weight.zero_()
        for module in teacher.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
        # Attention is uniform (queries and keys are zero); values carry the embedding on to [CLS].
        embeddings = teacher.bert.embeddings.word_embeddings.weight
        embeddings[4, 0], embeddings[5, 0] = 1.0, -1.0  # good, bad
        for layer in teacher.bert.encoder.layer:
            layer.attention.self.value.weight.copy_(torch.eye(16))
            layer.attention.output.dense.weight.copy_(torch.eye(16))
        teacher.bert.pooler.dense.weight.copy_(torch.eye(16))
        sign = -1.0 if swapped else 1.0
        teacher.classifier.weight[0, 0], teacher.classifier.weight[1, 0] = -sign, sign
    return teacher


def rows(count: int = 40, what: str = "film", **changes) -> Dataset:
    columns = {
        "sentence": [f"a {'good' if row % 2 else 'bad'} {what}" for row in range(count)],
        "label": [row % 2 for row in range(count)],
        "index": list(range(count)),
    }
    return Dataset.from_dict(columns | changes)


def words_of(problems: list[Problem]) -> str:
    return " | ".join(f"{problem.severity}: {problem}" for problem in problems)


BATCH = {
    "input_ids": torch.tensor([[2, 4, 6, 3], [2, 5, 3, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "labels": torch.tensor([1, 0]),
}
