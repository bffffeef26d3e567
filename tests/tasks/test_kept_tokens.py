"""Soft labels of a text-to-text teacher of whose vocabulary some tokens are kept: whole runs, and their storage."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from safetensors.torch import load_file

import kind_models as tiny
import tiny_runs
from limbeck.activations import Request
from limbeck.functional.labels import NO_LABEL
from limbeck.functional.partial_logits import KeptTokens
from limbeck.outputs.building import build
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher

V = len(tiny.PIECES)


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path) -> Store:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    return Store(tmp_path / "store")


@pytest.fixture
def run(settings, teachers, tmp_path):
    """`run("name", "top4", cache="always")`: plain KD of an epoch with some tokens kept."""

    def train(name, tokens=None, **changes):
        given = settings("text", teacher=str(teachers["text"].path), epochs=1) | changes
        given["objectives.soft.temperature"] = 2.0
        if tokens is not None:
            given["objectives.soft.tokens"] = tokens
        return distill(Recipe.load("kd", **given), out=tmp_path / name, report=False)

    return train


def losses(result) -> list[dict[str, float]]:
    return [epoch.train for epoch in result.record.epochs]


def weights(result) -> dict[str, torch.Tensor]:
    return load_file(result.path / "student" / "model.safetensors")


def alike(one, other, rel=1e-4) -> None:
    for ours, theirs in zip(losses(one), losses(other), strict=True):
        assert ours == pytest.approx(theirs, rel=rel)
    for name, value in weights(one).items():
        torch.testing.assert_close(value, weights(other)[name], atol=2e-4, rtol=2e-3, msg=name)


@pytest.mark.slow
def test_all_tokens_stored_are_plain_kd(run):
    alike(run("all", f"top{V}", cache="always"), run("plain", cache="never"))


@pytest.mark.parametrize("tokens", ["top3", pytest.param("sample6", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_stored_tokens_teach_as_live_ones(run, store, tokens):
    stored = run("stored", tokens, cache="always")
    assert stored.record.execution.teacher_outputs == {"1": "stored"}
    alike(stored, run("live", tokens, cache="never"))
    (entry,) = store.entries()
    assert [column.name for column in entry.outputs.layout.columns] == [
        "logits-ids", "logits-values", "logits-rest",
    ]  # fmt: skip
    assert entry.outputs.tokens.kept == f"{tokens}@2" and entry.outputs.tokens.vocabulary == V


def rows(model) -> dict[str, torch.Tensor]:
    ids = torch.tensor([[2, 5, 9, 3], [2, 8, 3, 0]])
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "labels": torch.tensor([[9, 12, 3], [4, 3, NO_LABEL]]),
        "index": torch.tensor([0, 1]),
    }


def test_what_is_stored_is_what_the_model_says(tmp_path):
    """By Hugging Face's own forward pass, sorted position by position."""
    model, store = tiny.model("text"), Store(tmp_path)
    batch = rows(model)
    plain = {name: value for name, value in batch.items() if name != "index"}
    with torch.no_grad():
        logits = model.eval()(**plain).logits / 2.0
    asked = Request.of_logits(KeptTokens("top", 4, 2.0))
    with store.writing("key") as folder:
        build(folder, Teacher(model), [batch], Ask(asked), precision="fp32")
    read = CachedTeacher(Teacher(model), store.find("key"))(batch, asked)
    assert read.logits is None and read.partial.shape == (2, 3, V)
    for example, positions in ((0, 3), (1, 2)):
        for place in range(positions):
            shares = logits[example, place].double().softmax(-1).tolist()
            top = sorted(range(V), key=lambda token: -shares[token])[:4]
            assert read.partial.ids[example, place].tolist() == top
            kept = read.partial.values[example, place].exp().tolist()
            assert kept == pytest.approx([shares[token] for token in top], rel=1e-5)
            rest = sum(share for token, share in enumerate(shares) if token not in top)
            assert read.partial.rest[example, place].exp().item() == pytest.approx(rest, rel=1e-4)


def test_a_table_of_kept_tokens_has_their_size(tmp_path):
    """k ids and k numbers of four bytes and one more, where the vocabulary has V."""
    model, found = tiny.model("text"), {}
    for name, kept in (("whole", None), ("part", KeptTokens("top", 2))):
        store = Store(tmp_path / name)
        with store.writing("key") as folder:
            asked = Ask(Request.of_logits(kept))
            build(folder, Teacher(model), [rows(model)], asked, precision="fp32")
        layout = store.find("key").outputs.layout
        found[name] = layout.bytes(
            {"main": torch.tensor([4, 3]).numpy(), "decoder": torch.tensor([3, 2]).numpy()}
        )
    assert found == {"whole": 5 * 4 * V, "part": 5 * 4 * (2 + 2 + 1)}


def test_who_wants_all_logits_gets_all():
    some, other = (Request.of_logits(KeptTokens("top", k)) for k in (2, 3))
    assert (some | Request()).tokens == some.tokens == (Request.hidden([1]) | some).tokens
    assert (some | some) == some
    assert (some | other).tokens is None and (some | Request.of_logits()).tokens is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"objectives.soft.tokens": "top4@3"}, "the temperature is the term's own"),
        ({"objectives.soft.tokens": "best4"}, "choices: topK"),
        (
            {"objectives.soft.tokens": f"top{V + 1}"},
            rf"tokens: top{V + 1}\S*: k is {V + 1}, and the vocabulary has {V}",
        ),
        ({"objectives.soft.tokens": "top4", "objectives.soft.standardize": True}, "z-scores"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_kept_is_refused(run, changes, words):
    with pytest.raises(LimbeckError, match=words):
        run("refused", **changes)


@pytest.mark.parametrize("tokens", ["top3", pytest.param("sample6", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_run_from_stored_tokens_that_was_killed_goes_on(run, tokens, tmp_path, monkeypatch):
    changes = {"cache": "always", "epochs": 2, "checkpoint_steps": 2}
    whole = run("whole", tokens, **changes)
    module = import_module("limbeck.run.train")
    original = module.DistillationTrainer

    def killed(*args, callbacks=(), **kwargs):
        return original(*args, callbacks=[*callbacks, tiny_runs.Kill("step_begin", 7)], **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(module, "DistillationTrainer", killed)
        with pytest.raises(tiny_runs.KilledError):
            run("killed", tokens, **changes)
    again = run("killed", tokens, **changes)
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(again)[name]), name
