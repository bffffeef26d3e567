"""Tiny sentence embedders, folders of sentence-transformers, sentences, and pairs with a similarity."""

from __future__ import annotations

import csv
import json
import random
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers as hf

import tiny_runs as tiny
from limbeck.embedding import SENTENCE_EMBEDDERS


def config(layers: int, width: int = 16, **changes: Any) -> hf.BertConfig:
    words = len(tiny.SPECIAL) + len(tiny.WORDS)
    # The usual 0.02 makes all sentences of a tiny model nearly alike.
    return hf.BertConfig(
        hidden_size=width, num_attention_heads=2, intermediate_size=24, num_hidden_layers=layers,
        vocab_size=words, max_position_embeddings=24, pad_token_id=0, initializer_range=0.3, **changes,
    )  # fmt: skip


def encoder(folder: Path, layers: int = 4, width: int = 16) -> Path:
    """A plain encoder's folder, without anything of sentence-transformers'."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf.BertModel(config(layers, width)).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def embedder(layers: int = 4, width: int = 16, seed: int = 0) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SENTENCE_EMBEDDERS.from_config(config(layers, width)).eval()


def sentences(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(tiny.WORDS, k=draw.randint(2, 7))) for _ in range(count)]


def write_sentences(path: Path, count: int = 40) -> Path:
    path.write_text("\n".join(sentences(count)) + "\n", encoding="utf-8")
    return path


def pairs(count: int = 12) -> list[tuple[str, str, float]]:
    """Two sentences and the share of their words that both have, 0 to 5."""
    first, second = sentences(count, 1), sentences(count, 2)
    second[::3] = [f"{text} film" for text in first[::3]]
    words = [(set(a.split()), set(b.split())) for a, b in zip(first, second, strict=True)]
    return [
        (a, b, round(5 * len(x & y) / len(x | y), 3))
        for a, b, (x, y) in zip(first, second, words, strict=True)
    ]


def write_pairs(path: Path, count: int = 12) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter="\t")
        writer.writerow(["sentence1", "sentence2", "score"])
        writer.writerows(pairs(count))
    return path


def sentence_transformer(folder: Path, **settings: Any) -> Any:
    """The folder as sentence-transformers loads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, of its own parts
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), device="cpu", **settings)


def write_beir(folder: Path, split: str = "dev", queries: int = 6, passages: int = 30) -> Path:
    """Queries that share words with what answers them, in BEIR's layout; two passages have one text."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = sentences(passages, 4)
    corpus[1] = corpus[0]
    asked = {f"q{n}": " ".join([*corpus[3 * n].split()[:3], "film"]) for n in range(queries)}
    found = {f"d{n}": text for n, text in enumerate(corpus)}
    for name, texts in (("queries", asked), ("corpus", found)):
        lines = [json.dumps({"_id": one, "text": text}) for one, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [f"q{n}\td{place}\t1" for n in range(queries) for place in (3 * n, 3 * n + 1 + n % 2)]
    rows.append("q0\td9\t0")
    head = "query-id\tcorpus-id\tscore"
    (folder / "qrels" / f"{split}.tsv").write_text(
        "\n".join([head, *rows]) + "\n", encoding="utf-8"
    )
    return folder


def found_by_sentence_transformers(
    model: Path, beir: Path, function: str = "cosine"
) -> dict[str, float]:
    """What its own evaluator says of a folder's retrieval, by our names of metrics, times 100."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers.sentence_transformer.evaluation import (
            InformationRetrievalEvaluator,
        )
    texts = {}
    for name in ("queries", "corpus"):
        lines = (beir / f"{name}.jsonl").read_text("utf-8").splitlines()
        texts[name] = {row["_id"]: row["text"] for row in map(json.loads, lines)}
    judged = [line.split("\t") for line in (beir / "qrels/dev.tsv").read_text().splitlines()]
    right = {
        q: {d for one, d, grade in judged[1:] if one == q and grade == "1"}
        for q in texts["queries"]
    }
    evaluator = InformationRetrievalEvaluator(
        texts["queries"], texts["corpus"], right,
        mrr_at_k=[10], ndcg_at_k=[10], precision_recall_at_k=[10, 100], write_csv=False,
    )  # fmt: skip
    found = evaluator(sentence_transformer(model))
    return {
        name.removeprefix(f"{function}_"): 100 * value
        for name, value in found.items()
        if name.startswith(f"{function}_")
    }
