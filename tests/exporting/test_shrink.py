"""`limbeck shrink`: a model and its tokenizer with fewer tokens, without training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoImageProcessor,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMultipleChoice,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    CanineConfig,
    CanineModel,
    CanineTokenizer,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)
from typer.testing import CliRunner

from image_sets import image_processor
from limbeck import students
from limbeck.cli.app import app
from limbeck.data.text_rows import read_text_rows
from limbeck.exporting.shrink import _weighed, shrink
from limbeck.support.errors import LimbeckError
from tiny_language_models import save_language_model
from tokenizer_families import corpus, family


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A model of half precision, its tokenizer and two texts."""
    folder = tmp_path_factory.mktemp("shrink")
    torch.manual_seed(0)
    tokenizer = family("bert-cased")
    shape = {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 24,
    }
    numbers = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    labels = {"id2label": {0: "bad", 1: "good", 2: "so-so"}}
    model = BertForSequenceClassification(BertConfig(**shape, **numbers, **labels))
    model.to(torch.bfloat16).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "text.txt").write_text("\n".join(corpus()[:200]), encoding="utf-8")
    (folder / "other.txt").write_text("\n".join(corpus()[200:300]), encoding="utf-8")
    return folder


def test_texts_beyond_the_positions_of_the_model_are_cut(place, tmp_path):
    (tmp_path / "long.txt").write_text("word " * 40 + "\n", encoding="utf-8")
    model = AutoModelForSequenceClassification.from_pretrained(place / "model").float()
    short = BertConfig(**model.config.to_dict() | {"max_position_embeddings": 12})
    BertForSequenceClassification(short).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(place / "model").save_pretrained(tmp_path / "model")
    data = [str(tmp_path / "long.txt")]
    found = shrink(tmp_path / "model", tmp_path / "out", layers=1, pick="importance", data=data)
    assert len(found.layers["main"]) == 1


def test_the_command_says_what_it_kept_and_transformers_reads_it(place, tmp_path):
    out = tmp_path / "small"
    line = ["shrink", str(place / "model"), "--vocabulary", "97%", "--out", str(out)]
    line += ["--data", str(place / "text.txt"), "--also", str(place / "other.txt")]
    ended = CliRunner().invoke(app, line)
    assert ended.exit_code == 0, ended.output
    said = json.loads((out / "shrunk-model.json").read_text())
    said = said["vocabulary"]
    assert f"Tokens:  {said['after']} of {said['before']} tokens" in ended.stdout
    assert "other.txt" in ended.stdout
    assert 0.97 <= said["texts"]["text.txt"]["coverage"] < 1
    models, tokenizers = (
        [reads.from_pretrained(folder) for folder in (place / "model", out)]
        for reads in (AutoModelForSequenceClassification, AutoTokenizer)
    )
    assert len(tokenizers[1]) == said["after"] < len(tokenizers[0])
    assert models[1].dtype == torch.bfloat16
    assert models[1].config.id2label == models[0].config.id2label
    compared = 0
    for text in corpus()[:40]:
        if tokenizers[0].tokenize(text) != tokenizers[1].tokenize(text):
            continue
        logits = [
            model.eval()(**tokenizer(text, return_tensors="pt")).logits
            for model, tokenizer in zip(models, tokenizers, strict=True)
        ]
        assert torch.equal(*logits)
        compared += 1
    assert compared > 10
    # A table of so many bytes in this precision.
    limit = f"{said['megabytes_after'] + 0.00001:.6f}MB"
    found = shrink(
        place / "model", out, vocabulary=limit, data=str(place / "text.txt"), overwrite=True
    )
    assert found.vocabulary.after == said["after"]


def test_folders_that_are_not_free_are_refused(place, tmp_path):
    given = {"vocabulary": "corpus", "data": str(place / "text.txt")}
    with pytest.raises(LimbeckError, match="holds no shrunk-model"):
        shrink(place / "model", place / "model", **given)
    shrink(place / "model", tmp_path / "small", **given)
    with pytest.raises(LimbeckError, match="would be replaced"):
        shrink(place / "model", tmp_path / "small", **given)
    with pytest.raises(LimbeckError, match=r"nothing to shrink[\s\S]*one of layers, hidden, "):
        shrink(place / "model", tmp_path / "other", data=str(place / "text.txt"), pick="first")
    with pytest.raises(LimbeckError, match="data is missing"):
        shrink(place / "model", tmp_path / "other", vocabulary="corpus")
    with pytest.raises(
        LimbeckError, match=r"12 ?GB(?s:.*)write .*megabytes of embeddings \(12MB\)"
    ):
        shrink(place / "model", tmp_path / "other", **given | {"vocabulary": "12 GB"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layers": 0}, "^layers is 0: input should be greater than 0"),
        ({"layers": [1], "pick": "importance", "data": "text.txt"}, "^pick importance: it chooses"),
        ({"ffn": 8, "pick": "last", "data": "text.txt"}, "^pick last: it chooses layers"),
        ({"vocabulary": "101%"}, "vocabulary is '101%': no size of a vocabulary"),
        ({"vocabulary": "0.0%"}, "vocabulary is '0.0%': no size of a vocabulary"),
        ({"ffn": 8, "task": "ss2", "data": "text.txt"}, "^unknown task 'ss2'[\\s\\S]*sst2"),
        ({"layers": 1, "data": "text.txt"}, "^data: these sizes do not depend on text"),
        ({"heads": 1, "data": "text.txt", "also": "other.txt"}, "^also: these sizes do not"),
        ({"vocabulary": "90%", "data": "text.txt", "also": "lost.txt"}, "no such file"),
    ],
)
def test_settings_that_cannot_be_or_do_nothing_are_refused_before_a_model_is_read(
    given, said, place, tmp_path, monkeypatch
):
    monkeypatch.chdir(place)
    monkeypatch.setattr("limbeck.students.load_model", lambda _: pytest.fail("a model was read"))
    with pytest.raises(LimbeckError, match=said) as caught:
        shrink(place / "model", tmp_path / "small", **given)
    assert len(caught.value.problems) == 1


def test_sizes_are_named_as_they_are_given(place, tmp_path):
    data = [str(place / "text.txt")]
    with pytest.raises(LimbeckError, match=r"^heads: 5, and the model") as caught:
        shrink(place / "model", tmp_path / "small", heads=5, data=data)
    assert "student." not in str(caught.value)


def test_a_file_instead_of_a_model_is_refused(place, tmp_path):
    with pytest.raises(LimbeckError, match=r"no config\.json in it"):
        shrink(place / "text.txt", tmp_path / "small", layers=1)


def test_files_of_one_name_are_both_told(place, tmp_path):
    also = tmp_path / "text.txt"
    also.write_text("\n".join(corpus()[200:300]), encoding="utf-8")
    data = place / "text.txt"
    found = shrink(
        place / "model", tmp_path / "out", vocabulary="90%", data=[str(data)], also=[str(also)]
    )
    assert [*found.vocabulary.texts] == ["text.txt", str(also)]


def test_every_one_of_many_files_is_weighed(place, tmp_path):
    names = [str(tmp_path / f"{number}.txt") for number in range(300)]
    for name, text in zip(names, corpus(), strict=False):
        Path(name).write_text(text, encoding="utf-8")
    model = students.load_model(place / "model")
    rows = [read_text_rows(name) for name in names]
    assert len([*_weighed(rows, model, AutoTokenizer.from_pretrained(place / "model"))]) == 300


def test_small_models_have_sizes_in_words(place, tmp_path):
    data = str(place / "text.txt")
    found = shrink(place / "model", tmp_path / "out", vocabulary="90%", data=data)
    before, after = found.parameters
    assert found.said == f"{after / 1e3:.1f}K of {before / 1e3:.1f}K parameters"
    read = found.vocabulary
    size = f"{read.after * 32 / 1e3:.1f}KB of {read.before * 32 / 1e3:.1f}KB of embeddings"
    assert size in read.said  # bfloat16


@pytest.mark.parametrize("sizes", [{"layers": 1, "pick": "importance"}, {"ffn": 8}])
def test_a_model_that_generates_from_an_encoder_is_weighed_on_text_alone(place, tmp_path, sizes):
    tokenizer = family("t5")
    config = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
        pad_token_id=tokenizer.pad_token_id, decoder_start_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    shrink(tmp_path / "model", tmp_path / "out", data=str(place / "text.txt"), **sizes)
    small = T5ForConditionalGeneration.from_pretrained(tmp_path / "out")
    assert (small.config.num_layers, small.config.d_ff) == (
        (1, 24) if "layers" in sizes else (2, 8)
    )


def test_a_tokenizer_of_another_model_is_refused(place, tmp_path):
    model = AutoModelForSequenceClassification.from_pretrained(place / "model")
    tokenizer = AutoTokenizer.from_pretrained(place / "model")
    tokenizer.add_tokens(["zebrafinch"])
    for one in (model, tokenizer):
        one.save_pretrained(tmp_path / "model")
    ids = f"reach {len(tokenizer) - 1}, the embeddings {model.config.vocab_size - 1}"
    with pytest.raises(LimbeckError, match=ids):
        shrink(tmp_path / "model", tmp_path / "small", layers=1)
    assert not (tmp_path / "small").exists()


def test_depth_width_and_vocabulary_are_cut_by_one_command(place, tmp_path):
    out = tmp_path / "small"
    line = ["shrink", str(place / "model"), "--out", str(out), "--data", str(place / "text.txt")]
    line += ["--layers", "1", "--pick", "importance", "--heads", "1", "--ffn", "8"]
    ended = CliRunner().invoke(app, [*line, "--vocabulary", "97%"])
    assert ended.exit_code == 0, ended.output
    model = AutoModelForSequenceClassification.from_pretrained(out)
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    assert [getattr(model.config, size) for size in sizes] == [1, 8, 1, 8]
    said = json.loads((out / "shrunk-model.json").read_text())
    assert model.config.vocab_size == said["vocabulary"]["after"]
    assert said["parameters"][1] == sum(weight.numel() for weight in model.parameters())
    assert f"kept layer {said['layers']['main'][0]}; heads 1; ffn 8" in " ".join(
        ended.stdout.split()
    )
    assert model.dtype == torch.bfloat16


def test_listed_layers_need_no_text(place, tmp_path):
    shrink(place / "model", tmp_path / "small", layers=[2])
    wide, small = (
        AutoModelForSequenceClassification.from_pretrained(folder).bert.encoder.layer
        for folder in (place / "model", tmp_path / "small")
    )
    assert torch.equal(small[0].output.dense.weight, wide[1].output.dense.weight)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2"])
def test_a_language_model_predicts_the_tokens_that_stay_as_before(name, tmp_path):
    """Logits of the tokens that stay, for a text that is encoded as before."""
    save_language_model(tmp_path / "model", name)
    (tmp_path / "text.txt").write_text("a good day\na good night\n")
    shrink(
        tmp_path / "model", tmp_path / "small", vocabulary="100", data=str(tmp_path / "text.txt")
    )
    folders = (tmp_path / "model", tmp_path / "small")
    models = [AutoModelForCausalLM.from_pretrained(one).eval() for one in folders]
    tokenizers = [AutoTokenizer.from_pretrained(one) for one in folders]
    assert len(tokenizers[1]) == models[1].config.vocab_size <= 100 < len(tokenizers[0])
    assert tokenizers[1].chat_template == tokenizers[0].chat_template
    given = [words("tiny words", return_tensors="pt")["input_ids"] for words in tokenizers]
    assert [len(ids[0]) for ids in given] == [10, 10]
    with torch.no_grad():
        before, after = (
            model(input_ids=ids).logits for model, ids in zip(models, given, strict=True)
        )
    old, new = (words.get_vocab() for words in tokenizers)
    ours, theirs = (after[..., [*new.values()]], before[..., [old[one] for one in new]])
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    said = models[1].generate(given[1], max_new_tokens=4, do_sample=False)
    assert said.shape[1] > 10


def test_words_that_were_tagged_are_text_to_shrink_to(place, tmp_path):
    """In CoNLL's columns and as lists, as data for a tagger are written."""
    words = [text.split() for text in corpus()[:30]]
    (tmp_path / "rows.conll").write_text(
        "\n\n".join("\n".join(f"{word} O" for word in row) for row in words)
    )
    lines = (json.dumps({"tokens": row, "tags": ["O"] * len(row)}) for row in words)
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    (tmp_path / "rows.txt").write_text("\n".join(map(" ".join, words)))
    for name in ("rows.conll", "rows.jsonl", "rows.txt"):
        (texts,) = read_text_rows(tmp_path / name).take(np.arange(30)).values()
        assert texts == [" ".join(row) for row in words]
    data = [str(tmp_path / "rows.conll")]
    found = shrink(place / "model", tmp_path / "out", vocabulary="corpus", data=data)
    assert found.vocabulary is not None and found.vocabulary.after < found.vocabulary.before


def test_images_have_no_text_to_shrink_by(tmp_path):
    shape = {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 8, "patch_size": 4}
    model = ViTForImageClassification(ViTConfig(**shape, num_hidden_layers=3, image_size=8))
    model.save_pretrained(tmp_path / "model")
    image_processor(8).save_pretrained(tmp_path / "model")
    with pytest.raises(LimbeckError, match="reads images, and only layers"):
        shrink(tmp_path / "model", tmp_path / "out", ffn=4, data=["x.txt"])
    assert shrink(tmp_path / "model", tmp_path / "out", layers=2).layers["main"] == [1, 2]
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path / "out")
    assert loaded.config.num_hidden_layers == 2
    pixels = torch.rand(1, 3, 8, 8)
    first = model.vit.eval()(pixels, output_hidden_states=True).hidden_states[1]
    theirs = loaded.vit.eval()(pixels, output_hidden_states=True).hidden_states[1]
    assert torch.equal(first, theirs)
    assert AutoImageProcessor.from_pretrained(tmp_path / "out").size["height"] == 8


@pytest.mark.parametrize("of", [BertModel, BertForPreTraining, BertForMultipleChoice])
def test_a_model_keeps_its_own_class_and_head(place, tmp_path, of):
    """A drawn classification head was written in their place."""
    config = AutoModelForSequenceClassification.from_pretrained(place / "model").config
    torch.manual_seed(0)
    model = of(config).eval()
    model.save_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(place / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    data = [str(place / "text.txt")]
    found = shrink(tmp_path / "model", tmp_path / "out", vocabulary="corpus", data=data)
    assert found.vocabulary is not None and found.vocabulary.after < found.vocabulary.before
    smaller, told = of.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    text, kept = corpus()[0], AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = [one(text, return_tensors="pt")["input_ids"] for one in (tokenizer, kept)]
    if of is BertForMultipleChoice:
        ids = [one[None] for one in ids]
    theirs, ours = (
        one(input_ids=numbers)[-1]
        for one, numbers in zip((model, smaller.eval()), ids, strict=True)
    )
    torch.testing.assert_close(theirs, ours)


def test_a_folder_without_a_tokenizer_is_refused(place, tmp_path):
    """transformers makes one of five special tokens, to which every word is unknown."""
    config = AutoModelForSequenceClassification.from_pretrained(place / "model").config
    BertModel(config).save_pretrained(tmp_path / "model")
    data = [str(place / "text.txt")]
    with pytest.raises(LimbeckError, match="the tokenizer's files are missing"):
        shrink(tmp_path / "model", tmp_path / "out", vocabulary="corpus", data=data)


def test_unknown_tokens_are_said(place, tmp_path):
    (tmp_path / "signs.txt").write_text("\N{SNOWMAN} \N{COMET}\n" * 3, encoding="utf-8")
    data, also = [str(place / "text.txt")], [str(tmp_path / "signs.txt")]
    out = tmp_path / "out"
    found = shrink(place / "model", out, vocabulary="corpus", data=data, also=also)
    assert "signs.txt 2.0 tokens a text (before: 2.0; unknown: 6 in all, before: 6)" in (
        found.vocabulary.lengths
    )
    assert "unknown" not in found.vocabulary.lengths.split("signs.txt")[0]


def test_a_model_without_a_table_of_tokens_loses_layers(tmp_path):
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    config = CanineConfig(num_hidden_layers=3, num_hash_functions=2, num_hash_buckets=32, **shape)
    CanineModel(config).save_pretrained(tmp_path / "model")
    CanineTokenizer().save_pretrained(tmp_path / "model")
    found = shrink(tmp_path / "model", tmp_path / "out", layers=2)
    assert len(found.layers["main"]) == 2
    assert AutoModel.from_pretrained(tmp_path / "out").config.num_hidden_layers == 2
    data = [str(tmp_path / "x.txt")]
    (tmp_path / "x.txt").write_text("text\n")
    with pytest.raises(LimbeckError, match="has no pieces"):
        shrink(tmp_path / "model", tmp_path / "out2", vocabulary="corpus", data=data)
