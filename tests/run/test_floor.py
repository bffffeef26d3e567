"""A run's floor: in record, last lines, table and card; a teacher that words reach is warned of before the run."""

from __future__ import annotations

import csv
from types import SimpleNamespace

import numpy as np
import pytest

import tiny_runs as tiny
from card_runs import make_run
from limbeck.cards import CardSettings
from limbeck.cards.card import render_card
from limbeck.cli.finished import show_result
from limbeck.evaluation.linear_floor import fit_floor
from limbeck.evaluation.row_tests import is_ahead, row_tests
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.distill import Result
from limbeck.run.rows import load_rows
from limbeck.tables import build_table, render
from limbeck.tasks import TASKS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("floor"))


def test_it_stands_beside_student_and_teacher(run, capsys):
    record = Record.load(run)
    task, rows = load_rows(Recipe.recorded(record.recipe, str(run)))
    alone = fit_floor(task, rows["train"], record.seed).results(task, rows["dev"])
    assert record.floor.scores["dev"] == pytest.approx(dict(alone.scores))
    assert (record.floor.rows, record.floor.given) == (record.examples.train,) * 2
    own, theirs = record.floor.student_tests["dev"], record.floor.teacher_tests["dev"]
    score = record.floor.scores["dev"]["primary"]
    assert own.difference.difference == pytest.approx(record.primary_score() - score)
    assert theirs.difference.difference == pytest.approx(
        record.teacher.scores["dev"]["primary"] - score
    )
    show_result(Result(run, record))
    assert f"Floor:   dev {score:.1f} by words alone (TF-IDF" in capsys.readouterr().out
    shown = render(build_table([record]), "csv").splitlines()
    (line,) = [line for line in shown if line.startswith("words alone,floor,")]
    assert float(line.split(",")[3]) == pytest.approx(score)
    card = render_card(run, CardSettings())
    assert "| split | metric | words alone | teacher | student | share kept |" in card
    assert "Words alone: TF-IDF of words and pairs of words with a linear model" in card


@pytest.mark.slow
def test_it_is_off_by_a_setting(tmp_path):
    record = Record.load(make_run(tmp_path, floor=False))
    assert record.floor is None
    assert "words alone" not in render(build_table([record]), "markdown")


@pytest.mark.parametrize("floor", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_teacher_that_words_reach_is_warned_of(tmp_path, capsys, floor):
    # `good` and `bad` decide, so that words alone are always right, and the teacher can be no better.
    tiny.save(tiny.knowing_teacher(4), tmp_path / "teacher")
    tiny.write_csv(tmp_path / "reviews.csv", 60)
    recipe = Recipe.load(
        "kd", task="reviews", data=str(tmp_path / "reviews.csv"), text_columns=["review"],
        label_column="verdict", teacher=str(tmp_path / "teacher"), max_steps=1, cache="never", max_length=24,
        **{"student.layers": 1},
    )  # fmt: skip
    distill(recipe.model_copy(update={"floor": floor}), out=tmp_path / "run", show=True)
    shown = " ".join(capsys.readouterr().err.split())
    assert ("not significantly above the score of words alone, 100.0" in shown) is floor


@pytest.mark.parametrize("cache", ["always", pytest.param("never", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_unlabeled_rows_count_by_the_teachers_predictions(tmp_path, cache):
    tiny.save(tiny.knowing_teacher(4), tmp_path / "teacher")
    tiny.write_csv(tmp_path / "reviews.csv", 60)
    with (tmp_path / "more.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["review"])
        writer.writerows([text + " the end"] for text in tiny.sentences(30))
    record = distill(
        "kd", task="reviews", data=str(tmp_path / "reviews.csv"), text_columns=["review"],
        label_column="verdict", teacher=str(tmp_path / "teacher"), max_steps=1, cache=cache, max_length=24,
        unlabelled=[str(tmp_path / "more.csv")], out=tmp_path / cache, cache_limit=0.1,
        **{"student.layers": 1},
    ).record  # fmt: skip
    labelled, without = record.examples.labelled, record.examples.unlabelled
    assert (record.floor.taught, record.floor.given) == (without, labelled + without)
    assert record.floor.scores["dev"]["accuracy"] == 100


@pytest.mark.parametrize(
    ("only_first", "only_second", "ahead"), [(12, 2, True), (5, 1, False), (2, 12, False)]
)
def test_ahead_is_what_the_binomial_distribution_says(only_first, only_second, ahead):
    # Two-sided: 14 rows of 12 and 2 give p = .013, 6 of 5 and 1 give .22.
    labels = np.zeros(60, dtype=int)
    first, second = labels.copy(), labels.copy()
    second[:only_first] = 1
    first[only_first : only_first + only_second] = 1
    sides = [{"prediction": side.tolist(), "label": labels.tolist()} for side in (first, second)]
    task = TASKS["sst2"]
    assert is_ahead(task, row_tests(task, *sides)) is ahead
    assert is_ahead(SimpleNamespace(primary="f1"), row_tests(task, *sides)) is ahead
