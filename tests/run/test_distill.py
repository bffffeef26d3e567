"""Whole runs on a user's own file: what they leave behind."""

from __future__ import annotations

import json
import os
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import tiny_runs as tiny
from limbeck.data import load_task
from limbeck.recipe import Recipe
from limbeck.recipe.quick import Training
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.run.rows import load_rows
from limbeck.run.run_folder import default_folder
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher
from limbeck.training import DistillationTrainer

# ---- what a run leaves ----


def test_a_run_folder_holds_what_it_promises(finished):
    there = {path.name for path in finished.path.iterdir()}
    promised = {"recipe.yaml", "record.json", "student", "predictions.json", "report.html"}
    assert there == promised | {"manifest.json", ".limbeck-lock"}
    student = AutoModelForSequenceClassification.from_pretrained(finished.path / "student")
    words = AutoTokenizer.from_pretrained(finished.path / "student")
    assert student.config.num_hidden_layers == 3
    assert student.config.id2label == {0: "negative", 1: "positive"}
    batch = words(["good film", "bad plot"], return_tensors="pt")
    assert torch.equal(student.eval()(**batch).logits, finished.student.eval()(**batch).logits)


def test_the_record_says_everything(finished, place, recipe):
    record = json.loads((finished.path / "record.json").read_text(encoding="utf-8"))
    assert record["schema"] == 1
    assert record["status"] == "finished"
    assert record["error"] is None
    assert (record["kind"], record["method"], record["seed"]) == ("distill", "rail-kd-l", 3)
    assert (record["task"], record["data"]) == ("reviews", str(place / "reviews.csv"))
    assert record["recipe"] == recipe().model_dump(mode="json")
    assert record["versions"].keys() >= {"limbeck", "python", "torch", "transformers", "datasets"}
    assert record["hardware"].keys() >= {"platform", "processor", "cores", "threads"}
    assert len(record["examples"].pop("fingerprints")["dev"]) == 16
    assert record["examples"] == {
        "train": 54,
        "dev": 6,
        "test": None,
        "truncated": {"train": 0, "dev": 0},
        "labels": None,
        "in_train": {"dev": 0},
        "labelled": 54,
        "unlabelled": 0,
        "unlabelled_in_scored_splits": 0,
        "unlabelled_repeated": 0,
        "unlabelled_blank": 0,
        "relabelled": 0,
        "without_outputs": 0,
        "augmented": 0,
    }
    epochs = record["epochs"]
    assert [(e["stage"], e["epoch"], e["step"]) for e in epochs] == [(1, 1, 7), (1, 2, 14)]
    for entry in epochs:
        assert entry["seconds"] > 0
        assert entry["train"].keys() == {"loss", "hard", "soft", "rail"}
        assert entry["dev"].keys() == {"loss", "accuracy", "f1", "matthews", "primary"}
        student_layers, teacher_layers = zip(*entry["active_layers"]["rail"], strict=True)
        assert student_layers == (1, 2)
        assert 1 <= teacher_layers[0] < teacher_layers[1] <= 3
    best = max(epochs, key=lambda entry: entry["dev"]["primary"])
    assert record["best"] == {"epoch": best["epoch"], "primary": best["dev"]["primary"]}
    assert record["scores"]["dev"]["primary"] == best["dev"]["primary"]
    assert finished.scores == record["scores"]


def test_the_record_describes_both_models(finished, place):
    record = finished.record
    for facts, model in ((record.student, tiny.bert(3)), (record.teacher, tiny.bert(4))):
        assert facts.parameters == sum(weight.numel() for weight in model.parameters())
        assert facts.embedding_parameters == sum(
            table.weight.numel()
            for table in model.modules()
            if isinstance(table, torch.nn.Embedding)
        )
        assert (facts.layers, facts.hidden_size, facts.heads) == (
            model.config.num_hidden_layers,
            16,
            2,
        )
        assert facts.latency_ms.median > 0
    assert record.teacher.path == str(place / "teacher")
    assert record.student.flops_per_example < record.teacher.flops_per_example


def test_the_record_counts_the_cost(finished):
    record = finished.record
    cost = record.cost
    # Two passes over 54 rows; a training step costs three forward passes, the teacher one. Rows of
    # one batch are as long as the longest, and a dev row of mean length is the measure beside.
    student, teacher = record.student.flops_per_example, record.teacher.flops_per_example
    assert 0.8 < cost.student_flops / (3 * 108 * student) < 1.5
    assert 0.8 < cost.teacher_flops / (108 * teacher) < 1.5
    assert cost.student_examples == 108
    (stage,) = record.stages
    assert (stage.stage, stage.rows, stage.steps, stage.truncated) == (1, 54, 14, 0)
    assert (stage.student_flops, stage.teacher_flops) == (cost.student_flops, cost.teacher_flops)
    assert min(cost.student_seconds, cost.teacher_seconds, cost.evaluation_seconds) > 0
    training = sum(entry.seconds for entry in record.epochs)
    assert cost.student_seconds + cost.teacher_seconds >= training


def test_the_answers_are_those_that_were_scored(finished, recipe):
    answers = json.loads((finished.path / "predictions.json").read_text(encoding="utf-8"))
    dev = answers["dev"]
    right = [guess == label for guess, label in zip(dev["prediction"], dev["label"], strict=True)]
    assert finished.scores["dev"]["accuracy"] == pytest.approx(100 * sum(right) / len(right))
    _, rows = load_rows(recipe())
    assert dev["index"] == rows["dev"]["index"][:]
    assert dev["label"] == rows["dev"]["label"][:]
    words = AutoTokenizer.from_pretrained(finished.path / "student")
    batch = words(rows["dev"]["sentence"][:], padding=True, return_tensors="pt")
    with torch.no_grad():
        assert finished.student.eval()(**batch).logits.argmax(1).tolist() == dev["prediction"]


def test_the_recipe_that_was_written_is_the_recipe(finished, recipe):
    assert Recipe.load(finished.path / "recipe.yaml") == recipe()


def test_what_is_left_out_is_chosen_said_kept_and_not_chosen_again(
    tmp_path, recipe, capfd, monkeypatch
):
    # 54 rows in batches of 54 are one step an epoch; one layer of the teacher's four.
    own = {"student.init": "teacher", "student.layers": 1, "batch_size": 54}
    open_ = recipe("kd", epochs=None, lr=None, **own)
    record = distill(open_, tmp_path, show=True).record
    assert "54 rows, 1 of 4 layers: 60 epochs at 0.0001" in capfd.readouterr().err
    assert (record.recipe["epochs"], record.recipe["lr"]) == (60, 1e-4)
    assert record.execution.training == {"epochs": 60, "lr": 1e-4}
    assert len(record.epochs) == 60
    written = (tmp_path / "recipe.yaml").read_text(encoding="utf-8")
    assert "epochs: null" in written and "epochs 60, lr 0.0001" in written
    monkeypatch.setattr(DistillationTrainer, "__init__", None)  # nothing is trained again
    assert distill(open_, tmp_path).record.seed == record.seed
    # To state what was chosen asks for the same run.
    assert distill(recipe("kd", epochs=60, lr=None, **own), tmp_path).record.seed == record.seed
    with pytest.raises(LimbeckError, match="differ in epochs"):
        distill(recipe("kd", epochs=19, lr=None, **own), tmp_path)


@pytest.mark.parametrize(("quality", "epochs"), [("fast", 3), ("best", 21)])
def test_the_quality_multiplies_the_usual_epochs(
    tmp_path, recipe, capfd, monkeypatch, quality, epochs
):
    monkeypatch.setattr("limbeck.run.begin.training_for", lambda *_: Training(7.0, 1e-4))
    own = {"student.init": "teacher", "student.layers": 1, "batch_size": 54}
    open_ = recipe("kd", epochs=None, lr=None, quality=quality, **own)
    record = distill(open_, tmp_path, show=True, report=False).record
    assert f"{epochs} epochs at 0.0001 for quality {quality} (" in capfd.readouterr().err
    assert len(record.epochs) == epochs  # a third of 7 or three times as many
    assert Recipe.load(tmp_path / "recipe.yaml") == open_


def test_a_quality_that_cannot_be_followed_is_an_error(recipe):
    with pytest.raises(LimbeckError, match=r"quality: .*'bets'.*\n.*did you mean 'best'"):
        recipe("kd", quality="bets")
    with pytest.raises(LimbeckError, match="quality: has an effect only with epochs=null"):
        recipe("kd", epochs=2, quality="best")


def test_regression(tmp_path, recipe):
    tiny.save(tiny.knowing_teacher(4, regression=True), tmp_path / "teacher")
    file = tiny.write_csv(tmp_path / "stars.csv", 60, regression=True)
    result = distill(
        recipe(
            "alp-kd",
            data=str(file),
            teacher=str(tmp_path / "teacher"),
            select_by="spearman",
        ),
        out=tmp_path / "run",
        report=False,
    )
    assert result.scores["dev"].keys() == {"pearson", "spearman", "primary"}
    dev = json.loads((tmp_path / "run" / "predictions.json").read_text())["dev"]
    assert all(isinstance(number, float) for number in dev["prediction"] + dev["label"])
    assert result.student.config.num_labels == 1
    best = max(result.record.epochs, key=lambda entry: entry.dev["spearman"])
    assert result.record.best.epoch == best.epoch
    assert result.scores["dev"]["spearman"] == best.dev["spearman"]


@pytest.mark.slow
def test_fine_tuning_needs_no_teacher(tmp_path, recipe):
    result = distill(
        recipe("finetune", epochs=1, report_to="tensorboard"), out=tmp_path / "run", report=False
    )
    assert result.record.kind == "finetune"
    assert result.record.teacher is None
    assert result.record.cost.teacher_flops == 0
    assert result.record.epochs[0].train.keys() == {"loss", "hard"}
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    assert "TENSORBOARD_LOGGING_DIR" not in os.environ


@pytest.mark.slow
def test_a_shared_teacher_changes_nothing(finished, place, tmp_path, recipe):
    teacher = Teacher.load(place / "teacher")
    again = distill(recipe(), out=tmp_path / "run", live_teacher=teacher, report=False)
    timeless = [
        [entry.model_copy(update={"seconds": 0}) for entry in run.record.epochs]
        for run in (again, finished)
    ]
    assert timeless[0] == timeless[1]
    for name in ("student/model.safetensors", "predictions.json"):
        assert (again.path / name).read_bytes() == (finished.path / name).read_bytes()


# ---- rows and places ----


def test_train_rows_takes_the_same_part_for_every_seed(place, recipe):
    parts = {}
    for seed in (3, 4):
        _, rows = load_rows(recipe(train_rows=10, seed=seed))
        parts[seed] = rows["train"]["index"][:]
        assert len(rows["dev"]) == 6
    assert parts[3] == parts[4]
    assert len(set(parts[3])) == 10
    _, whole = load_task(
        "reviews",
        str(place / "reviews.csv"),
        text_columns=["review"],
        label_column="verdict",
    )
    assert set(parts[3]) < set(whole["train"]["index"][:])
    _, more = load_rows(recipe(train_rows=20))
    assert more["train"]["index"][:10] == parts[3]


def test_train_rows_are_what_is_trained_on(tmp_path, recipe):
    result = distill(
        recipe("finetune", train_rows=16, epochs=1), out=tmp_path / "run", report=False
    )
    assert result.record.examples.train == 16
    assert result.record.epochs[0].step == 2


@pytest.mark.parametrize(
    ("layers", "name"),
    [
        (None, "reviews-kd-teacher-s3"),
        (2, "reviews-kd-teacher-2l-s3"),
        ([1, 3], "reviews-kd-teacher-l1.3-s3"),
    ],
)
def test_a_run_without_a_place_gets_one(layers, name, recipe):
    made = recipe("kd", **{"student.init": "teacher", "student.layers": layers})
    found = default_folder(made)
    assert found.parent == Path("runs") and re.fullmatch(rf"{name}-[0-9a-f]{{6}}", found.name)
    assert default_folder(made) == found


def test_experiments_never_meet_in_one_folder(recipe, place):
    """Whatever makes another recipe; where a run is written and shown does not."""
    other = [
        {},
        {"teacher": str(place / "other" / "teacher")},
        {"data": str(place / "other" / "reviews.csv")},
        {"student.init": "teacher"},
        {"student.layers": 2},
        {"seed": 4},
        {"lr": 1e-3},
        {"train_rows": 7},
        {"objectives.soft.temperature": 3},
    ]
    assert len({default_folder(recipe("kd", **changes)) for changes in other}) == len(other)
    team = recipe("skd-uniform", teacher=None, teachers=["a/large", "b/small"])
    assert "-large-and-1-more-start-" in default_folder(team).name


def test_a_recipe_may_be_named(place, tmp_path, no_training):
    with pytest.raises(LimbeckError, match="learns from one"):
        distill("kd", out=tmp_path / "run", task="mrpc", data=str(place / "reviews.csv"))


def test_evaluate_scores_the_run_on_the_rows_it_was_not_trained_on(
    copied, finished, place, monkeypatch
):
    """A single own file holds both; given as other data, the file is scored as a whole."""
    module = import_module("limbeck.scoring.scored_model")
    scored: list[int] = []
    compact_outputs_of = module.compact_outputs_of

    def counting(model, encoded, collate):
        scored.append(len(encoded))
        return compact_outputs_of(model, encoded, collate)

    monkeypatch.setattr(module, "compact_outputs_of", counting)
    assert evaluate(copied) == pytest.approx(finished.record.scores["dev"])
    own = {"text_columns": ["review"], "label_column": "verdict"}
    evaluate(copied, data=str(place / "reviews.csv"), **own)
    assert scored == [6, 60]


def test_a_teacher_that_is_given_is_there_though_no_term_asks_it(recipe, place):
    """The quickstart compares the layers of the student that was trained alone with its."""
    live = Teacher.load(place / "teacher")
    alone = recipe("finetune", teacher=str(place / "teacher"))
    assert prepare(alone, live).teacher is live.model
    assert prepare(alone).teacher is None
