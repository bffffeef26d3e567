"""A team of real runs: its answers are the models' own, from records or for bare checkpoints."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import tiny_runs as tiny
from limbeck.records import Record
from limbeck.run import train_grid
from limbeck.run.rows import load_rows
from limbeck.scoring import look_at_team
from limbeck.support.errors import LimbeckError


@pytest.fixture(scope="module")
def team(place, tmp_path_factory) -> Path:
    """Three runs: two that have learned something, and one of another size."""
    out = tmp_path_factory.mktemp("teams") / "team"
    train_grid(
        out=out,
        models=[str(place / "start"), "bert-1-8-2:random"],
        axes={"seed": [1, 2]},
        task="reviews",
        data=str(place / "reviews.csv"),
        text_columns=["review"],
        label_column="verdict",
        epochs=1,
        batch_size=32,
        max_length=24,
        lr=1e-2,
        **{"student.tokenizer": str(place / "start")},
    )
    return out


def logits_of(run: Path, texts: list[str]) -> np.ndarray:
    """One text at a time, by transformers alone."""
    model = AutoModelForSequenceClassification.from_pretrained(run / "student").eval()
    words = AutoTokenizer.from_pretrained(run / "student")
    with torch.no_grad():
        rows = [model(**words(text, return_tensors="pt")).logits for text in texts]
    return torch.cat(rows).numpy()


@pytest.mark.slow
def test_a_folder_of_runs_is_a_team(team, recipe) -> None:
    look = look_at_team([team])
    found = look.team
    names = ["bert-1-8-2-random_seed-1", "bert-1-8-2-random_seed-2", "start_seed-1", "start_seed-2"]
    assert list(found.names) == names
    assert (look.task.name, look.split, found.examples) == ("reviews", "dev", 6)
    # The split the runs drew from their file, not the whole file.
    _, rows = load_rows(recipe("finetune"))
    texts, labels = rows["dev"]["sentence"][:], np.array(rows["dev"]["label"][:])
    logits = {name: logits_of(team / name, texts) for name in names}
    for number, name in enumerate(names):
        right = logits[name].argmax(axis=1) == labels
        assert found.scores[number] == pytest.approx(100 * right.mean())
        assert found.scores[number] == pytest.approx(Record.load(team / name).primary_score())
    mean = sum(logits.values()) / 4
    assert found.ensemble == pytest.approx(100 * np.mean(mean.argmax(axis=1) == labels))
    assert look.models["bert-1-8-2-random_seed-1"].hidden_size == 8
    assert look.models["start_seed-1"].layers == 3


@pytest.mark.slow
def test_runs_checkpoints_and_a_table_of_ones_own(team, place) -> None:
    """Nothing is a run: task and data are given, and every row of the file is answered."""
    columns = {"text_columns": ["review"], "label_column": "verdict"}
    data = str(place / "reviews.csv")
    members = [team / "start_seed-1" / "student", place / "teacher"]
    look = look_at_team(members, task="reviews", data=data, **columns)
    found = look.team
    assert found.names == ("start_seed-1", "teacher")
    assert found.examples == 60
    assert found.scores[1] == 100
    # The knowing teacher is right wherever any is.
    assert found.oracle == 100
    assert found.disagreement[0, 1] == pytest.approx(1 - found.scores[0] / 100)


def test_a_team_of_numbers(place, tmp_path) -> None:
    data = tiny.write_csv(tmp_path / "stars.csv", 60, regression=True)
    for name in ("one", "two"):
        tiny.save(tiny.knowing_teacher(4, regression=True), tmp_path / name)
    look = look_at_team(
        [tmp_path / "one", tmp_path / "two"],
        task="stars",
        data=str(data),
        text_columns=["review"],
        label_column="verdict",
    )
    assert look.task.regression
    assert look.team.oracle is None
    assert look.team.disagreement == pytest.approx(np.zeros((2, 2)))
    assert look.team.scores[0] > 80


@pytest.mark.slow
def test_what_is_not_finished_is_left_out_or_refused(team, tmp_path, caplog) -> None:
    copy = Path(shutil.copytree(team, tmp_path / "team"))
    record = Record.load(copy / "start_seed-2")
    record.status = "running"
    record.save(copy / "start_seed-2")
    assert len(look_at_team([copy]).models) == 3
    assert "start_seed-2 is running and left out" in caplog.text
    with pytest.raises(LimbeckError, match="is running"):
        look_at_team([copy / "start_seed-1", copy / "start_seed-2"])


def test_runs_that_disagree_are_refused(team, tmp_path) -> None:
    copy = Path(shutil.copytree(team, tmp_path / "team"))
    record = Record.load(copy / "start_seed-1")
    record.recipe["task"] = "letters"
    record.save(copy / "start_seed-1")
    with pytest.raises(LimbeckError, match=r"different settings of task[\s\S]*'letters'") as caught:
        look_at_team([copy])
    assert "--task" in caught.value.problems[0].fix


def test_runs_of_a_folder_come_by_the_numbers_in_their_names(team, tmp_path) -> None:
    for name in ("bert-10-8", "bert-8-8", "bert-8-16", "a"):
        shutil.copytree(team / "start_seed-1", tmp_path / name)
    names = look_at_team([tmp_path]).team.names
    assert names == ("a", "bert-8-8", "bert-8-16", "bert-10-8")


@pytest.mark.parametrize(
    ("members", "given", "said"),
    [
        ([], {}, "no members"),
        (["TEAM/start_seed-1", "TEAM/start_seed-1"], {}, "named twice"),
        (["PLACE/teacher"], {}, "no task is known"),
        (["PLACE/nothing"], {"task": "sst2", "data": "pocket"}, "nothing"),
        (["TEAM"], {"split": "tset"}, "unknown split 'tset'"),
        (["PLACE/teacher"], {"task": "ner", "data": "pocket"}, "kind tokens"),
        (["PLACE/teacher"], {"task": "stsb", "data": "pocket"}, "2 outputs"),
    ],
)
def test_what_is_no_team_is_refused(team, place, members, given, said) -> None:
    paths = [m.replace("TEAM", str(team)).replace("PLACE", str(place)) for m in members]
    with pytest.raises(LimbeckError, match=re.escape(said)):
        look_at_team(paths, **given)
