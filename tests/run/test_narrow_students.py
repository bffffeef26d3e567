"""Runs whose students are cut in width out of their teacher."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import tiny_runs as tiny
from limbeck.cli.finished import last_lines
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.run.run_folder import default_folder
from limbeck.students import width
from limbeck.support.errors import LimbeckError

NARROW = {"student.init": "teacher", "student.layers": 2, "student.heads": 1, "student.ffn": 12}


@pytest.mark.parametrize("method", ["kd", "distilbert"])
def test_a_run_ships_a_narrow_student(recipe, tmp_path, method):
    run = distill(recipe(method, **NARROW, lr=3e-3, epochs=6), out=tmp_path / "run")
    config = json.loads((run.path / "student" / "config.json").read_text(encoding="utf-8"))
    sizes = ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers")
    assert [config[size] for size in sizes] == [8, 1, 12, 2]
    assert config["kept_features"]["of"] == 16
    assert 0 in config["kept_features"]["features"]  # where this teacher keeps good and bad
    record = json.loads((run.path / "record.json").read_text(encoding="utf-8"))
    assert record["recipe"]["student"]["heads"] == 1
    assert record["scores"]["dev"]["primary"] == 100.0
    student = AutoModelForSequenceClassification.from_pretrained(run.path / "student")
    words = AutoTokenizer.from_pretrained(run.path / "student")
    batch = words(["good film", "bad plot"], return_tensors="pt")
    assert torch.equal(student.eval()(**batch).logits, run.student.eval()(**batch).logits)


def test_the_folder_and_the_units_are_the_same_again(recipe):
    narrow = recipe("kd", **NARROW)
    assert "-2l-heads1-ffn12-s3-" in default_folder(narrow).name
    first, second = (prepare(narrow).student.state_dict() for _ in range(2))
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())


def test_units_are_weighed_on_training_rows(recipe, monkeypatch):
    seen = []
    original = width.importance

    def watch(model, axes, batches):
        seen.extend(batches)
        return original(model, axes, batches)

    monkeypatch.setattr(width, "importance", watch)
    prepared = prepare(recipe("kd", **NARROW))
    assert sum(len(batch["input_ids"]) for batch in seen) == len(prepared.splits["train"])


@pytest.mark.parametrize("method", ["kd", "minilm"])
def test_a_run_keeps_the_layers_that_turn_hidden_states_most(recipe, place, tmp_path, method):
    teacher = tiny.knowing_teacher(4)
    for layer in (0, 2):  # they add nothing, and norms of what is normed change nothing
        for lead in (
            teacher.bert.encoder.layer[layer].attention.output,
            teacher.bert.encoder.layer[layer].output,
        ):
            lead.dense.weight.data.zero_()
            lead.dense.bias.data.zero_()
    tiny.save(teacher, tmp_path / "teacher")
    asked = {"teacher": str(tmp_path / "teacher"), "student.init": "teacher", "student.layers": 2}
    prepared = prepare(recipe(method, **asked, **{"student.pick": "importance"}))
    for mine, theirs in enumerate((1, 3)):
        layers = (prepared.student.bert.encoder.layer[mine], teacher.bert.encoder.layer[theirs])
        own, other = (layer.attention.self.query.weight for layer in layers)
        assert torch.equal(own, other)
    if method == "kd":
        importance = recipe(method, **asked, **{"student.pick": "importance"}, epochs=1)
        run = distill(importance, out=tmp_path / "run")
        assert Record.load(run.path).picked_layers == {"main": [2, 4]}
        assert ("Layers", "2, 4, picked by importance") in last_lines(run.record, run.path)
        # Its student as a teacher has a configuration that names them; the next student's are others.
        again = asked | {"teacher": str(run.path), "student.layers": 1, "student.pick": "first"}
        assert (
            distill(recipe(method, **again, epochs=1), out=tmp_path / "next").record.picked_layers
            is None
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"student.init": "fresh"}, "random weights are not cut by importance"),
        ({"student.heads": 3}, "choose a number from 1 to 2"),
        ({"student.hidden": 12}, "student.hidden: 12 features are not 1 heads of 8"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_training(recipe, changes, said):
    with pytest.raises(LimbeckError, match=said):
        prepare(recipe("kd", **(NARROW | changes)))


def test_a_static_student_has_no_heads():
    with pytest.raises(LimbeckError, match=r"student\.heads: a static student"):
        Recipe.load("kd", **{"student.static": True, "student.heads": 2})
