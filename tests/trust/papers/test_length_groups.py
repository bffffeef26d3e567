"""Mixed inputs meet partners of any length: batches of similar length would undo what mixing is for."""

from __future__ import annotations

from importlib import import_module

import pytest

import tiny_runs as tiny
from limbeck import DistillationConfig, DistillationTrainer
from limbeck.data import Collator
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.training import feeding

module = import_module("limbeck.run.train")

MIXED = ["cr-ild", "cr-ild-t5", "cr-ild-released", "l-ild-mixup"]


class ReachedError(Exception):
    """Training would start now."""


@pytest.mark.parametrize("method", MIXED)
def test_a_stage_that_mixes_draws_its_batches_at_random(method):
    first, last = Recipe.load(method).stages()
    assert not first.recipe.groups_by_length
    # Nor is anything gained where every batch has one width.
    assert last.recipe.groups_by_length == (last.recipe.pad_to is None)


@pytest.mark.parametrize("method", ["kd", "l-ild"])
def test_without_mixing_examples_of_similar_length_meet(method):
    assert all(stage.recipe.groups_by_length for stage in Recipe.load(method).stages())


@pytest.mark.parametrize("wanted", [True, False])
def test_what_the_user_says_wins(wanted):
    stages = Recipe.load("cr-ild", group_by_length=wanted).stages()
    assert [stage.recipe.groups_by_length for stage in stages] == [wanted, wanted]


def test_joined_stages_mix_throughout():
    (only,) = Recipe.load("cr-ild", joint=True).stages()
    assert not only.recipe.groups_by_length


def test_a_run_trains_each_stage_that_way(tmp_path, monkeypatch):
    tiny.save(tiny.knowing_teacher(4), tmp_path / "teacher")
    tiny.save(tiny.bert(3), tmp_path / "start")
    tiny.write_csv(tmp_path / "reviews.csv", 60)
    recipe = Recipe.load(
        "cr-ild",
        task="reviews",
        data=str(tmp_path / "reviews.csv"),
        text_columns=["review"],
        label_column="verdict",
        teacher=str(tmp_path / "teacher"),
        max_length=24,
        **{"student.init": str(tmp_path / "start"), "cache": "never"},
    )
    asked = []

    def refuse(student, teacher, config, **settings):
        asked.append((config.recipe().mixup is not None, config.group_by_length))
        raise ReachedError

    monkeypatch.setattr(module, "DistillationTrainer", refuse)
    with pytest.raises(ReachedError):
        distill(recipe, tmp_path / "run")
    assert asked == [(True, False)]


@pytest.mark.parametrize(
    ("given", "grouped"), [({}, [False, True]), ({"group_by_length": False}, [False, False])]
)
def test_a_trainer_trains_each_stage_that_way_too(tmp_path, monkeypatch, given, grouped):
    orders = []

    class Watched(feeding.EpochSampler):
        def __init__(self, rows, seed, *, lengths, batch_size):
            orders.append(lengths is not None)
            super().__init__(rows, seed, lengths=lengths, batch_size=batch_size)

    monkeypatch.setattr(feeding, "EpochSampler", Watched)
    config = DistillationConfig(
        str(tmp_path),
        method="l-ild-mixup",
        first_stage={"max_steps": 1},
        max_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        **given,
    )
    collator = Collator(tiny.tokenizer())
    rows = {"train_dataset": tiny.rows(8), "data_collator": collator}
    DistillationTrainer(tiny.bert(2), tiny.knowing_teacher(4), config, **rows).train()
    assert orders == grouped
