"""Folders that limbeck or Hugging Face wrote, and someone changed: checkpoints, records, stored outputs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attacks.case import Case

_FILES: dict[str, str | bytes] = {
    "nothing": "",
    "cut": "{",
    "a list": "[1]",
    "null": "null",
    "text": '"x"',
    "nested too deep": "[" * 50_000,
    "a number of 5,000 digits": '{"a": ' + "9" * 5000 + "}",
    "bytes": b"\xff\xfe\x00",
}
_ENTRIES = {
    "hidden_size": (0, -1, "wide", 10**12, None, 7, [8], 1.5),
    "num_hidden_layers": (0, -1, "three", 10**9, None, 2.5),
    "num_attention_heads": (0, -1, "two", None, 3),
    "vocab_size": (0, -1, "all", 3),
    "model_type": ("none-such", 3, None, ""),
    "architectures": ("x", [3], ["NoSuchModel"]),
    "id2label": ([], {"a": "b"}, {"0": 3}, "x"),
    "hidden_act": ("none", 3),
    "max_position_embeddings": (0, 1, "x"),
    "pad_token_id": (99, -5, "x"),
    "intermediate_size": (0, "x"),
    "torch_dtype": ("float7", 3),
}


def _checkpoint(folder: Path) -> Path:
    """A tiny model and its tokenizer, without training."""
    from transformers import BertConfig, BertForSequenceClassification

    from limbeck.lab.pocket.lexicon import tokenizer

    words = tokenizer()
    config = BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        vocab_size=len(words), id2label={0: "entailment", 1: "not_entailment"},
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def checkpoints(folder: Path) -> Iterator[Case]:
    """A teacher's folder with one file that is broken."""
    good = _checkpoint(folder / "good")

    def case(name: str, change: Any) -> Case:
        path = folder / str(abs(hash(name)))
        shutil.copytree(good, path)
        change(path)
        out = str(folder / "out" / path.name)
        line = ("distill", "kd", "--task", "rte", "--data", "pocket", "--teacher", str(path))
        return Case(name, (*line, "--out", out, "--max-steps", "1"))

    def written(file: str, content: str | bytes) -> Any:
        raw = content if isinstance(content, bytes) else content.encode()
        return lambda path: (path / file).write_bytes(raw)

    def changed(entry: str, value: object) -> Any:
        def change(path: Path) -> None:
            config = json.loads((path / "config.json").read_text())
            (path / "config.json").write_text(json.dumps(config | {entry: value}))

        return change

    for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        for name, content in _FILES.items():
            yield case(f"{file}: {name}", written(file, content))
    for entry, values in _ENTRIES.items():
        for value in values:
            yield case(f"config.json: {entry}: {value!r}", changed(entry, value))
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        yield case(f"without {file}", lambda path, file=file: (path / file).unlink())

    def cut(path: Path) -> None:
        weights = path / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])

    yield case("model.safetensors: without its end", cut)


def _record(**changes: object) -> dict[str, Any]:
    plain = {
        "schema": 1, "status": "finished", "kind": "distill", "method": "kd", "task": "rte", "data": "d", "seed": 1,
        "scores": {"dev": {"accuracy": 70.0, "primary": 70.0}}, "recipe": {"epochs": 3, "student": {"layers": 2}},
        "examples": {"train": 10, "dev": 10},
    }  # fmt: skip
    return plain | changes


_RECIPES: dict[str, object] = {
    "a list": [1], "text": "x", "epochs that are text": {"epochs": "many"}, "epochs that are a list": {"epochs": [1]},
    "max_steps that is a group": {"max_steps": {}}, "a student that is a list": {"student": [1]},
    "a student that is text": {"student": "x"}, "layers that are text": {"student": {"layers": "x"}},
    "layers that are a group of text": {"student": {"layers": {"a": "b"}}},
    "init that is a list": {"student": {"init": [1]}},
    "a first stage that is text": {"first_stage": "x", "epochs": 1},
    "noise that is text": {"label_noise": "x"}, "max_length that is a list": {"max_length": [1]},
}  # fmt: skip


def records(folder: Path) -> Iterator[Case]:
    """`table` and `evaluate` on records that are none, or odd."""
    for name, content in _FILES.items():
        home = folder / f"file {name}"
        home.mkdir()
        raw = content if isinstance(content, bytes) else content.encode()
        (home / "record.json").write_bytes(raw)
        yield Case(f"table: {name}", ("table", str(home)))
        yield Case(f"evaluate: {name}", ("evaluate", str(home)))
    odd = {
        **{f"a recipe: {name}": {"recipe": recipe} for name, recipe in _RECIPES.items()},
        "scores that are text": {"scores": "x"}, "a score that is text": {"scores": {"dev": {"primary": "x"}}},
        "no scores": {"scores": {}}, "a seed that is text": {"seed": "x"}, "a schema to come": {"schema": 9},
        "a schema that is text": {"schema": "1"}, "no method": {"method": None}, "a task that is a list": {"task": []},
        "half a surrogate pair": {"task": "\ud800"}, "a status of its own": {"status": "fine"},
        "a number of 400 digits": {"seed": 10**400}, "epochs that are text": {"epochs": "x"},
    }  # fmt: skip
    for name, changes in odd.items():
        home = folder / f"odd {name}"
        home.mkdir()
        (home / "record.json").write_text(json.dumps(_record(**changes)))
        yield Case(f"table: {name}", ("table", str(home)))
        yield Case(f"evaluate: {name}", ("evaluate", str(home)))
    (folder / "good").mkdir()
    (folder / "good" / "record.json").write_text(json.dumps(_record()))
    for line in (
        ("--profile", "none"),
        ("--baseline", "none"),
        ("--format", "none"),
        ("--columns", "none"),
    ):
        yield Case(f"table {line[0]}", ("table", str(folder / "good"), *line))
    os.mkfifo(folder / "good" / "pipe.json")
    yield Case("a pipe for a record", ("table", str(folder / "good" / "pipe.json")))


def caches(folder: Path) -> Iterator[Case]:
    """The folder of stored outputs: a key that is none, and entries whose description is broken."""
    home = Path(os.environ["LIMBECK_CACHE"])
    for name, content in _FILES.items():
        entry = home / f"{abs(hash(name)):x}"
        entry.mkdir(parents=True, exist_ok=True)
        (entry / "shard-00000.arrow").write_bytes(b"x")
        raw = content if isinstance(content, bytes) else content.encode()
        (entry / "manifest.json").write_bytes(raw)
        yield Case(f"list, manifest.json: {name}", ("outputs", "list"), warned="nothing is stored")
        yield Case(f"clear, manifest.json: {name}", ("outputs", "clear", entry.name))
    for key in ("none", "..", "/", "[/t]", "*"):
        yield Case(f"clear {key}", ("outputs", "clear", key))
