"""`model_init`: each training begins with a new student, and a search tries settings on new ones."""

from __future__ import annotations

import own_rows as own
import pytest
import torch
from transformers import trainer as stock

import tiny_runs as tiny
from limbeck.lab.bandit import Bandit
from limbeck.recipe import Recipe
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import SampledTeam
from limbeck.training import DistillationTrainer


def build(folder, method="rail-kd-l", model=None, given=None, **changes) -> DistillationTrainer:
    settings = {
        "teacher": own.bert(4, 1),
        "train_dataset": own.sentences(),
        "eval_dataset": own.sentences(),
        "data_collator": own.OwnCollator(),
        "compute_metrics": own.accuracy,
        "method": method,
    }
    if model is None:
        settings["model_init"] = lambda: own.bert(3)
    return tiny.trainer_of(model, own.arguments(folder, **(given or {})), **settings | changes)


def weights(trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.distiller.state_dict().items()}


@pytest.mark.parametrize("method", ["rail-kd-l", "tinybert"])
def test_every_training_begins_anew(tmp_path, method):
    first = {"max_steps": 1} if method == "tinybert" else None
    trainer = build(tmp_path, method, first_stage=first)
    given = trainer.student
    trainer.train()
    once = weights(trainer)
    assert trainer.student is not given
    trainer.train()
    again = weights(trainer)
    for name, value in once.items():
        assert torch.equal(again[name], value), name
    assert trainer.progress.examples(own.ROWS) == 8
    assert "eval_mine" in trainer.evaluate()


def test_it_trains_as_a_model_does(tmp_path):
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    made = build(tmp_path, model_init=lambda: own.bert(3, **still))
    made.train()
    direct = build(tmp_path, model=own.bert(3, **still))
    direct.train()
    for name, value in weights(direct).items():
        assert torch.equal(made.distiller.state_dict()[name], value), name


class Trial(dict):
    """As much of optuna's as the Trainer reads."""

    def __init__(self, number: int) -> None:
        self.number = self.params = number


class Search:
    """In optuna's place: two trials, one after the other, the better one told."""

    rates = (1e-3, 1e-2)

    def ensure_available(self):
        pass

    def run(self, trainer, n_trials, direction, **kwargs):
        found = []
        for number in range(n_trials):
            trainer.train(trial=Trial(number))
            trainer.objective = trainer.compute_objective(trainer.evaluate())
            found.append((trainer.objective, number, weights(trainer)))
        return found


@pytest.mark.parametrize("method", ["kd", pytest.param("u-ild", marks=pytest.mark.slow)])
def test_a_search_tries_settings_on_new_students(tmp_path, monkeypatch, method):
    monkeypatch.setattr("transformers.integrations.hp_params", lambda trial: {})
    monkeypatch.setitem(
        stock.ALL_HYPERPARAMETER_SEARCH_BACKENDS, stock.HPSearchBackend.OPTUNA, Search
    )
    trainer = build(tmp_path, method, given={"save_strategy": "steps", "save_steps": 2})
    found = trainer.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": Search.rates[trial.number]},
        compute_objective=lambda metrics: metrics["eval_loss"],
        n_trials=2,
        backend="optuna",
    )
    for number, rate in enumerate(Search.rates):
        # As a training of its own with these settings.
        own_settings = {"learning_rate": rate}
        alone = build(tmp_path / f"alone-{number}", method, given=own_settings)
        alone.train()
        for name, value in weights(alone).items():
            if name.startswith("student"):
                assert torch.equal(found[number][2][name], value), name
        assert (tmp_path / f"run-{number}" / "checkpoint-2").is_dir()
        assert (tmp_path / f"run-{number}" / "first_stage").is_dir() == (method == "u-ild")


def test_what_a_team_has_learned_of_one_student_is_forgotten_for_the_next(tmp_path):
    bandit = Bandit(2, block=1)
    members = [Teacher(own.bert(2, 1)), Teacher(own.bert(3, 2))]
    trainer = build(
        tmp_path,
        "skd-adaptive",
        teacher=SampledTeam(members, ["a", "b"], bandit),
        holdout=own.sentences().select(range(4)),
    )
    trainer.train()
    once, learned = weights(trainer), bandit.weights.clone()
    assert learned.abs().sum() > 0
    trainer.train()
    assert torch.equal(bandit.weights, learned)
    assert all(torch.equal(value, once[name]) for name, value in weights(trainer).items())


def test_rows_are_held_out_where_none_are_given(tmp_path):
    trainer = build(
        tmp_path,
        Recipe.load("skd-adaptive", **{"team.holdout": 4}),
        model=own.bert(2),
        teacher=[own.bert(2, 1), own.bert(3, 2)],
    )
    assert len(trainer.train_dataset) == own.ROWS - 4
