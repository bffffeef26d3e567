"""BERT's own Adam, against its steps written out number by number."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import tiny_runs as tiny
from limbeck.data import Collator
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationConfig, DistillationTrainer
from limbeck.training.arguments import training_arguments
from limbeck.training.checkpoints import read_state
from limbeck.training.optimizer import BertAdam, Optimisation

# Long and short gradients: the first is clipped, the second is not.
GRADIENTS = ([3.0, -4.0, 12.0], [0.1, 0.0, -0.2], [-2.0, 0.5, 0.5], [1e-4, 1e-4, 1e-4])


def by_hand(start: list[float], lr: float, decay: float, clip: float = 1.0) -> list[float]:
    weights, m, v = list(start), [0.0] * 3, [0.0] * 3
    for gradient in GRADIENTS:
        norm = math.sqrt(sum(g * g for g in gradient))
        scale = min(1.0, clip / norm) if clip and norm > clip else 1.0
        for i, g in enumerate(gradient):
            g = g * scale
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g * g
            weights[i] -= lr * (m[i] / (math.sqrt(v[i]) + 1e-6) + decay * weights[i])
    return weights


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("clip", [1.0, 0.0])
def test_its_steps(decay, clip):
    start = [0.5, -1.0, 2.0]
    weight = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    idle = nn.Parameter(torch.ones(2))
    optimizer = BertAdam([weight, idle], lr=0.1, weight_decay=decay, max_tensor_norm=clip)
    for gradient in GRADIENTS:
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        assert weight.grad.tolist() == gradient  # others may still read it
    assert weight.tolist() == pytest.approx(by_hand(start, 0.1, decay, clip), rel=2e-6)
    assert idle.tolist() == [1, 1] and idle not in optimizer.state


def test_the_first_step_is_about_three_rates_long():
    """Without bias correction: .1 g / √(.001 g²) = √10."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer = BertAdam([weight], lr=0.01)
    weight.grad = torch.tensor([0.5])
    optimizer.step()
    assert weight.item() == pytest.approx(-0.01 * math.sqrt(10), rel=1e-4)


def test_each_tensor_is_clipped_by_itself():
    long, short = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    optimizer = BertAdam([long, short], lr=1.0)
    long.grad, short.grad = torch.tensor([300.0, 400.0]), torch.tensor([0.3, 0.4])
    optimizer.step()
    kept = [optimizer.state[weight]["exp_avg"].tolist() for weight in (long, short)]
    assert kept[0] == pytest.approx([0.06, 0.08], rel=1e-5)
    assert kept[1] == pytest.approx([0.03, 0.04], rel=1e-5)


def test_a_recipe_chooses_it(tmp_path):
    recipe = Recipe.load("finetune", optimizer="bert_adam", lr=1e-3, weight_decay=0.1, max_steps=2)
    torch.manual_seed(0)
    trainer = DistillationTrainer(
        tiny.bert(2),
        None,
        DistillationConfig.like(
            training_arguments(recipe, tmp_path, select=False),
            method="finetune",
            optimisation=Optimisation.of(recipe),
        ),
        train_dataset=tiny.rows(8),
        data_collator=Collator(tiny.tokenizer()),
    )
    trainer.train()
    optimizer = trainer.optimizer.optimizer
    assert type(optimizer) is BertAdam
    decays = {group["weight_decay"] for group in optimizer.param_groups}
    assert decays == {0.1, 0.0}  # weights, and biases with normalisations
    # A checkpoint holds its averages, so a continued run goes on as it would have.
    kept = read_state(tmp_path / "checkpoint-2" / "optimizer.safetensors")
    assert {"exp_avg", "exp_avg_sq"} == set(kept["state"][0])


def test_momentum_is_not_for_it():
    with pytest.raises(LimbeckError, match="momentum: has an effect only with optimizer=sgd"):
        Recipe.load("kd", optimizer="bert_adam", momentum=0.9)
