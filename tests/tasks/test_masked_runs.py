"""Masked text in whole runs: other tokens masked each epoch, also after a kill; lower is better."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file

import tiny_runs
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.training import Patience


@pytest.mark.slow
def test_words_hidden_anew_in_every_epoch_survive_a_kill(settings, teachers, tmp_path):
    given = settings(
        "masked", epochs=3, teacher=str(teachers["masked"].path), checkpoint_steps=2,
        **{"student.init": "teacher", "student.layers": 2},
    )  # fmt: skip
    recipe = Recipe.load("kd", **given)
    straight = distill(recipe, out=tmp_path / "straight", report=False)
    resumed = tiny_runs.continued(recipe, tmp_path / "killed", 7)
    weights = [load_file(run.path / "student" / "model.safetensors") for run in (straight, resumed)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert resumed.scores == straight.scores
    losses = [[entry.train for entry in run.record.epochs] for run in (straight, resumed)]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_the_lowest_perplexity_is_the_best(settings, tmp_path):
    recipe = Recipe.load("finetune", **settings("masked", epochs=3, select_by="perplexity"))
    run = distill(recipe, out=tmp_path / "run", report=False)
    found = [entry.dev["perplexity"] for entry in run.record.epochs]
    assert run.record.best.epoch == 1 + found.index(min(found))
    assert run.scores["dev"]["perplexity"] == pytest.approx(min(found))


@pytest.mark.parametrize(("metric", "scores", "stops"), [
    ("perplexity", [9.0, 8.0, 8.5, 8.1], True), ("perplexity", [9.0, 8.0, 8.5, 7.9], False),
    ("accuracy", [9.0, 8.0, 8.5], True), ("accuracy", [7.0, 8.0, 7.5], False),
])  # fmt: skip
def test_patience_knows_which_way_is_better(metric, scores, stops):
    control = hf.TrainerControl()
    state = hf.TrainerState(log_history=[{f"eval_{metric}": score} for score in scores])
    Patience(2, metric).on_evaluate(None, state, control)
    assert control.should_training_stop == stops
