"""Decoders as classifiers: fine-tuned, distilled, predicted and exported; padding on either side changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf

import limbeck
import tiny_runs as tiny
from limbeck.labelling.model_labeller import ModelLabeller
from limbeck.support.errors import LimbeckError

SIZES = {
    "vocab_size": 14, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 64, "initializer_range": 0.4, "num_key_value_heads": 1,
}  # fmt: skip
CLASSES = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
FAMILIES = {
    "llama": hf.LlamaConfig(**SIZES, **CLASSES),
    "smollm": hf.LlamaConfig(**SIZES, tie_word_embeddings=True, **CLASSES),
    "qwen3": hf.Qwen3Config(**SIZES, head_dim=8, **CLASSES),
    "gemma": hf.GemmaConfig(**SIZES, head_dim=8, **CLASSES),
    "gemma3": hf.Gemma3TextConfig(**SIZES, head_dim=8, sliding_window=4, **CLASSES),
    "gpt2": hf.GPT2Config(
        vocab_size=14, n_embd=16, n_layer=3, n_head=2, n_positions=64, initializer_range=0.4, bos_token_id=0,
        eos_token_id=0, **CLASSES,
    ),
}  # fmt: skip
TEXTS = [*dict.fromkeys(tiny.sentences(8))]
TEXTS_AS_ROWS = [{"review": text} for text in TEXTS]


def classifier(family: str):
    """A random classifier whose configuration names no padding token, as those of most decoders."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return hf.AutoModelForSequenceClassification.from_config(FAMILIES[family]).eval()


def write_tokenizer(folder: Path, side: str) -> None:
    """Beside a model; transformers does not save the side that was set as an attribute."""
    tiny.tokenizer().save_pretrained(folder)
    place = folder / "tokenizer_config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"padding_side": side}))


def saved(family: str, folder: Path, side: str = "right") -> str:
    classifier(family).save_pretrained(folder)
    write_tokenizer(folder, side)
    return str(folder)


def alone(folder: str, texts=TEXTS) -> np.ndarray:
    """The logits of each text by itself, in transformers."""
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    words = tiny.tokenizer()
    with torch.no_grad():
        found = [
            model(**words(text, return_tensors="pt", return_token_type_ids=False)).logits[0]
            for text in texts
        ]
    return torch.stack(found).numpy()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", [*FAMILIES])
def test_padding_changes_nothing(family, side, tmp_path) -> None:
    """All texts in one batch, padded on this side, have the last token's logits that each has by itself."""
    folder = saved(family, tmp_path / "model", side)
    if (family, side) == ("gpt2", "left"):
        with pytest.raises(LimbeckError, match="pads on the left"):
            limbeck.label(folder, TEXTS_AS_ROWS, out=tmp_path / "store", text_columns=["review"])
        return
    settings = {"text_columns": ["review"], "batch_size": 16}
    store = limbeck.label(folder, TEXTS_AS_ROWS, out=tmp_path / "store", with_text=True,
                          outputs=["logits", "hidden:-1:last:float32"], **settings)  # fmt: skip
    (shard,) = (tmp_path / "store").glob("shard-*.parquet")
    from pyarrow import parquet

    table = parquet.read_table(shard).to_pydict()
    (text,) = {"review", "sentence", "text"} & {*table}
    wanted = dict(zip(TEXTS, alone(folder), strict=True))
    model, words = hf.AutoModel.from_pretrained(folder).eval(), tiny.tokenizer()
    (state,) = (name for name in table if name.startswith("hidden"))
    for row, logits, last in zip(table[text], table["logits"], table[state], strict=True):
        np.testing.assert_allclose(logits, wanted[row], atol=1e-4)
        with torch.no_grad():
            states = model(**words(row, return_tensors="pt", return_token_type_ids=False))
        np.testing.assert_allclose(last, states.last_hidden_state[0, -1], atol=1e-4)
    assert len(store) == len(TEXTS)


@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_without_a_padding_token_the_fix_is_said(family) -> None:
    words = tiny.tokenizer()
    words.pad_token = None
    with pytest.raises(LimbeckError, match="padding token"):
        ModelLabeller(classifier(family), words, name="x").score([{"sentence": "good"}])


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_last_token_embedder_embeds_as_sentence_transformers_does(side, tmp_path) -> None:
    """Each text by itself there, all in one batch here."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf.Qwen3Model(hf.Qwen3Config(**SIZES, head_dim=8)).save_pretrained(tmp_path / "model")
    write_tokenizer(tmp_path / "model", side)
    module = Transformer(str(tmp_path / "model"))
    made = SentenceTransformer(modules=[module, Pooling(16, "lasttoken")], device="cpu")
    made.save(str(tmp_path / "embedder"))
    wanted = [made.encode([text], show_progress_bar=False)[0] for text in TEXTS]
    found = limbeck.predict(tmp_path / "embedder", TEXTS, output="embeddings")
    np.testing.assert_allclose([row["embedding"] for row in found], wanted, atol=1e-4)


def test_an_embedder_of_chat_messages_is_refused(tmp_path) -> None:
    """sentence-transformers 6 writes texts as messages where the tokenizer has a chat template."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf.Qwen3Model(hf.Qwen3Config(**SIZES, head_dim=8)).save_pretrained(tmp_path / "model")
    write_tokenizer(tmp_path / "model", "right")
    (tmp_path / "model" / "chat_template.jinja").write_text(
        "{% for message in messages %}good {{ message['content'] }} bad{% endfor %}"
    )
    module, folder = Transformer(str(tmp_path / "model")), tmp_path / "embedder"
    made = SentenceTransformer(modules=[module, Pooling(16, "lasttoken")], device="cpu")
    made.save(str(folder))
    with pytest.raises(LimbeckError, match=r"chat messages \(modality_config"):
        limbeck.predict(folder, TEXTS, output="embeddings")
    settings = folder / "sentence_bert_config.json"
    said = json.loads(settings.read_text())
    del said["modality_config"]["message"]
    settings.write_text(json.dumps(said))
    plain = SentenceTransformer(str(folder), device="cpu")
    wanted, chat = (
        [one.encode([text], show_progress_bar=False)[0] for text in TEXTS] for one in (plain, made)
    )
    assert np.abs(np.subtract(wanted, chat)).max() > 0.1
    found = limbeck.predict(folder, TEXTS, output="embeddings")
    np.testing.assert_allclose([row["embedding"] for row in found], wanted, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES])
def test_a_decoder_is_fine_tuned_distilled_exported_and_predicts(family, tmp_path) -> None:
    """A layer method's student has, in torch and in ONNX, the logits that transformers gives each text by itself."""
    start = saved(family, tmp_path / "start", "right" if family == "gpt2" else "left")
    words, rows = tiny.WORDS[2:], []
    for at in range(120):
        text = f"{words[at % len(words)]} {words[at // len(words) % len(words)]} {['good', 'bad'][at % 2]}"
        rows.append({"review": text, "verdict": ["positive", "negative"][at % 2]})
    data = tmp_path / "rows.jsonl"
    unlike = {row["review"]: json.dumps(row) for row in rows}
    data.write_text("\n".join(unlike.values()))
    shared = {"data": str(data), "task": "own", "text_columns": ["review"], "label_column": "verdict",
              "epochs": 6, "batch_size": 12, "max_length": 16, "lr": 5e-3}  # fmt: skip
    teacher = limbeck.distill("finetune", student=start, out=str(tmp_path / "teacher"), **shared)
    run = limbeck.distill("alp-kd", teacher=str(teacher.path), out=str(tmp_path / "student"), **shared,
                          **{"student.layers": 2})  # fmt: skip
    student = str(run.path / "student")
    assert hf.AutoConfig.from_pretrained(student).num_hidden_layers == 2
    wanted = alone(student)
    made = limbeck.export(run.path, format="onnx")
    for folder, closeness in ((run.path, 1e-4), (made.path, 1e-3)):
        found = limbeck.predict(folder, TEXTS, output="logits")
        logits = [[row["logits"][name] for name in ("negative", "positive")] for row in found]
        np.testing.assert_allclose(logits, wanted, atol=closeness)
