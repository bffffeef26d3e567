"""What is trained before a team can teach is trained by all the terms that the run has, layers' too."""

from __future__ import annotations

from pathlib import Path

import own_rows as own
import pytest
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationConfig, DistillationTrainer

LAYERS = {"compare": "mse", "pool": "mean", "mapping": {"kind": "uniform"}}
SETTINGS = {
    "task": "reviews",
    "text_columns": ["review"],
    "label_column": "verdict",
    "max_steps": 4,
    "batch_size": 8,
    "max_length": 24,
    "lr": 1e-3,
    "cache": "never",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    for name, layers in (("large", 6), ("middle", 4), ("small", 3)):
        tiny.save(tiny.knowing_teacher(layers), folder / name)
    tiny.save(tiny.bert(2), folder / "start")
    tiny.write_csv(folder / "reviews.csv", 60)
    return folder


def settings(place: Path, **changes) -> dict:
    return SETTINGS | {
        "data": str(place / "reviews.csv"),
        "student.init": str(place / "start"),
        **changes,
    }


def team(place: Path, *names: str) -> list[str]:
    return [str(place / name) for name in names]


def terms_of(run: Path) -> list[set[str]]:
    """What each epoch was trained by, whoever taught."""
    record = Record.load(run)
    assert record.status == "finished"
    terms = [{term.partition(" (")[0] for term in epoch.train} for epoch in record.epochs]
    return [found - {"loss"} for found in terms]


def weights(run: Path) -> bytes:
    return (run / "student" / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_each_assistant_of_a_chain_is_an_ordinary_run_of_the_terms(place, tmp_path):
    members = team(place, "small", "large", "middle")
    changes = {"teachers": members, "objectives.layers": LAYERS}
    distill("takd", tmp_path / "chain", report=False, **settings(place, **changes))
    first, second = tmp_path / "chain/assistants/01-middle", tmp_path / "chain/assistants/02-small"
    # A teacher without a record starts as it is.
    for number, (run, teacher, start) in enumerate(
        [(first, place / "large", place / "middle"), (second, first, place / "small")]
    ):
        plain = {
            "teacher": str(teacher),
            "student.init": str(start),
            "objectives": {"soft": {"compare": "soft_cross_entropy"}, "layers": LAYERS},
            "method": "own",
        }
        path = tmp_path / f"plain-{number}.yaml"
        path.write_text("method: own\nobjectives: {soft: {compare: soft_cross_entropy}}\n")
        distill(path, tmp_path / f"plain-{number}", report=False, **settings(place, **plain))
        assert weights(run) == weights(tmp_path / f"plain-{number}")


@pytest.mark.slow
def test_by_command_line(place, tmp_path):
    line = ["distill", "--method", "takd", "--teachers", *team(place, "small", "large")]
    line += ["--student", str(place / "start"), "--task", "reviews"]
    line += ["--data", str(place / "reviews.csv"), "--text-columns", "review"]
    line += ["--label-column", "verdict", "--out", str(tmp_path / "chain")]
    line += ["max_steps=2", "max_length=24", "lr=1e-3", "cache=never"]
    line += ["objectives.layers={compare: mse, pool: mean, mapping: {kind: uniform}}"]
    ended = CliRunner().invoke(app, line)
    assert ended.exit_code == 0, ended.output
    assert {"soft", "layers"} in terms_of(tmp_path / "chain/assistants/01-small")


@pytest.mark.slow
def test_students_that_rank_drawn_teachers_learn_their_layers(place, tmp_path):
    members = team(place, "large", "middle")
    changes = {"teachers": members, "objectives.layers": LAYERS, "team.student_epochs": None}
    distill("skd-student-rank", tmp_path / "run", report=False, **settings(place, **changes))
    for name in ("large", "middle"):
        assert {"soft", "layers"} in terms_of(tmp_path / "run" / "students" / name)


@pytest.mark.slow
def test_assistants_have_the_terms_that_are_joined_to_the_last_stages(place, tmp_path):
    changes = {"teachers": team(place, "small", "large"), "joint": True, "team.use": "chain"}
    distill("tinybert", tmp_path / "run", report=False, **settings(place, **changes))
    mine = terms_of(tmp_path / "run")
    assert {"soft", "hidden", "attention"} <= mine[0]
    assert terms_of(tmp_path / "run" / "assistants" / "01-small") == mine


@pytest.mark.parametrize("joint", [False, True])
def test_a_trainers_chain_learns_layers(tmp_path, joint):
    changes = {"joint": True} if joint else {"objectives.layers": LAYERS}
    recipe = Recipe.load("tinybert" if joint else "takd", **{"team.use": "chain"}, **changes)
    trainer = DistillationTrainer(
        own.bert(2),
        {"small": own.bert(2, 1), "large": own.bert(4, 2)},
        DistillationConfig.like(
            own.arguments(tmp_path, max_steps=1, logging_steps=1), method=recipe
        ),
        train_dataset=own.sentences(),
        eval_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
    )
    trainer.train()
    wanted = {f"term/{name}" for name in trainer.plan.last.objectives}
    (assistant,) = trainer.parts
    assert len(wanted) > 1 and assistant.name == "assistants/01-small"
    for history in (assistant.log_history, trainer.state.log_history):
        assert wanted <= history[0].keys()


def test_a_link_that_cannot_be_taught_is_said_before_the_first_is_trained(place, tmp_path):
    """Head with head: as many as the student has the last teacher has, and not the one before it."""
    tiny.save(tiny.knowing_teacher(4, heads=4), tmp_path / "middle")
    teachers = [*team(place, "large", "small"), str(tmp_path / "middle")]
    term = {"compare": "attention_kl", "mapping": {"kind": "uniform"}}
    changes = {"teachers": teachers, "objectives.heads": term}
    with pytest.raises(LimbeckError, match=r"assistant middle.*heads") as caught:
        distill("takd", tmp_path / "chain", report=False, **settings(place, **changes))
    assert "assistant small" in str(caught.value)
    assert not (tmp_path / "chain").exists()
