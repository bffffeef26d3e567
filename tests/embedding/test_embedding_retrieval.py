"""Embedding models scored by what they retrieve, as sentence-transformers scores the shipped folder; refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny_embedders as tiny

from limbeck.data import load_task
from limbeck.data.row_ids import rows_fingerprint
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError
from limbeck.tasks import EMBEDDING, ScoredSplit
from limbeck.tasks.retrieval import RETRIEVAL_METRICS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retrieval")
    tiny.write_beir(folder / "set")
    tiny.write_sentences(folder / "sentences.txt")
    tiny.encoder(folder / "teacher")
    return folder


@pytest.fixture(scope="module")
def finished(place):
    recipe = Recipe.load(
        "embedding-mse", teacher=str(place / "teacher"), data=str(place / "sentences.txt"),
        dev=str(place / "set"), max_length=16, epochs=1, **{"student.layers": 2},
    )  # fmt: skip
    return distill(recipe, out=place / "run")


@pytest.mark.slow
def test_sentence_transformers_finds_as_much(finished, place):
    theirs = tiny.found_by_sentence_transformers(finished.path / "student", place / "set")
    ours = finished.scores["dev"]
    assert {*ours} == {*RETRIEVAL_METRICS, "primary"} and ours["primary"] == ours["ndcg@10"]
    for name in RETRIEVAL_METRICS:
        assert ours[name] == pytest.approx(theirs[name], abs=1e-3)
    assert 0 < ours["ndcg@10"] < 100


def test_it_is_scored_again_on_its_own_set_and_on_others(finished, place, tmp_path):
    assert evaluate(finished.path) == pytest.approx(finished.scores["dev"])
    tiny.write_beir(tmp_path / "again", "test")
    found = evaluate(finished.path / "student", data=str(tmp_path / "again"))
    assert found == pytest.approx(finished.scores["dev"])
    tiny.write_pairs(tmp_path / "pairs.tsv")
    assert "spearman" in evaluate(finished.path, data=str(tmp_path / "pairs.tsv"))


def test_the_teacher_is_scored_beside_it(finished):
    assert finished.record.teacher.scores["dev"].keys() == finished.scores["dev"].keys()
    kept = json.loads((finished.path / "predictions.json").read_text())["dev"]
    assert np.mean(kept["prediction"]) * 100 == pytest.approx(finished.scores["dev"]["ndcg@10"])
    assert kept["index"] == [0, 1, 2, 3, 4, 5]
    tests, share = finished.record.row_tests["dev"], finished.record.kept
    gap = finished.scores["dev"]["primary"] - finished.record.teacher.scores["dev"]["primary"]
    assert tests.difference.difference == pytest.approx(gap)
    assert (tests.rows, tests.unit) == (share.rows, share.unit) == (6, "queries")


def test_a_folder_with_train_is_data_and_dev(place, tmp_path):
    for split in ("train", "dev", "test"):
        tiny.write_beir(tmp_path / "set", split)
    task, splits = load_task(None, tmp_path / "set", kind="embedding")
    assert task.kind is EMBEDDING and {*splits} == {"train", "dev", "test"}
    assert splits["train"]["score"][:] == [1.0] * 11  # two passages have one text
    assert len(task.text_columns) > 2  # negatives beside them
    assert len(splits["dev"]) == 36 and sum(map(bool, splits["dev"]["judged"][:])) == 6


def test_what_was_judged_is_part_of_what_a_score_was_measured_on(place, tmp_path):
    def rows(folder):
        return load_task(None, folder, kind="embedding", for_training=False)

    (task, one), (_, same) = rows(place / "set"), rows(place / "set")
    other = tiny.write_beir(tmp_path / "other")
    file = other / "qrels/dev.tsv"
    file.write_text(file.read_text().replace("q1\td3\t1", "q1\td4\t1"))
    found = [rows_fingerprint(task, splits["dev"]) for splits in (one, same, rows(other)[1])]
    assert found[0] == found[1] != found[2]


def test_some_of_its_rows_are_a_set_of_their_own(place):
    task, splits = load_task(None, place / "set", kind="embedding", for_training=False)
    some = EMBEDDING.spread_rows(task, splits["dev"], 14)
    vectors = np.random.default_rng(0).normal(size=(len(some), 4))
    assert 10 <= len(some) <= 18
    assert (
        len(EMBEDDING.results(task, vectors, ScoredSplit(some, some, None)).predictions["index"])
        == 3
    )


@pytest.mark.parametrize(("changes", "message"), [
    ({"dev": "none"}, "there is no file"),
    ({"data": "set", "dev": "set"}, "is a folder|no single file"),
    ({"data": "set", "dev": None}, "no qrels/train.tsv"),
    ({"select_by": "spearman"}, "select_by"),
])  # fmt: skip
def test_what_cannot_be_is_refused_before_the_first_step(changes, message, place, tmp_path):
    given = {"data": "sentences.txt", "dev": "set"} | changes
    given |= {key: str(place / given[key]) for key in ("data", "dev") if given[key]}
    recipe = Recipe.load(
        "embedding-mse", teacher=str(place / "teacher"), **given, **{"student.layers": 2}
    )
    with pytest.raises(LimbeckError, match=message):
        distill(recipe, out=tmp_path / "run")
