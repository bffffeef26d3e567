"""transformers.js reads exported folders: its tokens are those of transformers, its probabilities ours."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

from limbeck.exporting.export_model import export
from limbeck.exporting.shrink import shrink
from limbeck.runtimes.predictor import OnnxPredictor
from tokenizer_families import corpus, family

pytestmark = [pytest.mark.slow, pytest.mark.integration]
MODELS = {
    "bert-cased": (BertConfig, BertForSequenceClassification),
    "roberta": (RobertaConfig, RobertaForSequenceClassification),
    "xlm-roberta": (XLMRobertaConfig, XLMRobertaForSequenceClassification),
}
LABELS = ["bad", "good", "so-so"]
# The texts come as a file, so that no shell changes them.
SCRIPT = """
import { readFileSync } from "node:fs";
import { AutoTokenizer, env, pipeline } from "@huggingface/transformers";
const [folder, name, file] = process.argv.slice(2);
env.localModelPath = folder;
env.allowRemoteModels = false;
const texts = JSON.parse(readFileSync(file, "utf-8"));
const tokenizer = await AutoTokenizer.from_pretrained(name);
const classify = await pipeline("text-classification", name, { subfolder: "", dtype: "fp32" });
const found = [];
for (const text of texts) found.push([tokenizer.encode(text), await classify(text, { top_k: null })]);
console.log(JSON.stringify(found));
"""


@pytest.fixture(scope="module")
def in_node(tmp_path_factory):
    """`in_node(export, texts)`: each text's token ids and classes with their probabilities."""
    if not shutil.which("npm"):
        pytest.skip("node and npm are not installed")
    place = tmp_path_factory.mktemp("node")
    (place / "package.json").write_text('{"type": "module"}')
    # Its scripts would fetch CUDA's libraries.
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
    made = subprocess.run([*install, "@huggingface/transformers"], cwd=place, capture_output=True)
    if made.returncode:
        pytest.skip("npm cannot fetch @huggingface/transformers")
    (place / "read.mjs").write_text(SCRIPT)

    def read(exported: Path, texts: list[str]) -> list:
        (place / "texts.json").write_text(json.dumps(texts))
        ended = subprocess.run(
            ["node", "read.mjs", str(exported.parent), exported.name, "texts.json"],
            cwd=place, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    return read


@pytest.mark.parametrize("name", MODELS)
def test_a_student_of_fewer_tokens_answers_alike(name, in_node, tmp_path):
    torch.manual_seed(0)
    config, model = MODELS[name]
    tokenizer = family(name)
    shape = {
        "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 24,
        "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "initializer_range": 0.3,
        "id2label": dict(enumerate(LABELS)), "label2id": {label: at for at, label in enumerate(LABELS)},
    }  # fmt: skip
    model(config(**shape)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    texts = corpus()
    (tmp_path / "text.txt").write_text("\n".join(texts[:200]), encoding="utf-8")
    shrink(
        tmp_path / "model",
        data=str(tmp_path / "text.txt"),
        vocabulary="95%",
        out=tmp_path / "small",
    )
    rows = [{"text": text, "label": ("bad", "good")[at % 2]} for at, text in enumerate(texts[:20])]
    lines = "\n".join(map(json.dumps, rows))
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    unseen = texts[200:230]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "small")
    small = AutoModelForSequenceClassification.from_pretrained(tmp_path / "small").eval()
    for form in ("onnx", "onnx-int8"):
        place = tmp_path / form
        export(
            tmp_path / "small", "own", str(tmp_path), out=place, format=form, max_drop=100.0, text_columns=["text"],
            label_column="label",
        )  # fmt: skip
        read = in_node(place, unseen)
        assert [ids for ids, _ in read] == tokenizer(unseen)["input_ids"]
        if form == "onnx":
            with torch.inference_mode():
                logits = [
                    small(**tokenizer(text, return_tensors="pt")).logits[0] for text in unseen
                ]
        else:  # rows of a batch share the scale of their activations
            logits = map(torch.from_numpy, OnnxPredictor.load(place).logits(unseen, batch_size=1))
        for (_, classes), row in zip(read, logits, strict=True):
            given = {one["label"]: one["score"] for one in classes}
            expected = row.softmax(-1).tolist()
            assert [given[label] for label in LABELS] == pytest.approx(expected, abs=1e-4)
