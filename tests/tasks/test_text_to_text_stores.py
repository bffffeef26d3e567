"""Stores of a text-to-text teacher: kept tokens at every token of a target, and students that learn from them."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

import kind_models as tiny
from limbeck import label
from limbeck.data.row_ids import row_ids
from limbeck.functional.partial_logits import KeptTokens
from limbeck.outputs.cache import default_store
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.store import open_store
from limbeck.outputs.writer import copy_store
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError

V = len(tiny.PIECES)
DATA = {"text_columns": ["t"], "label_column": "y"}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def data(place) -> str:
    return str(place["text"][0])


@pytest.fixture(scope="module")
def labelled(teachers, data, tmp_path_factory):
    """`labelled("top3@2")`: the store of the fine-tuned teacher's outputs about all rows."""
    folder, made = tmp_path_factory.mktemp("stores"), {}

    def store(tokens: str):
        if tokens not in made:
            out, teacher = folder / tokens, teachers["text"].path
            made[tokens] = label(teacher, data, outputs=[f"logits:{tokens}"], out=out, **DATA)
        return made[tokens]

    return store


@pytest.fixture
def run(settings, teachers, tmp_path):
    """`run("name", "top3", outputs=[…])`: KD of an epoch at temperature 2; without outputs the teacher is live."""

    def train(name, tokens, **changes):
        given = settings("text", epochs=1, **{"objectives.soft.temperature": 2.0})
        if "outputs" not in changes:
            given |= {"teacher": str(teachers["text"].path), "cache": "never"}
        given |= {"objectives.soft.tokens": tokens} | changes
        return distill(Recipe.load("kd", **given), out=tmp_path / name, report=False)

    return train


def weights(result) -> dict[str, torch.Tensor]:
    return load_file(result.path / "student" / "model.safetensors")


def test_the_student_is_the_one_that_the_live_teacher_makes(run, labelled, monkeypatch):
    store = labelled("top3@2")
    live = run("live", "top3")

    def refuse(*args, **kwargs):
        raise AssertionError("a teacher's model was loaded")

    monkeypatch.setattr(import_module("limbeck.students"), "load_model", refuse)
    stored = run("stored", "top3", outputs=[store.files.url])
    losses = [[epoch.train for epoch in one.record.epochs] for one in (stored, live)]
    for ours, theirs in zip(*losses, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    for name, value in weights(stored).items():
        torch.testing.assert_close(value, weights(live)[name], atol=2e-4, rtol=2e-3, msg=name)
    assert stored.record.scores == live.record.scores
    (facts,) = stored.record.outputs
    assert facts.about["tokens"] == {"kept": "top3@2", "vocabulary": V} and not facts.scores


@pytest.mark.slow
def test_what_a_training_stored_of_a_vocabulary_travels(run, labelled, teachers, tmp_path):
    """A copy of its entry is the store that `label` makes, to rounding, and teaches the same student."""
    kept = {"teacher": str(teachers["text"].path), "cache": "always"}
    first = run("first", "top3", **kept)
    (entry,) = default_store().entries()
    copy_store(open_store(entry.path), StoreFiles(str(tmp_path / "copy")))
    copied, told = open_store(tmp_path / "copy"), labelled("top3@2")
    ids = copied.row_ids
    assert copied.manifest.tokens == told.manifest.tokens and set(ids) <= set(told.row_ids)
    assert copied.manifest.rows.columns == told.manifest.rows.columns
    one, other = copied.take(ids), told.take(ids)
    for name in one:
        for ours, theirs in zip(one[name], other[name], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    second = run("second", "top3", outputs=[str(tmp_path / "copy")])
    assert second.record.scores == first.record.scores
    for name, value in weights(first).items():
        torch.testing.assert_close(value, weights(second)[name], atol=2e-4, rtol=2e-3, msg=name)


def logits_of(teacher, text: str, target: str) -> torch.Tensor:
    """Hugging Face's own forward pass of one example, at the target's tokens."""
    words = tiny.tokenizer()
    model = AutoModelForSeq2SeqLM.from_pretrained(teacher.path / "student").eval()
    ids = words([f"own sentence: {text}"], return_tensors="pt")
    with torch.no_grad():
        return model(**ids, labels=words([target], return_tensors="pt")["input_ids"]).logits[0]


def test_the_store_holds_what_the_model_says_of_a_text_and_its_target(labelled, teachers):
    """Token by token, sorted by hand."""
    text, target = "the cat saw lee in rome .", "the"
    store = labelled("top3@2")
    assert store.manifest.rows.target and store.manifest.rows.columns == ("t", "target")
    assert [column.name for column in store.columns] == [
        "logits-ids",
        "logits-values",
        "logits-rest",
    ]
    kept = {name: value[0] for name, value in store.take(row_ids([[text], [target]])).items()}
    shares = (logits_of(teachers["text"], text, target) / 2.0).double().softmax(-1).tolist()
    assert kept["logits-ids"].shape == (len(shares), 3)
    for place, share in enumerate(shares):
        top = sorted(range(V), key=lambda token: -share[token])[:3]
        assert kept["logits-ids"][place].tolist() == top
        assert np.exp(kept["logits-values"][place]) == pytest.approx(
            [share[n] for n in top], rel=1e-4
        )
        rest = sum(share[token] for token in range(V) if token not in top)
        assert np.exp(kept["logits-rest"][place]) == pytest.approx(rest, rel=1e-3)


def test_sampled_tokens_follow_from_the_row_alone(labelled, teachers, run, tmp_path, data):
    """Those of an example are the same in whatever batch and shard, and counts add up to their number."""
    store = labelled("sample6@2")
    again = label(
        teachers["text"].path, data, outputs=["logits:sample6@2"], out=tmp_path / "again",
        batch_size=3, shard_rows=2, **DATA,
    )  # fmt: skip
    ids = np.sort(store.row_ids)
    one, other = (found.take(ids) for found in (store, again))
    for name in ("logits-ids", "logits-values"):
        assert all((a == b).all() for a, b in zip(one[name], other[name], strict=True))
    assert all((counts.sum(-1) == 6).all() for counts in one["logits-values"])
    text, target = "ann saw rome .", "and"
    number = row_ids([[text], [target]])
    logits = logits_of(teachers["text"], text, target)
    by_hand = KeptTokens("sample", 6, 2.0).of(logits[None], number.tolist())
    assert store.take(number)["logits-ids"][0].tolist() == by_hand.ids[0].tolist()
    assert run("stored", "sample6", outputs=[again.files.url]).record.status == "finished"


def test_rows_of_one_text_and_other_targets_are_others(teachers, tmp_path):
    rows = [("ann saw rome .", "and"), ("ann saw rome .", "the"), ("ann saw rome .", "and")]
    lines = [json.dumps({"t": text, "y": target}) for text, target in rows]
    (tmp_path / "own.jsonl").write_text("\n".join(lines), encoding="utf-8")
    store = label(
        teachers["text"].path, tmp_path / "own.jsonl", outputs=["logits:top2"],
        out=tmp_path / "store", with_text=True, **DATA,
    )  # fmt: skip
    assert len(store) == 2
    (table,) = store.tables()
    assert sorted(zip(*(table[name].to_pylist() for name in ("t", "target")), strict=True)) == [
        ("ann saw rome .", "and"), ("ann saw rome .", "the"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"objectives.soft.tokens": "top4"}, "(?s)looks at top4@2 .* keeps top3@2.*soft.tokens=top3"),
        ({"objectives.soft.tokens": None}, "looks at all logits .* keeps top3@2"),
        ({"objectives.soft.temperature": 1.0}, "temperature=2, or label again .*logits:top3"),
        ({"task": "others"}, "prompts of .* begin with 'own'"),
        ({"kind": "sentence"}, "is of task type text"),
    ],
)  # fmt: skip
def test_a_store_that_does_not_serve_is_refused(run, labelled, changes, words):
    with pytest.raises(LimbeckError, match=words):
        run("refused", "top3", **({"outputs": [labelled("top3@2").files.url]} | changes))


def test_terms_that_read_all_logits_are_refused(labelled, settings, tmp_path):
    given = settings("text", outputs=[labelled("top3@2").files.url])
    with pytest.raises(LimbeckError, match=r"logit_mse reads all logits, and .* keeps top3@2"):
        distill(Recipe.load("logit-mse", **given), out=tmp_path / "run", report=False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"outputs": ["logits"]}, "(?s)logits of teacher .*choices: logits:topK"),
        ({"outputs": ["logits:top3", "logits:sample3"]}, "keeps one part of its logits"),
        ({"outputs": [f"logits:top{V + 1}"]}, f"vocabulary has {V} tokens"),
        ({"to": "labels.csv"}, "no labels to write"),
        ({"unlabelled": ["more.txt"]}, "each token of a row's target"),
    ],
)
def test_what_cannot_be_labelled_is_refused(teachers, data, tmp_path, given, words):
    asked = {"outputs": ["logits:top3"], "out": tmp_path / "store"} | given
    with pytest.raises(LimbeckError, match=words):
        label(teachers["text"].path, data, **DATA, **asked)
    assert not (tmp_path / "store").exists()


def test_a_store_of_another_tokenizer_is_refused(run, labelled, place, tmp_path):
    model = tmp_path / "model"
    AutoModelForSeq2SeqLM.from_pretrained(place["text"][1]).save_pretrained(model)
    other = tiny.tokenizer()
    other.add_tokens(["paris"])
    other.save_pretrained(model)
    changes = {"outputs": [labelled("top3@2").files.url], "student.init": str(model)}
    with pytest.raises(LimbeckError, match="another tokenizer than the student's"):
        run("refused", "top3", **changes)


def test_stores_without_targets_read_as_they_did(labelled, tmp_path):
    """A manifest that says nothing of targets has none."""
    url = labelled("top3@2").files.url
    manifest = open_store(url).manifest
    content = json.loads(manifest.written())
    del content["rows"]["target"], content["checksum"]
    assert not type(manifest).model_validate(content).rows.target


def test_targets_of_rows_as_objects_are_those_of_the_file(labelled, teachers, data, tmp_path):
    rows = {
        split: pandas.read_json(Path(data) / f"{split}.jsonl", lines=True)
        for split in ("train", "dev")
    }
    given = label(
        teachers["text"].path, rows, outputs=["logits:top3@2"], out=tmp_path / "store", **DATA
    )
    store = labelled("top3@2")
    assert sorted(given.row_ids.tolist()) == sorted(store.row_ids.tolist())
