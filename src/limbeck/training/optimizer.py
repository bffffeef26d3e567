"""Optimiser and course of the learning rate beyond the Trainer's arguments: SGD, and a rate in steps.

Part of `limbeck.training`. The rate is a function of the step alone, so a continued run has the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError, Problem
from limbeck.training.bert_adam import BertAdam
from limbeck.training.feeding import FeedsExamples


@dataclass(frozen=True)
class Optimisation:
    """What makes a step of the gradients; the defaults leave everything to the Trainer.

    Attributes:
        momentum: of SGD; None for AdamW, the Trainer's own, and for `bert_adam`.
        nesterov: SGD with Nesterov's momentum.
        milestones: shares of the steps after which the learning rate is multiplied by `decay`.
        bert_adam: Adam as BERT was trained with (`BertAdam`).
        epsilon: of `bert_adam`; None for its own.
    """

    momentum: float | None = None
    nesterov: bool = False
    milestones: tuple[float, ...] = ()
    decay: float = 0.1
    bert_adam: bool = False
    epsilon: float | None = None

    def __post_init__(self) -> None:
        """Raise LimbeckError for numbers that no training can mean."""
        problems = []
        if self.momentum is not None and not 0 <= self.momentum < 1:
            problems.append(_meaningless("momentum", self.momentum, "a number from 0 to below 1"))
        shares = list(self.milestones)
        if not all(0 < share < 1 for share in shares) or shares != sorted(set(shares)):
            say = "shares of the run one after the other, say (5/8, 3/4, 7/8)"
            problems.append(_meaningless("milestones", self.milestones, say))
        if not 0 < self.decay <= 1:
            problems.append(_meaningless("decay", self.decay, "a number above 0 to 1"))
        if self.epsilon is not None and not 0 < self.epsilon <= 1:
            problems.append(_meaningless("epsilon", self.epsilon, "a number above 0 to 1"))
        if problems:
            raise LimbeckError(problems)

    @classmethod
    def of(cls, recipe: Recipe) -> Optimisation:
        """As a recipe of one stage says it."""
        sgd = recipe.optimizer == "sgd"
        return cls(
            momentum=recipe.sgd_momentum if sgd else None,
            bert_adam=recipe.optimizer == "bert_adam",
            epsilon=recipe.adam_epsilon,
            nesterov=sgd and recipe.nesterov,
            milestones=recipe.milestones,
            decay=recipe.decay,
        )

    @property
    def decays_all(self) -> bool:
        """Whether weight decay takes in biases and normalisation, as in the papers that use SGD."""
        return self.momentum is not None

    def optimizer(self, lr: float) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
        """The optimiser's class and arguments, for the Trainer; None for the Trainer's own."""
        if self.bert_adam:
            return BertAdam, {"lr": lr} | ({} if self.epsilon is None else {"eps": self.epsilon})
        if self.momentum is None:
            return None
        settings = {"lr": lr, "momentum": self.momentum, "nesterov": self.nesterov}
        return torch.optim.SGD, settings

    def schedule(self, optimizer: Any, *, warmup: int, steps: int) -> LambdaLR:
        """The rate rises for `warmup` steps, then falls at each milestone."""
        falls = [round(share * steps) for share in self.milestones]

        def factor(step: int) -> float:
            rising = min(step / warmup, 1.0) if warmup else 1.0
            return rising * self.decay ** sum(step >= fall for fall in falls)

        return LambdaLR(optimizer, factor)


def _meaningless(name: str, value: object, say: str) -> Problem:
    return Problem(f"optimisation.{name}={value!r} means nothing", f"give {say}")


class Optimises(FeedsExamples):
    """A Trainer that makes its steps as an `Optimisation` says."""

    optimisation: Optimisation

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Which weights decay: under SGD all of them, otherwise no bias and no normalisation."""
        if self.optimisation.decays_all:
            return [name for name, _ in model.named_parameters()]
        return super().get_decay_parameter_names(model)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """The Trainer's own, or SGD at the rate that holds now, which a search may have changed."""
        ours = self.optimisation.optimizer(self.args.learning_rate)
        given = self.optimizer_cls_and_kwargs
        if ours is not None and given is not None and given[0] is ours[0]:
            self.optimizer_cls_and_kwargs = (ours[0], {**given[1], "lr": ours[1]["lr"]})
        return super().create_optimizer(*args, **kwargs)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> Any:
        """The Trainer's own, or one that falls in steps."""
        if self.lr_scheduler is None and self.optimisation.milestones:
            self.lr_scheduler = self.optimisation.schedule(
                optimizer or self.optimizer,
                warmup=self.args.get_warmup_steps(num_training_steps),
                steps=num_training_steps,
            )
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)


def unseen_maps(optimizer: torch.optim.Optimizer | None, objectives: nn.Module) -> list[Problem]:
    """Learned maps of the terms that a user's optimiser would leave as they are."""
    if optimizer is None:
        return []
    stepped = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    unseen = [name for name, weight in objectives.named_parameters() if id(weight) not in stepped]
    if not unseen:
        return []
    return [
        Problem(
            f"optimizers: the terms have learned maps, which this optimiser does not step: "
            f"{', '.join(unseen)}",
            "pass optimizer_cls_and_kwargs=(class, settings), which takes in all weights",
        )
    ]
