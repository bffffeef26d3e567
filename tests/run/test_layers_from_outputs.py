"""Runs whose terms compare layers that lie in a store: the student is the one that the live teacher makes."""

from __future__ import annotations

import shlex
from importlib import import_module

import pytest
import torch
from safetensors.torch import load_file

import tiny_runs as tiny
from limbeck import label
from limbeck.run import distill
from limbeck.support.errors import LimbeckError

POOLED = [f"hidden:{layer}:{pool}" for layer in range(1, 5) for pool in ("mean", "cls")]
WHOLE = [
    "hidden:0",
    *(f"{what}:{layer}" for layer in range(1, 5) for what in ("hidden", "attention", "scores")),
    *(f"{what}:4" for what in ("query", "key", "value")),
]
PKD = {"objectives.patience.mapping.layers": {1: 2, 2: 3}}
_ROWS = {"text_columns": ["review"], "max_length": 24}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache for all tests here: an entry is made once."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMBECK_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def store(place, tmp_path_factory, cache) -> str:
    """Everything that the teacher has to say, in an order and in shards that no training has."""
    out = tmp_path_factory.mktemp("stores") / "layers"
    words = ["logits", *POOLED, *WHOLE]
    label(place / "teacher", place / "reviews.csv", out=out, outputs=words, shard_rows=7, **_ROWS)
    return str(out)


def losses(run) -> list[dict[str, float]]:
    return [epoch.train for epoch in run.record.epochs]


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("rail-kd-l", {}),
        pytest.param("pkd", PKD, marks=pytest.mark.slow),
        pytest.param("l-ild", {}, marks=pytest.mark.slow),
    ],
)
def test_a_store_of_layers_teaches_as_the_live_teacher(
    recipe, store, tmp_path, monkeypatch, method, changes
):
    changes |= {"batch_size": 27}
    live = distill(recipe(method, cache="never", **changes), tmp_path / "live", report=False)

    def refuse(*args, **kwargs):
        raise AssertionError("a teacher's model was loaded")

    monkeypatch.setattr(import_module("limbeck.students"), "load_model", refuse)
    given = recipe(method, teacher=None, outputs=store, **changes)
    read = distill(given, tmp_path / "read", report=False)
    for ours, theirs in zip(losses(read), losses(live), strict=True):
        assert ours == pytest.approx(theirs, rel=2e-3, abs=1e-4)
    assert len(losses(live)) and read.record.cost.teacher_flops == 0
    for one, other in zip(read.record.epochs, live.record.epochs, strict=True):
        assert one.active_layers == other.active_layers
    found, expected = (load_file(r.path / "student" / "model.safetensors") for r in (read, live))
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], atol=5e-3, rtol=5e-3, msg=name)


def test_a_store_that_lacks_columns_says_which_and_the_line_that_writes_them(
    recipe, place, tmp_path, no_training, cache
):
    out = tmp_path / "few"
    label(
        place / "teacher",
        place / "reviews.csv",
        out=out,
        outputs=["logits", "hidden:2:mean"],
        **_ROWS,
    )
    given = recipe("rail-kd-l", teacher=None, outputs=str(out))
    with pytest.raises(LimbeckError) as caught:
        distill(given, tmp_path / "run", report=False)
    said = str(caught.value)
    assert "lacks hidden-main-1-mean, hidden-main-3-mean" in said
    (line,) = [part for part in said.splitlines() if "limbeck label" in part]
    words = shlex.split(line.partition("label again: ")[2])
    # The line itself, with the teacher where it lies, writes a store that serves.
    options = words[words.index("--outputs") + 1 : words.index("--out")]
    label(place / "teacher", place / "reviews.csv", out=words[-1], outputs=options, **_ROWS)
    trial = import_module("limbeck.run.check")
    prepared = import_module("limbeck.run.prepare").prepare(
        recipe("rail-kd-l", teacher=None, outputs=words[-1])
    )
    problems, method = trial.trial_terms(prepared.last, prepared)
    assert method is not None and not [one for one in problems if one.severity == "error"]


def test_states_of_another_length_limit_are_refused(recipe, store, tmp_path, no_training):
    given = recipe("tinybert", teacher=None, outputs=store, max_length=16)
    with pytest.raises(LimbeckError, match="at most 24 tokens a row, and max_length is 16"):
        distill(given, tmp_path / "run", report=False)


def test_states_of_other_tokens_are_refused_and_pooled_ones_are_not(
    recipe, store, tmp_path, no_training, monkeypatch
):
    checks = import_module("limbeck.run.in_place")
    monkeypatch.setattr(checks.key, "digest_of_tokenizer", lambda tokenizer: "another")
    with pytest.raises(LimbeckError, match="tokens that another tokenizer made"):
        distill(recipe("tinybert", teacher=None, outputs=store), tmp_path / "run", report=False)
    with pytest.raises(AssertionError, match="trained again"):  # as far as that it got
        distill(recipe("rail-kd-l", teacher=None, outputs=store), tmp_path / "run", report=False)


def test_layers_in_float32_are_those_of_the_model(place, tmp_path):
    words = ["hidden:3:mean:float32", "hidden:3:float32", "attention:2:float32", "hidden:3:cls"]
    found = label(
        place / "teacher", place / "reviews.csv", out=tmp_path / "s", outputs=words, **_ROWS
    )
    types = {column.name: column.dtype for column in found.columns}
    assert types == {
        "probabilities-main-2": "float32",
        "hidden-main-3": "float32",
        "hidden-main-3-mean": "float32",
        "hidden-main-3-cls": "float16",
    }
    text = sorted(set(tiny.sentences(60)))[0]
    tokens = tiny.tokenizer()(text, return_tensors="pt")
    with torch.no_grad():
        model = tiny.knowing_teacher(4).eval()
        expected = model(**tokens, output_hidden_states=True).hidden_states[3][0]
    from limbeck.data import row_ids

    values = found.take(row_ids.row_ids([[text]]))
    torch.testing.assert_close(
        torch.tensor(values["hidden-main-3"][0]), expected, atol=1e-5, rtol=1e-5
    )
    mean = torch.tensor(values["hidden-main-3-mean"][0])
    torch.testing.assert_close(mean, expected.mean(0), atol=1e-5, rtol=1e-5)
