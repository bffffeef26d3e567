"""A tiny WordPiece vocabulary, random masked language models of several families, and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as hf
from datasets import ClassLabel, Dataset, Features, Value
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "plot", "slow",
          "long", "end", "the", "a", "is", "and", ".", ",", "not", "1999", "fine", "##ly", "##est",
          "dull", "##ness", "joy", "ly", "funny"]  # fmt: skip
TEXTS = ["The good film is long .", "a slow plot and a bad end", "dullness , joy", "film",
         "Slowly the funny film is slow", "GOOD , good film", "it is not the longest plot ."]  # fmt: skip


def tokenizer() -> hf.PreTrainedTokenizerFast:
    """Lower case; words of several pieces, numbers, and the loose piece "ly"."""
    ids = {piece: number for number, piece in enumerate(PIECES)}
    core = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


_SIZES: dict[str, Any] = {
    "vocab_size": len(PIECES), "hidden_size": 16, "num_attention_heads": 2, "pad_token_id": 0,
    "intermediate_size": 24, "num_hidden_layers": 2, "max_position_embeddings": 40,
    "initializer_range": 0.5,
}  # fmt: skip
FAMILIES: dict[str, hf.PretrainedConfig] = {
    "bert": hf.BertConfig(**_SIZES),
    "roberta": hf.RobertaConfig(**_SIZES),
    "electra": hf.ElectraConfig(**_SIZES, embedding_size=16),
    "distilbert": hf.DistilBertConfig(
        vocab_size=len(PIECES), dim=16, n_heads=2, hidden_dim=24, n_layers=2, initializer_range=0.5,
        max_position_embeddings=40,
    ),
    "albert": hf.AlbertConfig(**_SIZES, embedding_size=8),
    "deberta-v2": hf.DebertaV2Config(**_SIZES),
    "modernbert": hf.ModernBertConfig(
        **_SIZES, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3
    ),
}  # fmt: skip


def model(family: str = "bert", seed: int = 0) -> hf.PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return hf.AutoModelForMaskedLM.from_config(FAMILIES[family]).eval()


def save(folder: Path) -> Path:
    model().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def rows(texts: list[str] = TEXTS, second: list[str] | None = None) -> Dataset:
    """Loaded rows of a task: text, a class, and numbers that do not begin at 0."""
    text = {"sentence": texts} if second is None else {"sentence1": texts, "sentence2": second}
    features = {name: Value("string") for name in text}
    return Dataset.from_dict(
        {
            **text,
            "label": [row % 2 for row in range(len(texts))],
            "index": [10 + 3 * row for row in range(len(texts))],
        },
        features=Features(
            features | {"label": ClassLabel(names=["no", "yes"]), "index": Value("int64")}
        ),
    )
