"""Last-token embedders with instructions teach encoders: their stored embeddings are those of sentence-transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tiny_embedders as tiny
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing

import tiny_runs
from limbeck import predict
from limbeck.outputs.cache import default_store
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from tiny_language_models import SMALL, byte_tokenizer

INSTRUCTION = "Instruct: Find a good film\nQuery:"
FAMILIES = {
    "qwen3": lambda: hf.Qwen3Model(hf.Qwen3Config(**SMALL, num_key_value_heads=1, head_dim=8)),
    "llama": lambda: hf.LlamaModel(hf.LlamaConfig(**SMALL)),
}


def save_teacher(folder: Path, family: str, side: str) -> Path:
    """As Qwen3-Embedding lies on the Hub: the text's end is a token that pads too, and queries have an instruction."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        FAMILIES[family]().save_pretrained(folder)
    words = byte_tokenizer()
    words.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", 1)]
    )
    words.save_pretrained(folder)
    place = folder / "tokenizer_config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"padding_side": side}))
    types = ("Transformer", "Pooling", "Normalize")
    paths = ("", "1_Pooling", "2_Normalize")
    content = {
        "modules.json": [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{one}"}
            for n, (one, path) in enumerate(zip(types, paths, strict=True))
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": 32, "pooling_mode_lasttoken": True,
                                  "pooling_mode_mean_tokens": False, "include_prompt": True},
        "config_sentence_transformers.json": {
            "prompts": {"query": INSTRUCTION, "document": ""}, "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "2_Normalize/config.json": {},
    }  # fmt: skip
    for name, value in content.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    return folder


def student(folder: Path) -> Path:
    """An encoder with words of its own, and room for the instruction."""
    settings = tiny.config(2)
    settings.max_position_embeddings = 160
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        hf.BertModel(settings).save_pretrained(folder)
    tiny_runs.tokenizer().save_pretrained(folder)
    return folder


def stored_embeddings() -> np.ndarray:
    (entry,) = default_store().entries()
    (shard,) = entry.outputs.shards
    with pa.memory_map(str(default_store().folder / entry.key / shard.name)) as source:
        table = pa.ipc.open_stream(source).read_all().to_pydict()
    return np.array(table["logits"])[np.argsort(table["index"])]


@pytest.mark.parametrize(("family", "side", "length"), [
    ("qwen3", "left", 128), ("qwen3", "right", 48), ("llama", "left", 48),
])  # fmt: skip
def test_stored_embeddings_are_those_of_sentence_transformers(
    family, side, length, tmp_path, monkeypatch
) -> None:
    """Texts of several lengths, some cut at `length`, in batches padded on either side; and the student learns."""
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    teacher = save_teacher(tmp_path / "teacher", family, side)
    texts = [*tiny.sentences(16, 5), " ".join(tiny.sentences(8, 6)), "a"]
    pairs = [*zip(texts, texts[::-1], strict=True)]
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps({"query": q, "positive": p}) + "\n" for q, p in pairs))
    settings = Recipe.load(
        "embedding-mse", teacher=str(teacher), data=str(data), dev=str(tiny.write_beir(tmp_path / "beir")),
        max_length=length, max_steps=30, batch_size=8, lr=1e-2, cache="always", precision="fp32",
        **{"student.init": str(student(tmp_path / "start"))},
    )  # fmt: skip
    run = distill(settings, out=tmp_path / "run", report=False)
    model = tiny.sentence_transformer(teacher)
    model.max_seq_length = length
    wanted = [
        model.encode([text], prompt_name=name)[0]
        for pair in pairs
        for text, name in zip(pair, ("query", "document"), strict=True)
    ]
    np.testing.assert_allclose(stored_embeddings(), wanted, atol=1e-5)
    losses = [epoch.train["loss"] for epoch in run.record.epochs]
    assert losses[-1] < losses[0]
    shipped = tiny.sentence_transformer(run.path / "student")
    assert shipped.prompts == {"query": INSTRUCTION, "document": ""}


def test_an_adapter_of_sentence_transformers_embeds_as_the_merged_model(tmp_path) -> None:
    """Its folder has the modules and the adapter; the base has the weights alone."""
    base = save_teacher(tmp_path / "base", "qwen3", "left")
    shutil.copytree(base, tmp_path / "merged")
    shutil.copytree(
        base, tmp_path / "adapter", ignore=shutil.ignore_patterns("model.*", "config.json")
    )
    (tmp_path / "adapter/1_Pooling/config.json").write_bytes(
        (base / "1_Pooling/config.json").read_bytes()
    )
    (base / "modules.json").unlink()
    layer, draw = "layers.1.mlp.up_proj", torch.Generator().manual_seed(3)
    first, second = torch.randn(2, 32, generator=draw), torch.randn(48, 2, generator=draw)
    named = {
        f"base_model.model.{layer}.lora_A.weight": first,
        f"base_model.model.{layer}.lora_B.weight": second,
    }
    save_file(named, tmp_path / "adapter/adapter_model.safetensors")
    settings = {"peft_type": "LORA", "task_type": "FEATURE_EXTRACTION", "r": 2, "lora_alpha": 4}
    content = json.dumps(settings | {"base_model_name_or_path": str(base)})
    (tmp_path / "adapter/adapter_config.json").write_text(content)
    weights = load_file(tmp_path / "merged/model.safetensors")
    for row in range(48):
        for rank in range(2):
            weights[f"{layer}.weight"][row] += 2 * second[row, rank] * first[rank]
    save_file(weights, tmp_path / "merged/model.safetensors", metadata={"format": "pt"})
    texts = tiny.sentences(6)
    wanted = tiny.sentence_transformer(tmp_path / "merged").encode(texts, prompt_name="query")
    rows = predict(tmp_path / "adapter", texts, output="embeddings", prompt="query")
    np.testing.assert_allclose([row["embedding"] for row in rows], wanted, atol=1e-5)
    plain = tiny.sentence_transformer(base).encode(texts, normalize_embeddings=True)
    assert not np.allclose(plain, wanted, atol=1e-2)


@pytest.mark.parametrize("biased", [(False, False), (True, False), (True, True)])
def test_two_linear_maps_are_read_as_one(biased, tmp_path) -> None:
    """As EmbeddingGemma has them, wider between; after them nothing but the division by the length."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import (
        Dense,
        Normalize,
        Pooling,
        Transformer,
    )

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = Transformer(str(tiny.encoder(tmp_path / "plain")))
        maps = [
            Dense(one, other, bias=bias, activation_function=torch.nn.Identity())
            for (one, other), bias in zip(((16, 40), (40, 12)), biased, strict=True)
        ]
        for one in maps:
            torch.nn.init.normal_(one.linear.weight, std=0.4)
    made = SentenceTransformer(modules=[encoder, Pooling(16, "mean"), *maps, Normalize()], device="cpu",
                               prompts={"query": "very ", "document": ""})  # fmt: skip
    made.save(str(tmp_path / "teacher"))
    texts = tiny.sentences(6)
    rows = predict(tmp_path / "teacher", texts, output="embeddings", prompt="query")
    wanted = made.encode(texts, prompt_name="query")
    np.testing.assert_allclose([row["embedding"] for row in rows], wanted, atol=1e-5)
    (place,) = (tmp_path / "teacher").glob("2_*/config.json")
    content = json.loads(place.read_text())
    place.write_text(
        json.dumps(content | {"activation_function": "torch.nn.modules.activation.Tanh"})
    )
    with pytest.raises(LimbeckError, match="Identity alone before another Dense"):
        predict(tmp_path / "teacher", texts, output="embeddings")
