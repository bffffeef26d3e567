"""Losses and gradients of CR-ILD's recipes, as they were when MixUp was a part of the engine."""

from __future__ import annotations

import pytest
from tiny_trainers import make, still

import tiny_runs as tiny
from limbeck.recipe import Recipe

# Of three steps on the same weights: the loss, and the sums of the gradients' absolute values, of the student and
# of the terms' maps.
STEPS = {
    "l-ild-mixup": [
        (1.640517, 190.0163, 13.2854),
        (1.853604, 233.9115, 14.68968),
        (1.579084, 189.2896, 12.14466),
    ],
    "cr-ild": [
        (1.640517, 190.0163, 13.2854),
        (1.86476, 234.3795, 14.68968),
        (1.580129, 189.5009, 12.14466),
    ],
    "cr-ild-released": [
        (3.008197, 62.82593, 15.09052),
        (2.854624, 32.36786, 17.34704),
        (2.805558, 41.92682, 14.51504),
    ],
}


@pytest.mark.parametrize("method", STEPS)
def test_every_draw_and_what_comes_of_it_is_the_same(tmp_path, method, monkeypatch):
    stage = Recipe.load(method).stages()[0].recipe
    trainer = make(
        tmp_path,
        args={"learning_rate": 1e-12, "max_grad_norm": 0.0},
        student=still(2, seed=3, initializer_range=0.3),
        teacher=tiny.bert(3, seed=9, initializer_range=0.3),
        objectives=stage.objectives,
        curriculum=stage.curriculum,
        mixup=stage.mixup,
    )
    told, step = [], trainer.training_step

    def watching(*args, **kwargs):
        loss = step(*args, **kwargs)
        sums = {"student": 0.0, "objectives": 0.0}
        for name, weight in trainer.distiller.named_parameters():
            if weight.grad is not None:
                sums[name.split(".")[0]] += float(weight.grad.double().abs().sum())
        told.append((float(loss), sums["student"], sums["objectives"]))
        return loss

    monkeypatch.setattr(trainer, "training_step", watching)
    trainer.train()
    # A float's rounding, some hundred operations deep.
    assert told == [pytest.approx(numbers, rel=1e-4) for numbers in STEPS[method]]
