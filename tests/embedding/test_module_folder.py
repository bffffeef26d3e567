"""sentence-transformers' folders read in both layouts, written in the older, and refused where they hold more."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import tiny_embedders as tiny
import torch
from transformers import AutoTokenizer

from limbeck import predict
from limbeck.embedding import SENTENCE_EMBEDDERS, SentenceEmbedders
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError
from limbeck.tasks import EMBEDDING, kind_of_config


def saved(folder, plain, *, pooling="mean", dense=0, normalize=True, prompts=None):
    """A folder as sentence-transformers itself writes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import (
            Dense,
            Normalize,
            Pooling,
            Transformer,
        )

        parts = [Transformer(str(plain)), Pooling(16, pooling)]
        parts += [Dense(16, dense, activation_function=torch.nn.Tanh())] if dense else []
        parts += [Normalize()] if normalize else []
        model = SentenceTransformer(modules=parts, prompts=prompts or {}, device="cpu")
        model.save(str(folder))
    return model


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return tiny.encoder(tmp_path_factory.mktemp("plain"), layers=2)


CASES = [("mean", 0, True), ("cls", 0, False), ("lasttoken", 6, True)]


@pytest.mark.parametrize(("pooling", "dense", "normalize"), CASES)
def test_their_folder_gives_their_embeddings_and_ours_too(
    pooling, dense, normalize, plain, tmp_path
):
    theirs = saved(tmp_path / "a", plain, pooling=pooling, dense=dense, normalize=normalize)
    texts = tiny.sentences(6)
    batch = AutoTokenizer.from_pretrained(plain)(texts, return_tensors="pt", padding=True)
    expected = theirs.encode(texts)
    source = str(tmp_path / "a")
    for step in ("as they wrote it", "as limbeck wrote it"):
        model = load_model(source, head="required", auto=SENTENCE_EMBEDDERS)
        with torch.no_grad():
            np.testing.assert_allclose(
                model(**batch).logits.numpy(), expected, atol=1e-5, err_msg=step
            )
        model.save_pretrained(tmp_path / "b")
        tiny.tiny.tokenizer().save_pretrained(tmp_path / "b")
        source = str(tmp_path / "b")
    np.testing.assert_allclose(tiny.sentence_transformer(source).encode(texts), expected, atol=1e-5)


def test_numbers_that_a_folder_leaves_out_are_left_out(plain, tmp_path):
    """Behind all else, the division by the length too, as sentence-transformers does."""
    theirs = saved(tmp_path / "a", plain)
    theirs.truncate_dim = 5
    theirs.save(str(tmp_path / "a"))
    texts = tiny.sentences(6)
    rows = predict(str(tmp_path / "a"), texts, output="embeddings")
    expected = tiny.sentence_transformer(tmp_path / "a").encode(texts)
    assert expected.shape == (6, 5)
    np.testing.assert_allclose([row["embedding"] for row in rows], expected, atol=1e-5)
    model = load_model(str(tmp_path / "a"), auto=SENTENCE_EMBEDDERS)
    assert model.embedding_width == 5
    model.save_pretrained(tmp_path / "b")
    tiny.tiny.tokenizer().save_pretrained(tmp_path / "b")
    again = tiny.sentence_transformer(tmp_path / "b").encode(texts)
    np.testing.assert_allclose(again, expected, atol=1e-5)


def test_the_configuration_says_that_it_embeds(plain, tmp_path):
    model = load_model(str(plain), auto=SENTENCE_EMBEDDERS)
    model.save_pretrained(tmp_path / "b")
    assert kind_of_config(model.config) is EMBEDDING
    content = json.loads((tmp_path / "b" / "config.json").read_text("utf-8"))
    assert content["architectures"] == ["BertModel"]
    # What the folder lists counts, whatever an older configuration says.
    content["sentence_embedding"]["pooling"] = "cls"
    (tmp_path / "b" / "config.json").write_text(json.dumps(content), "utf-8")
    assert load_model(str(tmp_path / "b"), auto=SENTENCE_EMBEDDERS).behind.pooling == "mean"


def test_prompts_travel_with_the_model(plain, tmp_path):
    saved(tmp_path / "a", plain, prompts={"query": "good: "})
    model = load_model(str(tmp_path / "a"), auto=SENTENCE_EMBEDDERS)
    model.save_pretrained(tmp_path / "b")
    tiny.tiny.tokenizer().save_pretrained(tmp_path / "b")
    assert tiny.sentence_transformer(tmp_path / "b").prompts["query"] == "good: "


def test_settings_are_for_folders_that_do_not_say(plain, tmp_path):
    assert load_model(str(plain), auto=SentenceEmbedders("cls", False)).behind.pooling == "cls"
    saved(tmp_path / "a", plain)
    with pytest.raises(LimbeckError, match="is an embedding model with pooling mean"):
        load_model(str(tmp_path / "a"), auto=SentenceEmbedders("cls"))


@pytest.mark.parametrize(("file", "content", "message"), [
    ("modules.json", [{"type": "x.Transformer", "path": ""}], "is made of Transformer"),
    ("modules.json", [{"type": "x.CLIPModel", "path": ""}], "is made of CLIPModel"),
    ("modules.json", {}, "not as sentence-transformers writes it"),
    ("1_Pooling/config.json", {"pooling_mode": "max"}, "pools by max"),
    ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "pools by mean and cls"),
])  # fmt: skip
def test_other_modules_are_refused(file, content, message, plain, tmp_path):
    saved(tmp_path / "a", plain)
    (tmp_path / "a" / file).write_text(json.dumps(content), "utf-8")
    with pytest.raises(LimbeckError, match=message):
        load_model(str(tmp_path / "a"), auto=SENTENCE_EMBEDDERS)


def test_modules_outside_the_folder_are_refused(plain, tmp_path):
    saved(tmp_path / "a", plain)
    listed = json.loads((tmp_path / "a" / "modules.json").read_text("utf-8"))
    listed[1]["path"] = "../1_Pooling"
    (tmp_path / "a" / "modules.json").write_text(json.dumps(listed), "utf-8")
    with pytest.raises(LimbeckError, match=r"\.\./1_Pooling"):
        load_model(str(tmp_path / "a"), auto=SENTENCE_EMBEDDERS)
