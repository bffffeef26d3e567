"""Tokenizers unlike BERT's: no padding id in the configuration, bytes, too many tokens, a limit of their own."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForTokenClassification,
    FNetConfig,
    FNetForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForSequenceClassification,
    XLMConfig,
    XLMForSequenceClassification,
)

import tiny_runs as tiny
from limbeck import LimbeckError, label, predict
from limbeck.exporting.export_model import export
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.scoring import evaluate

TEXTS = tiny.sentences(5)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> str:
    """A classifier of a decoder whose configuration leaves out `pad_token_id`, as Qwen3's does."""
    config = Qwen3Config(
        vocab_size=14, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=64, initializer_range=0.5,
        id2label={0: "negative", 1: "positive"}, label2id={"negative": 0, "positive": 1},
    )  # fmt: skip
    assert config.pad_token_id is None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForSequenceClassification(config)
    return str(tiny.save(model, tmp_path_factory.mktemp("decoder") / "model"))


def logits_alone(folder: str) -> list[list[float]]:
    """Each text by itself, which needs no padding."""
    model = Qwen3ForSequenceClassification.from_pretrained(folder).eval()
    words = tiny.tokenizer()
    with torch.no_grad():
        return [model(**words(text, return_tensors="pt", return_token_type_ids=False)).logits[0].tolist()
                for text in TEXTS]  # fmt: skip


def test_a_decoder_without_a_padding_id_is_read_in_batches(decoder) -> None:
    found = predict(decoder, TEXTS, output="logits", keep="none")
    for row, logits in zip(found, logits_alone(decoder), strict=True):
        assert [*row["logits"].values()] == pytest.approx(logits, abs=1e-5)


def test_a_student_of_such_a_decoder_has_one(decoder, tmp_path) -> None:
    data = tiny.write_csv(tmp_path / "rows.csv", 40)
    shape = {"text_columns": ["review"], "label_column": "verdict", "max_steps": 1}
    recipe = Recipe.load(
        "finetune", task="own", data=str(data), max_length=24,
        **{"student.init": decoder, "student.layers": 1}, **shape,
    )  # fmt: skip
    run = distill(recipe, out=tmp_path / "run", report=False)
    config = json.loads((run.path / "student/config.json").read_text())
    assert config["pad_token_id"] == tiny.tokenizer().pad_token_id
    student = str(run.path / "student")
    found = predict(run.path, TEXTS, output="logits", keep="none")
    for row, logits in zip(found, logits_alone(student), strict=True):
        assert [*row["logits"].values()] == pytest.approx(logits, abs=1e-5)


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused_everywhere(tmp_path) -> None:
    model = tiny.bert(1, vocab_size=12)
    folder = str(tiny.save(model, tmp_path / "model"))
    data = tiny.write_csv(tmp_path / "rows.csv", 8)
    named = {"text_columns": ["review"], "label_column": "verdict"}
    for command in (
        lambda: predict(folder, TEXTS),
        lambda: evaluate(folder, data=str(data), **named),
        lambda: export(folder, data=str(data), out=tmp_path / "onnx", **named),
        lambda: label(folder, str(data), out=tmp_path / "store", text_columns=["review"]),
    ):
        with pytest.raises(LimbeckError, match="ids reach 13, the embeddings 11"):
            command()


def test_the_tokenizers_own_limit_counts_where_the_model_has_more_positions(tmp_path) -> None:
    """As transformers' pipelines and sentence-transformers cut texts."""
    model, words = tiny.bert(1, max_position_embeddings=40, initializer_range=0.5), tiny.tokenizer()
    words.model_max_length = 8
    model.save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    text = "good film bad plot very slow the end a long film"
    (found,) = predict(str(tmp_path / "model"), [text], output="logits", keep="none")
    with torch.no_grad():
        cut = model.eval()(**words(text, truncation=True, return_tensors="pt")).logits[0]
    assert [*found["logits"].values()] == pytest.approx(cut.tolist(), abs=1e-5)


# ---- models that nobody can look into, or that see padding ----


def test_a_model_without_one_stack_of_layers_predicts_and_labels(tmp_path) -> None:
    """XLM keeps its layers in four lists: its logits are asked for all the same."""
    shape = {"vocab_size": 14, "emb_dim": 16, "n_layers": 2, "n_heads": 2, "pad_index": 0}
    model = XLMForSequenceClassification(XLMConfig(**shape, max_position_embeddings=32)).eval()
    folder = str(tiny.save(model, tmp_path / "model"))
    batch = tiny.tokenizer()(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**batch).logits.numpy()
    found = predict(folder, TEXTS, output="logits", keep="none")
    given = np.array([[*row["logits"].values()] for row in found])
    np.testing.assert_allclose(given, expected, atol=1e-5)
    (tmp_path / "rows.csv").write_text("\n".join(["text", *TEXTS]))
    store = label(folder, str(tmp_path / "rows.csv"), out=tmp_path / "store", outputs=["logits"])
    assert store.manifest.rows.count == len(TEXTS)
    with pytest.raises(LimbeckError, match="holds several stacks"):
        predict(folder, TEXTS, output="embeddings")


def test_a_model_that_reads_padding_as_text_is_said_to(tmp_path, caplog) -> None:
    shape = {"vocab_size": 14, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 24}
    model = FNetForSequenceClassification(FNetConfig(**shape, pad_token_id=0))
    predict(str(tiny.save(model, tmp_path / "model")), TEXTS)
    assert "reads padding as text" in caplog.text


# ---- bytes ----


def byte_level() -> PreTrainedTokenizerFast:
    """A tokenizer of bytes whose words begin with the space before them, as GPT-2's."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {piece: number for number, piece in enumerate(["<s>", "</s>", "<pad>", *alphabet])}
    merges = []
    for word in ("Ġfilm", "Ġrome"):
        for end in range(2, len(word) + 1):
            ids.setdefault(word[:end], len(ids))
            merges.append((word[: end - 1], word[end - 1]))
    core = Tokenizer(models.BPE(ids, merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[("<s>", 0), ("</s>", 1)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def decided_by_film(kind, **labels):
    """A model whose largest outputs stand at the token " film", by construction."""
    words = byte_level()
    config = BertConfig(
        vocab_size=len(words), hidden_size=4, num_attention_heads=1, intermediate_size=4,
        num_hidden_layers=1, max_position_embeddings=64, **labels,
    )  # fmt: skip
    model = kind(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        for name, weight in model.named_parameters():
            if "LayerNorm.weight" in name:
                weight.fill_(1.0)
        model.bert.embeddings.word_embeddings.weight[words.convert_tokens_to_ids("Ġfilm"), 0] = 1.0
        head = model.qa_outputs if hasattr(model, "qa_outputs") else model.classifier
        head.weight[-1, 0] = 5.0
        if hasattr(model, "qa_outputs"):
            head.weight[0, 0] = 5.0
    return model, words


def test_answers_and_entities_begin_behind_the_space(tmp_path) -> None:
    """By hand: in "ann saw the film in rome" the film stands from 12 to 16."""
    text = "ann saw the film in rome"
    model, words = decided_by_film(BertForQuestionAnswering)
    model.save_pretrained(tmp_path / "spans")
    words.save_pretrained(tmp_path / "spans")
    (found,) = predict(str(tmp_path / "spans"), [{"question": "what", "context": text}])
    assert (found["prediction"], found["start"], found["end"]) == ("film", 12, 16)
    model, words = decided_by_film(
        BertForTokenClassification, id2label={0: "O", 1: "B-X"}, label2id={"O": 0, "B-X": 1}
    )
    model.save_pretrained(tmp_path / "tokens")
    words.save_pretrained(tmp_path / "tokens")
    (found,) = predict(str(tmp_path / "tokens"), [text])
    assert found["prediction"] == [{"label": "X", "text": "film", "start": 12, "end": 16}]
