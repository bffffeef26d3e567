"""Students that generate, killed and begun again: weights and records are those of an unbroken run, bit for bit."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_causal_lm import SENTENCES

import tiny_runs
from limbeck.outputs import building
from limbeck.outputs.cache import Store
from limbeck.recipe import Recipe
from limbeck.run import Result, distill

LAST = {"objectives.combination.pool": "last"}
STORED = {"cache": "always", "objectives.soft.temperature": 2.0}
FIRST = {"first_stage.max_steps": 3, "first_stage.lr": 1e-2, "first_stage.batch_size": 8}
# Method, rows, settings, and the steps before which the process ends. Five steps an epoch, of two epochs; a checkpoint
# after every second step.
RUNS: dict[str, tuple[str, str, dict[str, Any], tuple[int, ...]]] = {
    "random layers": ("rail-kd-l", "texts", {"cache": "never"}, (3, 7)),
    "buckets of layers": ("ckd-no", "texts", {"cache": "never"} | LAST, (7,)),
    # In the first stage, then beyond its three steps in the second one.
    "two stages": ("minilmv2", "answers", {"cache": "never"} | FIRST, (2, 7)),
    "answers": ("kd", "answers", {"cache": "never"}, (7,)),
    "likeliest tokens": ("kd", "answers", STORED | {"objectives.soft.tokens": "top4"}, (3, 7)),
    "sampled tokens": ("kd-soft", "texts", STORED | {"objectives.soft.tokens": "sample5"}, (7,)),
}


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path) -> Store:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    return Store(tmp_path / "store")


@pytest.fixture
def recipe(settings, teachers, tmp_path):
    """`recipe("kd", "answers", {"lr": 1e-3})`: a short run of a student of two layers."""

    def make(method: str, rows: str, own: dict[str, Any]) -> Recipe:
        given = settings("causal-lm", teacher=str(teachers["causal-lm"].path), checkpoint_steps=2)
        if rows == "answers":
            folder = tmp_path / "rows"
            folder.mkdir()
            for split, count in (("train", 35), ("dev", 5)):
                texts = [SENTENCES[row % 5].split() for row in range(count)]
                asked = [{"prompt": " ".join(t[:2]), "answer": " ".join(t[2:])} for t in texts]
                (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, asked)))
            given["data"] = str(folder)
        student = {"student.init": "teacher", "student.layers": 2}
        return Recipe.load(method, **(given | student | own))

    return make


def assert_same(resumed: Result, unbroken: Result) -> None:
    ours, theirs = (
        load_file(run.path / "student" / "model.safetensors") for run in (resumed, unbroken)
    )
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), name
    found, expected = (timeless(run.record.model_dump()) for run in (resumed, unbroken))
    assert found == expected


def timeless(value: Any) -> Any:
    """A record without times."""
    if isinstance(value, dict):
        timed = ("seconds", "latency_ms", "bench")
        return {k: timeless(v) for k, v in value.items() if not any(word in k for word in timed)}
    return [timeless(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_is_an_unbroken_one(name, recipe, store, tmp_path):
    method, rows, own, steps = RUNS[name]
    made = recipe(method, rows, own)
    resumed = tiny_runs.continued(made, tmp_path / "killed", *steps)
    for entry in store.entries():
        store.remove(entry)
    unbroken = distill(made, out=tmp_path / "unbroken", report=False)
    assert (made.cache == "always") == bool(store.entries())
    assert_same(resumed, unbroken)


def test_a_run_that_was_killed_as_it_stored_outputs_stores_them_whole(
    recipe, store, tmp_path, monkeypatch
):
    made, build = (
        recipe("kd", "answers", STORED | {"objectives.soft.tokens": "top4"}),
        building.build,
    )

    def dying(folder, teacher, batches, *args, **kwargs):
        def some():
            yield next(iter(batches))
            raise tiny_runs.KilledError

        build(folder, teacher, some(), *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(building, "build", dying)
        with pytest.raises(tiny_runs.KilledError):
            distill(made, out=tmp_path / "killed", report=False)
    assert store.entries() == []
    resumed = distill(made, out=tmp_path / "killed", report=False)
    (entry,) = store.entries()
    # Its making was begun twice for this run, and each is paid for.
    assert resumed.record.execution.stored == [entry.key] * 2
    resumed.record.execution.stored = [entry.key]
    store.remove(entry)
    assert_same(resumed, distill(made, out=tmp_path / "unbroken", report=False))
