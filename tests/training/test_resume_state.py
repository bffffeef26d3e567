"""What terms and their order remember between steps survives a kill, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from limbeck.recipe import Recipe
from resumed_runs import assert_same, killed_at, outcome, start

# 22 rows in batches of 4: 6 steps an epoch, 18 in all. Three student layers.
SETTINGS: dict[str, dict[str, Any]] = {
    # Inputs sampled each step, weights that rise over half the run.
    "mixup": {
        "method": "cr-ild",
        "first_stage.objectives.attention_consistency.weight.over": 0.5,
    },
    # The release pads every batch to all of max_length; tiny models have few positions.
    "mixup released": {"method": "cr-ild-released", "max_length": 12},
    # Layers change in the middle of epochs: after 4.8, 9.6 and 14.4 steps.
    "pid": {"method": "internal-kd-pid"},
    # Every epoch's sum is small enough to move on, long before the two epochs a layer has.
    "sid watched": {
        "method": "internal-kd-sid-soft",
        "curriculum.epochs_per_layer": 2,
        "curriculum.watch": "cosine",
        "curriculum.below": 1000.0,
    },
    "bert-emd": {"method": "bert-emd"},
    "bert-emd accumulating": {"method": "bert-emd", "accumulation": 2},
    "codir": {"method": "codir", "objectives.contrast.negatives": 3},
}


def recipe_of(setting: str, every: int | None) -> Recipe:
    given = dict(SETTINGS[setting])
    method = given.pop("method")
    training = {"epochs": 3, "batch_size": 4, "lr": 1e-2, "log_steps": 2, "seed": 7}
    if Recipe.load(method).first_stage is not None:
        given |= {f"first_stage.{key}": training[key] for key in ("epochs", "batch_size", "lr")}
    recipe = Recipe.load(method, **given, **training, checkpoint_steps=every)
    return recipe.stages()[0].recipe


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """setting → outcome of its unbroken run, made once."""
    found: dict[str, dict] = {}

    def run(setting: str) -> dict:
        if setting not in found:
            trainer = start(tmp_path_factory.mktemp("unbroken"), recipe_of(setting, None))
            found[setting] = outcome(trainer)
        return found[setting]

    return run


@pytest.mark.parametrize(
    ("setting", "every", "kills"),
    [
        pytest.param("mixup", 4, [("step_begin", 9)], marks=pytest.mark.slow),
        pytest.param("mixup released", None, [("step_begin", 8)], marks=pytest.mark.slow),
        # Inside layer 2 in an epoch's middle, and just where layer 3 has begun.
        ("pid", 4, [("step_begin", 9), ("step_begin", 14)]),
        pytest.param("pid", None, [("step_begin", 12)], marks=pytest.mark.slow),
        # Just after the first move, and in the middle of the epoch after it.
        pytest.param("sid watched", None, [("step_begin", 6)], marks=pytest.mark.slow),
        pytest.param("sid watched", 4, [("step_begin", 9)], marks=pytest.mark.slow),
        pytest.param(
            "bert-emd", 4, [("step_begin", 5), ("step_begin", 15)], marks=pytest.mark.slow
        ),
        pytest.param("bert-emd accumulating", 1, [("step_begin", 4)], marks=pytest.mark.slow),
        pytest.param("codir", 4, [("step_begin", 5), ("step_begin", 11)], marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_ends_as_an_unbroken_one(tmp_path, unbroken, setting, every, kills):
    recipe = recipe_of(setting, every)
    for event, step in kills:
        killed_at(tmp_path, recipe, event, step)
    assert_same(start(tmp_path, recipe), unbroken(setting))


def active(run: dict, name: str) -> list[list[int]]:
    """The student layers that a term has at each epoch's end."""
    return [[j for j, _ in entry["active_layers"].get(name, [])] for entry in run["epochs"]]


@pytest.mark.slow
def test_layers_in_turn_have_something_to_lose(unbroken):
    """By hand: step 5 is layer 1's last, step 10 layer 2's; epochs end after 6, 12 and 18."""
    run = unbroken("pid")
    assert active(run, "cosine") == [[2], [3], []]
    assert [set(entry["train"]) for entry in run["epochs"]] == [
        {"loss", "attention", "cosine"},
        {"loss", "attention", "cosine"},
        {"loss", "attention", "cosine", "soft"},
    ]
    assert active(unbroken("sid watched"), "cosine") == [[1], [1, 2], [1, 2, 3]]
    moved = unbroken("sid watched")["weights"]["objectives.curriculum.moved_on"]
    # The best epoch is the second, whose end moved on from layer 2 after layer 1.
    assert moved.tolist() == [[pytest.approx(1 / 3), 1], [pytest.approx(2 / 3), 2], [torch.inf] * 2]


@pytest.mark.slow
def test_memories_have_something_to_lose(unbroken):
    weights = unbroken("bert-emd")["weights"]
    masses = weights["objectives.terms.hidden.mapping.teacher_mass"]
    assert masses.sum().item() == pytest.approx(1.0)
    assert masses.max() > 1.01 * masses.min()
    memory = unbroken("codir")["weights"]
    assert not memory["objectives.terms.contrast.memory.labels"].isnan().any()
    terms = [entry["train"] for entry in unbroken("mixup")["epochs"]]
    assert all(entry["attention_consistency"] > 0 for entry in terms)
