"""Whole runs of several labels a row: scored, shipped, killed and continued, held against others' code."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
import transformers as hf
from sklearn import metrics

import several_labels as several
import tiny_runs as tiny
from limbeck import label, predict
from limbeck.cards.card import write_card
from limbeck.predicting.predict_rows import write_predictions
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.rows import load_rows
from limbeck.scoring import evaluate
from limbeck.scoring.evaluation import evaluation_of
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationTrainer


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return several.place_of(tmp_path_factory.mktemp("several"))


@pytest.fixture(scope="module")
def run(place, tmp_path_factory):
    """A student by labels, soft labels and hidden states, with a threshold of its own for each class."""
    recipe = several.recipe_of(place, "pkd-skip", thresholds="by_class")
    return distill(recipe, out=tmp_path_factory.mktemp("runs") / "run")


def kept(run):
    found = json.loads((run.path / "predictions.json").read_text())["dev"]
    return {name: np.array(found[name]) for name in ("label", "prediction", "probabilities")}


def test_scikit_learn_scores_the_predictions_file_alike(run):
    found, scores = kept(run), run.scores["dev"]
    assert found["label"].shape == (20, 3)
    right, given = found["label"], found["prediction"]
    assert right.any(axis=0).all()  # the means are over all three classes
    expected = {
        "micro_f1": metrics.f1_score(right, given, average="micro"),
        "macro_f1": metrics.f1_score(right, given, average="macro", zero_division=0),
        "subset_accuracy": metrics.accuracy_score(right, given),
        "average_precision": metrics.average_precision_score(right, found["probabilities"]),
    }
    expected = {name: 100 * value for name, value in expected.items()}
    assert {name: scores[name] for name in expected} == pytest.approx(expected)
    assert scores["primary"] == scores["micro_f1"] > 60


def test_the_pipeline_of_transformers_gives_our_probabilities(run, place):
    shipped = str(run.path / "student")
    assert hf.AutoConfig.from_pretrained(shipped).problem_type == several.SEVERAL
    pipe = hf.pipeline("text-classification", model=shipped, tokenizer=shipped, device="cpu")
    texts = ["good film", "bad slow plot", "good slow long end"]
    theirs = pipe(texts, function_to_apply="sigmoid", top_k=None)
    ours = predict(
        run.path, [{"review": text} for text in texts], output=["labels", "probabilities"]
    )
    thresholds = run.record.thresholds
    for row, answers in zip(ours, theirs, strict=True):
        found = {one["label"]: one["score"] for one in answers}
        assert row["probabilities"] == pytest.approx(found, abs=1e-6)
        expected = [name for name in several.CLASSES if found[name] >= thresholds[name]]
        assert row["prediction"] == expected


def test_the_thresholds_are_recorded_and_shipped(run):
    shipped = hf.AutoConfig.from_pretrained(run.path / "student").label_thresholds
    assert run.record.thresholds == dict(zip(several.CLASSES, shipped, strict=True))
    assert len({*shipped}) > 1
    found = kept(run)
    assert (found["prediction"] == (found["probabilities"] >= np.array(shipped))).all()
    assert Record.load(run.path).thresholds == run.record.thresholds


def test_each_class_is_scored_beside_the_teacher(run):
    found, classes = kept(run), run.record.classification["dev"]
    assert [one.name for one in classes.classes] == list(several.CLASSES)
    for number, one in enumerate(classes.classes):
        right, given = found["label"][:, number], found["prediction"][:, number]
        assert one.rows == right.sum()
        assert one.recall == pytest.approx(100 * metrics.recall_score(right, given))
        assert one.f1 == pytest.approx(100 * metrics.f1_score(right, given, zero_division=0))
        assert one.teacher_recall is not None
    assert classes.student.micro_f1 == pytest.approx(run.scores["dev"]["micro_f1"])
    assert classes.student.confusion is None
    assert run.record.row_tests["dev"].mcnemar is not None
    assert run.record.kept is not None
    page = (run.path / "report.html").read_text()
    assert "rows with all classes right" in page
    assert "a row is of a class from a probability on: praise" in page


def test_the_card_and_its_snippet(run, capsys):
    card = write_card(run.path).read_text(encoding="utf-8")
    assert "pipeline_tag: text-classification" in card
    assert "A row is of a class from a probability on: praise" in card and "micro F1" in card
    code = card.split("```python\n")[1].split("```")[0]
    code = re.sub(r"name = .*", f"name = {str(run.path / 'student')!r}", code)
    exec(code.replace("A text.", "good slow film"), {})
    (found,) = predict(run.path, [{"review": "good slow film"}])
    assert [line.rsplit(" ", 1)[0] for line in capsys.readouterr().out.splitlines()] == found[
        "prediction"
    ]


def test_evaluating_repeats_the_runs_scores(run, place):
    assert evaluate(run.path) == pytest.approx(run.scores["dev"])
    # All rows, by the thresholds that the student was shipped with.
    whole = evaluate(run.path, data=str(place / "reviews.csv"), label_column="tags")
    as_checkpoint = evaluate(
        str(run.path / "student"), task="reviews", data=str(place / "reviews.csv"),
        text_columns=["review"], label_column="tags",
    )  # fmt: skip
    assert whole == pytest.approx(as_checkpoint)
    assert whole["micro_f1"] > 60


def test_rows_beside_another_model(run, place):
    found = evaluation_of(run.path, teacher=str(place / "teacher"))
    assert found.classification.teacher is not None
    assert found.classification.agreement > 0


@pytest.mark.parametrize("kills", [[("step_begin", 3), ("save", 8)]], ids=str)
@pytest.mark.slow
def test_killed_and_continued_it_ends_as_unbroken(run, place, tmp_path, monkeypatch, kills):
    recipe = several.recipe_of(place, "pkd-skip", thresholds="by_class")
    for kill in kills:

        def build(*args, kill=kill, **kwargs):
            trainer = DistillationTrainer(*args, **kwargs)
            trainer.add_callback(tiny.Kill(*kill))
            return trainer

        with monkeypatch.context() as patched:
            patched.setattr("limbeck.run.train.DistillationTrainer", build)
            with pytest.raises(tiny.KilledError):
                distill(recipe, out=tmp_path / "run", report=False)
    resumed = distill(recipe, out=tmp_path / "run", report=False)
    assert resumed.scores == run.scores
    assert resumed.record.thresholds == run.record.thresholds
    ours, theirs = (one.student.state_dict() for one in (resumed, run))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.slow
def test_balanced_focal_labels_and_columns_of_0_and_1(place, tmp_path):
    recipe = several.recipe_of(
        place, "finetune", epochs=1, data=str(place / "reviews.csv"), label_column=None,
        classes=list(several.CLASSES), thresholds=0.4,
        **{"objectives.hard": {"compare": "focal", "class_weights": "balanced"}},
    )  # fmt: skip
    found = distill(recipe, out=tmp_path / "run", report=False)
    assert found.record.thresholds == dict.fromkeys(several.CLASSES, 0.4)
    assert found.record.recipe["objectives"]["hard"]["gamma"] == 2
    weights = Record.load(found.path).class_weights["hard"]
    train = [several.labels_of(row["sentence"]) for row in _train_rows(recipe)]
    for name in several.CLASSES:
        rows = sum(name in own for own in train)
        assert weights[name] == pytest.approx((len(train) - rows) / rows)
    assert found.record.row_tests == {}


def _train_rows(recipe):
    return load_rows(recipe)[1]["train"]


def test_predictions_of_a_runs_own_split(run, tmp_path):
    _, labelled = write_predictions(run.path, tmp_path / "dev.jsonl")
    assert labelled
    rows = [json.loads(line) for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    assert len(rows) == 20
    for row in rows:
        assert row["tags"] == several.labels_of(row["review"])
        assert set(row["prediction"]) <= set(several.CLASSES)


@pytest.mark.slow
def test_stored_probabilities_stand_each_by_itself(place, tmp_path):
    rows = [json.loads(line) for line in (place / "reviews.jsonl").read_text().splitlines()]
    stored = [
        {"review": row["review"], "probabilities": {n: 0.9 if n in row["tags"] else 0.05 for n in several.CLASSES}}
        for row in rows
    ]  # fmt: skip
    file = tmp_path / "outputs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in stored))
    given = {"teacher": None, "outputs": [str(file)], "student.init": str(place / "start")}
    recipe = several.recipe_of(place, "logit-mse", **given, **{"student.layers": None})
    found = distill(recipe, out=tmp_path / "run", report=False)
    assert found.record.outputs[0].scores["dev"]["micro_f1"] == 100


@pytest.mark.slow
def test_a_store_of_probabilities_teaches_as_the_model_does(place, tmp_path):
    rows = {"data": str(place / "rows" / "train.jsonl"), "text_columns": ["review"]}
    teacher = str(place / "teacher")
    with pytest.raises(LimbeckError, match="any number of classes"):
        label(teacher, to=tmp_path / "table.csv", show=False, **rows)
    store = label(teacher, out=tmp_path / "store", outputs=["probabilities"], show=False, **rows)
    found = store.take(store.row_ids[:5], ["probabilities"])["probabilities"]
    assert (found.sum(axis=1) > 1.01).any()
    shared = {"student.init": str(place / "start"), "student.layers": None, "epochs": 1}
    given = {"teacher": None, "outputs": [str(tmp_path / "store")]}
    stored = distill(
        several.recipe_of(place, "kd-soft", **shared, **given), out=tmp_path / "a", report=False
    )
    live = distill(several.recipe_of(place, "kd-soft", **shared), out=tmp_path / "b", report=False)
    losses = [one.record.epochs[0].train["soft"] for one in (stored, live)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


REFUSED = {
    "a teacher of one class per row": (
        {"problem_type": "single_label_classification"}, {}, "trained for one class per row",
    ),
    "a teacher of several for one": (
        {}, {"kind": None, "label_column": "first"}, "any number of classes",
    ),
    "terms of exclusive classes": (
        {}, {"method": "dist"}, "mutually exclusive",
    ),
    "thresholds of one class": (
        {}, {"kind": None, "label_column": "first", "method": "finetune", "thresholds": 0.3},
        "for rows of several labels",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name, place, tmp_path):
    config, changes, said = REFUSED[name]
    rows = [json.loads(line) for line in (place / "reviews.jsonl").read_text().splitlines()]
    lines = [json.dumps(row | {"first": several.CLASSES[len(row["tags"]) % 3]}) for row in rows * 2]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    teacher = several.knowing_teacher()
    for key, value in config.items():
        setattr(teacher.config, key, value)
    tiny.save(teacher, tmp_path / "teacher")
    given = {"data": str(tmp_path / "rows.jsonl"), "teacher": str(tmp_path / "teacher")} | changes
    method = given.pop("method", "kd")
    given |= {"teacher": None} if method == "finetune" else {}
    with pytest.raises(LimbeckError, match=said):
        distill(several.recipe_of(place, method, **given), out=tmp_path / "run", report=False)


@pytest.mark.slow
def test_classes_of_a_teacher_in_another_order(place, tmp_path):
    """By name they are the data's; without names the predictions tell."""
    turned = several.CLASSES[::-1]
    tiny.save(several.knowing_teacher(classes=turned), tmp_path / "teacher")
    recipe = several.recipe_of(place, teacher=str(tmp_path / "teacher"), epochs=1)
    found = distill(recipe, out=tmp_path / "run", report=False)
    assert [*found.record.thresholds] == list(turned)
    nameless = several.knowing_teacher(classes=turned)
    nameless.config.id2label = {number: f"LABEL_{number}" for number in range(3)}
    tiny.save(nameless, tmp_path / "nameless")
    rows = [json.loads(line) for line in (place / "reviews.jsonl").read_text().splitlines()]
    (tmp_path / "many.jsonl").write_text("\n".join(json.dumps(row) for row in rows * 40))
    recipe = several.recipe_of(
        place, teacher=str(tmp_path / "nameless"), data=str(tmp_path / "many.jsonl"),
        classes=list(several.CLASSES),
    )  # fmt: skip
    with pytest.raises(LimbeckError, match="in another order than the data's"):
        distill(recipe, out=tmp_path / "refused", report=False)
