"""Optimiser and course of the learning rate beyond the Trainer's arguments: SGD, and a rate in steps.

Part of `limbeck.engine`. The rate is a function of the step alone, so a continued run has the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from limbeck.engine.bert_adam import BertAdam
from limbeck.recipe import Recipe


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
