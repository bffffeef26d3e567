"""A teacher whose classes are called otherwise than the task's: refused where an id must differ, said where not."""

from __future__ import annotations

import logging

import pytest

import tiny_runs as tiny
from limbeck.preflight.model_checks import check_labels
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.scoring import evaluate
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError
from limbeck.tasks import get_task


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """SST-2 as GLUE has it, a start, and a teacher that is right but calls its classes by names of its own."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "SST-2").mkdir()
    lines = [f"{text}\t{1 - row % 2}" for row, text in enumerate(tiny.sentences(60))]
    for split in ("train", "dev"):
        (folder / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + "\n".join(lines))
    tiny.save(tiny.bert(2), folder / "start")
    named(folder, "teacher", "cat", "dog")
    return folder


def named(folder, name, *labels):
    teacher = tiny.knowing_teacher(3)
    teacher.config.id2label = dict(enumerate(labels))
    teacher.config.label2id = {label: number for number, label in enumerate(labels)}
    return tiny.save(teacher, folder / name)


def recipe_of(place, teacher="teacher", method="kd", **changes):
    settings = {
        "task": "sst2",
        "data": str(place),
        "teacher": str(place / teacher),
        "student.init": str(place / "start"),
        "max_steps": 1,
        "batch_size": 4,
        "max_length": 24,
        "cache": "never",
    }
    return Recipe.load(method, **(settings | changes))


def test_names_that_all_differ_are_paired_in_a_note(place, tmp_path, capsys):
    run = distill(recipe_of(place), tmp_path / "run", report=False, show=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "other names than the data's" in said and "cat = negative, dog = positive" in said
    assert load_model(run.path / "student").config.id2label == {0: "cat", 1: "dog"}


def test_a_checkpoint_that_is_scored_says_so_too(place, caplog):
    with caplog.at_level(logging.WARNING, logger="limbeck"):
        scores = evaluate(place / "teacher", "sst2", str(place))
    assert scores["accuracy"] > 50
    assert "cat, dog against negative, positive" in caplog.text


@pytest.mark.parametrize(
    "names",
    [
        ("contradiction", "neutral", "entailment"),
        ("contradiction", "entailment", "unknown"),  # shares two names, both at other ids
        ("no", "entailment", "maybe"),
    ],
)
def test_one_shared_name_at_another_id_is_an_error(names):
    mnli = get_task("mnli")
    assert mnli.labels == ("entailment", "neutral", "contradiction")
    config = tiny.bert(1, id2label=dict(enumerate(names))).config
    (problem,) = check_labels("teacher", config, mnli)
    assert problem.severity == "error" and "another order" in problem.message
    config = tiny.bert(1, id2label={0: "entailment", 1: "unknown", 2: "no"}).config
    (problem,) = check_labels("teacher", config, mnli)
    assert problem.severity == "warning" and "other names" in problem.message


def test_a_swapped_teacher_is_refused_before_any_work(place, tmp_path):
    named(place, "swapped", "positive", "other")
    with pytest.raises(LimbeckError, match="another order"):
        distill(recipe_of(place, "swapped"), tmp_path / "run", report=False)
    assert not (tmp_path / "run").exists()


def test_the_teacher_of_a_first_stage_alone_is_asked_for_its_names(place, tmp_path):
    named(place, "turned", "positive", "negative")
    named(place, "right", "negative", "positive")
    stages = recipe_of(
        place,
        "right",
        first_stage={
            "teacher": str(place / "turned"),
            "epochs": 1,
            "objectives": {"soft": {"compare": "soft_kl", "weight": 1}},
        },
    )
    with pytest.raises(
        LimbeckError, match=r"first_stage: teacher: its classes are in another order"
    ):
        distill(stages, tmp_path / "run", report=False)
