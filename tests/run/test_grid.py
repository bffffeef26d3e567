"""Whole grids: each cell an ordinary run, checked together, kept, continued, failing by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill, train_grid
from limbeck.run.grid import Member
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError
from limbeck.tables.team import members_table
from limbeck.training import DistillationTrainer


def settings(place: Path, **changes) -> dict:
    return {
        "task": "reviews",
        "data": str(place / "reviews.csv"),
        "text_columns": ["review"],
        "label_column": "verdict",
        "epochs": 1,
        "batch_size": 32,
        "max_length": 24,
        "lr": 1e-2,
        **changes,
    }


def grid(place: Path, out: Path, **changes) -> list[Member]:
    axes = changes.pop("axes", {"student.layers": [1, 2]})
    models = changes.pop("models", [str(place / "start")])
    return train_grid(out=out, models=models, axes=axes, **settings(place, **changes))


@pytest.fixture(scope="module")
def team(place, tmp_path_factory) -> tuple[Path, list[Member]]:
    out = tmp_path_factory.mktemp("grids") / "team"
    return out, grid(place, out)


def test_each_cell_is_the_run_it_would_be_alone(team, place, tmp_path) -> None:
    out, members = team
    assert [member.name for member in members] == [
        "start_layers-1",
        "start_layers-2",
    ]
    assert all(member.record.status == "finished" and not member.problems for member in members)
    start = {"student.init": str(place / "start"), "student.layers": 2}
    alone = distill(Recipe.load("finetune", **settings(place), **start), tmp_path / "alone")
    again = out / "start_layers-2"
    for name in ("recipe.yaml", "student/model.safetensors", "predictions.json"):
        assert (alone.path / name).read_bytes() == (again / name).read_bytes()


def test_a_finished_grid_is_kept(team, place, no_training) -> None:
    out, before = team
    again = grid(place, out, overwrite=True)
    assert [member.record for member in again] == [member.record for member in before]


@pytest.mark.slow
def test_a_grid_that_was_stopped_is_continued(place, tmp_path, monkeypatch) -> None:
    train = DistillationTrainer.start_or_continue
    starts = []

    def stop_the_second(trainer, checkpoint):
        starts.append(checkpoint)
        if len(starts) == 2:
            raise KeyboardInterrupt
        return train(trainer, checkpoint)

    monkeypatch.setattr(DistillationTrainer, "start_or_continue", stop_the_second)
    with pytest.raises(KeyboardInterrupt):
        grid(place, tmp_path / "team")
    assert [Record.load(p).status for p in sorted((tmp_path / "team").iterdir())] == [
        "finished",
        "running",
    ]
    members = grid(place, tmp_path / "team")
    assert len(starts) == 3
    assert all(member.record.status == "finished" for member in members)


@pytest.mark.slow
def test_one_that_fails_does_not_stop_the_others(place, tmp_path, monkeypatch) -> None:
    train = DistillationTrainer.start_or_continue

    def fail_with_one_layer(trainer, checkpoint):
        if trainer.student.config.num_hidden_layers == 1:
            raise RuntimeError("out of memory\nand more")
        return train(trainer, checkpoint)

    monkeypatch.setattr(DistillationTrainer, "start_or_continue", fail_with_one_layer)
    first, second = grid(place, tmp_path / "team")
    (problem,) = first.problems
    assert problem.message == "start_layers-1: RuntimeError: out of memory"
    assert first.record.status == "failed"
    assert second.record.status == "finished"
    table = members_table({member.name: member.record for member in (first, second)})
    _, failed, finished = table.cells
    assert "failed" in failed
    model = tiny.bert(2)
    count = sum(weight.numel() for weight in model.parameters())
    score = second.record.scores["dev"]["primary"]
    assert finished[1:6] == ["2", "16", "2", f"{count / 1000:.2f}K", f"{score:.1f}"]


def test_what_is_wrong_with_any_cell_is_said_before_the_first_starts(place, tmp_path) -> None:
    with pytest.raises(LimbeckError) as caught:
        grid(place, tmp_path / "team", axes={"student.layers": [1, 9], "seed": [1, 2]})
    (problem,) = caught.value.problems
    assert problem.message.startswith(
        "start_layers-9_seed-1, start_layers-9_seed-2: student.layers"
    )
    assert not (tmp_path / "team").exists()


def test_what_is_wrong_with_all_cells_is_said_once(place, tmp_path) -> None:
    with pytest.raises(LimbeckError) as caught:
        grid(place, tmp_path / "team", lr="high", epochs=-1)
    assert sorted(problem.message.split(":")[0] for problem in caught.value.problems) == [
        "epochs",
        "lr",
    ]
    with pytest.raises(LimbeckError, match=r"student\.layers is part of the grid"):
        grid(place, tmp_path / "team", **{"student.layers": 2})
    with pytest.raises(LimbeckError, match="nowhere"):
        grid(place, tmp_path / "team", data="nowhere.csv")


@pytest.mark.slow
def test_another_recipes_run_is_refused_unless_it_is_to_be_replaced(place, tmp_path) -> None:
    axes = {"student.layers": [1]}
    grid(place, tmp_path / "team", axes=axes)
    with pytest.raises(LimbeckError, match="another recipe"):
        grid(place, tmp_path / "team", axes=axes, batch_size=16)
    (member,) = grid(place, tmp_path / "team", axes=axes, batch_size=16, overwrite=True)
    assert member.record.recipe["batch_size"] == 16


# ---- shapes as students ----


def test_a_random_shape_takes_a_given_tokenizer_and_its_vocabulary(place) -> None:
    given = settings(place, **{"student.init": "bert-2-32-2:random"})
    given |= {"student.tokenizer": str(place / "start")}
    prepared = prepare(Recipe.load("finetune", **given))
    config = prepared.student.config
    assert prepared.tokenizer.get_vocab() == tiny.tokenizer().get_vocab()
    assert (config.vocab_size, config.pad_token_id) == (14, 0)
    shape = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
    assert shape == (2, 32, 2)
    assert config.intermediate_size == 128


@pytest.mark.parametrize(
    ("init", "task"),
    [
        ("pocket-3-32-2", "rte"),
        ("bert-3-32-2:random", "stsb"),
        pytest.param("pocket-3-32-2", "stsb", marks=pytest.mark.slow),
        pytest.param("bert-3-32-2:random", "rte", marks=pytest.mark.slow),
    ],
)
def test_shapes_read_pocket_data_offline(init: str, task: str) -> None:
    recipe = Recipe.load(
        "finetune", task=task, data="pocket", train_rows=20, **{"student.init": init}
    )
    prepared = prepare(recipe)
    config = prepared.student.config
    shape = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
    assert shape == (3, 32, 2)
    assert config.num_labels == (1 if task == "stsb" else 2)
    # From scratch, so with the settings of a teacher's training.
    assert recipe.lr == 1e-3
    assert recipe.epochs == 3


def test_without_the_hub_the_random_variant_is_named(place, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LimbeckError) as caught:
        prepare(Recipe.load("finetune", **settings(place, **{"student.init": "bert-8-128-2"})))
    (problem,) = caught.value.problems
    assert "google/bert_uncased_L-8_H-128_A-2" in problem.message
    assert "bert-8-128-2:random" in problem.fix
    with pytest.raises(LimbeckError, match=r"student\.tokenizer=FOLDER"):
        given = settings(place, **{"student.init": "bert-8-128-2:random"})
        prepare(Recipe.load("finetune", **given))
