"""Classes in an order: whose order it is, their scores against scikit-learn's, and all that reads a run of them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import cohen_kappa_score
from torch import nn

import limbeck
import tiny_runs as tiny
from limbeck.data import load_task
from limbeck.data.label_column import Labelling
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.scoring.evaluation import evaluation_of
from limbeck.support.errors import LimbeckError
from limbeck.tasks import ORDINAL, get_task
from limbeck.tasks.metrics import METRICS
from quick_cases import quick

WORDS = ("poor", "fair", "good")


def table(tmp_path, labels, name="ratings.csv"):
    """Rows with these labels in turn."""
    rows = [f"film number {row},{labels[row % len(labels)]}" for row in range(60)]
    path = tmp_path / name
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def read(path, **labelling):
    return load_task(None, path, kind="ordinal", labelling=Labelling(**labelling))[0]


@pytest.mark.parametrize(
    ("labels", "given", "order"),
    [
        (["2", "10", "1"], {}, ("1", "2", "10")),
        (["2.0", "3.0", "1.0"], {}, ("1", "2", "3")),
        (["2", "3", "1"], {"teacher": ("3", "1", "2")}, ("1", "2", "3")),
        (["good", "poor", "fair"], {"classes": WORDS}, WORDS),
        (["2", "3", "1"], {"classes": ("2", "1", "3")}, ("2", "1", "3")),
    ],
)
def test_the_order_is_the_given_one_else_that_of_numbers(tmp_path, labels, given, order):
    assert read(table(tmp_path, labels), **given).labels == order


def test_numbers_that_are_written_as_text_are_ordered_as_numbers(tmp_path):
    path = tmp_path / "ratings.jsonl"
    rows = [{"text": f"film {row}", "label": str(8 + row % 3)} for row in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read(path).labels == ("8", "9", "10")


@pytest.mark.parametrize("teacher", [(), WORDS])
def test_words_need_an_order(tmp_path, teacher):
    words = r"(?s)holds fair, good, poor, which are not all numbers.*give all classes from low to"
    with pytest.raises(LimbeckError, match=words):
        read(table(tmp_path, WORDS), teacher=teacher)


def test_numbers_are_refused(tmp_path):
    with pytest.raises(LimbeckError, match=r"labels: classes, but .* holds 1\.5"):
        read(table(tmp_path, ["1.5", "2"]))
    with pytest.raises(LimbeckError, match=r"labels: numbers, and the kind is for classes"):
        read(table(tmp_path, ["1", "2"]), holds="numbers")
    with pytest.raises(LimbeckError, match=r"the label of task 'stsb' is a number"):
        ORDINAL.task_fields(get_task("stsb"))


@pytest.fixture
def ratings():
    """200 predictions of five classes and labels; the second class is in neither."""
    random = np.random.default_rng(0)
    labels = random.choice([0, 2, 3, 4], 200)
    given = np.where(random.random(200) < 0.5, labels, random.choice([0, 2, 3, 4], 200))
    return given, labels


def test_scores_are_those_of_scikit_learn(ratings):
    given, labels = ratings
    judged = cohen_kappa_score(labels, given, weights="quadratic", labels=range(5))
    task = replace(get_task("mnli"), labels=tuple("12345"), kind=ORDINAL)
    task = replace(task, **ORDINAL.task_fields(task))
    scores = task.scores(np.eye(5)[given], labels)
    assert scores["primary"] == scores["quadratic_kappa"] == pytest.approx(100 * judged)
    away = [abs(one - other) for one, other in zip(given.tolist(), labels.tolist(), strict=True)]
    assert scores["mean_absolute_error"] == pytest.approx(100 * sum(away) / 200)
    assert scores["accuracy"] == pytest.approx(100 * away.count(0) / 200)
    assert ORDINAL.baseline(task, labels) == (0.0, "1")


def test_samples_are_scored_as_rows_are(ratings):
    given, labels = ratings
    task = replace(get_task("mnli"), labels=tuple("12345"), kind=ORDINAL)
    units = np.random.default_rng(1).integers(0, 200, (7, 200))
    for metric in ("quadratic_kappa", "mean_absolute_error", "accuracy"):
        score = ORDINAL.sampled_score(task, metric, {"prediction": given, "label": labels})
        expected = [METRICS[metric](given[rows], labels[rows]) for rows in units]
        np.testing.assert_allclose(score(units), expected, rtol=1e-12)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A teacher that knows three classes in an order which is not the alphabet's, and rows."""
    folder = tmp_path_factory.mktemp("ordered")
    teacher = tiny.knowing_teacher()
    teacher.config.id2label = dict(enumerate(WORDS))
    teacher.config.label2id = {name: number for number, name in enumerate(WORDS)}
    teacher.num_labels, teacher.classifier = 3, nn.Linear(tiny.WIDTH, 3)
    with torch.no_grad():
        teacher.classifier.weight.zero_()
        teacher.classifier.weight[:, 0] = torch.tensor([-4.0, 0.0, 4.0])
        teacher.classifier.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    tiny.save(teacher, folder / "teacher")
    tiny.save(tiny.bert(3), folder / "start")
    rows = []
    for row, text in enumerate(tiny.sentences(90)):
        level = row % 3
        words = text.split()[1:]
        rows.append((" ".join([*(["bad"], [], ["good"])[level], *words]), WORDS[level]))
    lines = [f"{text},{label}" for text, label in dict(rows).items()]
    (folder / "reviews.csv").write_text("\n".join(["review,verdict", *lines]) + "\n")
    return folder


@pytest.mark.parametrize("teach", quick("model", of=("model", "store")))
def test_a_student_is_distilled_scored_and_asked(place, tmp_path, teach):
    data, source = str(place / "reviews.csv"), {"teacher": str(place / "teacher")}
    if teach == "store":
        rows = {"text_columns": ["review"], "out": tmp_path / "store"}
        limbeck.label(str(place / "teacher"), data, **rows)
        source = {"outputs": [str(tmp_path / "store")]}
    recipe = Recipe.load(
        "kd",
        **source,
        kind="ordinal",
        classes=[*WORDS],
        data=data,
        text_columns=["review"],
        label_column="verdict",
        **{"student.init": str(place / "start")},
        epochs=2,
        lr=0.01,
        batch_size=8,
        max_length=24,
        seed=3,
    )
    run = distill(recipe, out=tmp_path / "run")
    kept = json.loads((run.path / "predictions.json").read_text())["dev"]
    judged = cohen_kappa_score(kept["label"], kept["prediction"], weights="quadratic")
    scores = run.scores["dev"]
    assert scores["primary"] == scores["quadratic_kappa"] == pytest.approx(100 * judged)
    assert {*scores} == {"primary", "quadratic_kappa", "accuracy", "mean_absolute_error"}
    assert evaluation_of(run.path).scores == pytest.approx(scores)
    (answer,) = limbeck.predict(run.path, [{"review": "good film"}])
    assert answer["prediction"] in WORDS
