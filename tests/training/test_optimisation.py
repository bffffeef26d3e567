"""SGD and a learning rate in steps: the very numbers, step by step."""

from __future__ import annotations

import pytest
import torch
from tiny_trainers import make, steps_logged, still

from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.training import Optimisation, training_arguments

SGD = {"optimizer": "sgd", "lr_schedule": "step", "warmup": 0}


def problems_of(**overrides) -> list[str]:
    with pytest.raises(LimbeckError) as caught:
        Recipe.load("kd", **overrides)
    assert all(problem.fix for problem in caught.value.problems)
    return [str(problem) for problem in caught.value.problems]


def rates(optimisation: Optimisation, *, warmup: int, steps: int) -> list[float]:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=8.0)
    schedule = optimisation.schedule(optimizer, warmup=warmup, steps=steps)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def test_the_rate_falls_at_each_milestone():
    falling = Optimisation(0.9, milestones=(0.5, 0.75), decay=0.5)
    assert rates(falling, warmup=0, steps=8) == [8, 8, 8, 8, 4, 4, 2, 2]
    assert rates(falling, warmup=2, steps=8) == [0, 4, 8, 8, 4, 4, 2, 2]


def test_a_rate_in_steps_falls_at_shares_of_the_run():
    shares = (150 / 240, 180 / 240, 210 / 240)
    found = Optimisation.of(Recipe.load("kd", **SGD, epochs=240))
    assert found == Optimisation(0.9, False, shares, 0.1)
    assert Optimisation.of(Recipe.load("kd")) == Optimisation()


@pytest.mark.parametrize("nesterov", [False, True])
def test_steps_are_those_of_sgd_with_momentum(tmp_path, nesterov):
    optimisation = Optimisation(0.5, nesterov, (0.5,), 0.1)
    args = {"learning_rate": 0.1, "weight_decay": 0.25, "max_grad_norm": 0.0,
            "lr_scheduler_type": "constant"}  # fmt: skip
    trainer = make(tmp_path, method="finetune", count=16, student=still(), args=args,
                   optimisation=optimisation)  # fmt: skip
    before = {name: w.detach().clone() for name, w in trainer.distiller.named_parameters()}
    gradients = []
    step = torch.optim.SGD.step

    def note(self, *arguments, **named):
        gradients.append(
            {n: w.grad.detach().clone() for n, w in trainer.distiller.named_parameters()
             if w.grad is not None}
        )  # fmt: skip
        return step(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.SGD, "step", note)
        trainer.train()
    assert type(getattr(trainer.optimizer, "optimizer", trainer.optimizer)) is torch.optim.SGD
    assert len(gradients) == 4
    assert [entry["learning_rate"] for entry in steps_logged(trainer)][:2] == pytest.approx(
        [0.1] * 2
    )
    for name in ("student.classifier.bias", "student.bert.encoder.layer.0.output.LayerNorm.weight"):
        weight, velocity = before[name].double(), None
        for number, gradient in enumerate(gradients):
            pull = gradient[name].double() + 0.25 * weight
            velocity = pull if velocity is None else 0.5 * velocity + pull
            rate = 0.1 if number < 2 else 0.01
            weight = weight - rate * (pull + 0.5 * velocity if nesterov else velocity)
        found = dict(trainer.distiller.named_parameters())[name].double()
        assert torch.allclose(found, weight, atol=1e-6), name


def test_a_gradient_norm_of_zero_clips_nothing(tmp_path):
    arguments = training_arguments(Recipe.load("kd", **SGD, max_grad_norm=0), tmp_path)
    assert arguments.max_grad_norm == 0
    assert arguments.lr_scheduler_type == "constant"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"momentum": 0.9}, "momentum: has an effect only with optimizer=sgd"),
        ({"nesterov": True}, "nesterov: has an effect only with optimizer=sgd and momentum"),
        (
            {"optimizer": "sgd", "nesterov": True, "momentum": 0},
            "nesterov: has an effect only with optimizer=sgd and momentum",
        ),
        ({"momentum": 1.0, "optimizer": "sgd"}, "momentum: "),
    ],
)
def test_keys_that_contradict_each_other(given, expected):
    (message,) = problems_of(**given)
    assert expected in message


def test_a_named_net_brings_the_settings_it_is_published_with():
    net = {"task": "cifar100", "student.init": "resnet-20"}
    recipe = Recipe.load("finetune", **net)
    found = {
        key: getattr(recipe, key)
        for key in ("optimizer", "lr", "batch_size", "epochs", "weight_decay", "warmup")
    }
    assert found == {"optimizer": "sgd", "lr": 0.05, "batch_size": 64, "epochs": 240,
                     "weight_decay": 5e-4, "warmup": 0.0}  # fmt: skip
    assert Optimisation.of(recipe) == Optimisation(0.9, False, (150 / 240, 0.75, 210 / 240), 0.1)
    own = Recipe.load("finetune", **net, lr=0.1, lr_schedule="cosine", optimizer="adamw")
    assert (own.lr, own.lr_schedule, own.optimizer, own.epochs) == (0.1, "cosine", "adamw", 240)
    digits = Recipe.load("finetune", data="digits", **{"student.init": "resnet-20"})
    assert (digits.task, digits.epochs) == ("digits", 30)
