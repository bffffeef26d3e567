"""Optimiser and course of the learning rate beyond the Trainer's arguments: SGD, and a rate in steps.

Part of `limbeck.training`. The rate is a function of the step alone, so a continued run has the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import ParamsT

from limbeck.recipe import Recipe
from limbeck.static import PAIR_RATE, RowAdam, StaticStudent, clip_gradients, set_apart
from limbeck.static.row_adam import OneByOne
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.training.feeding import FeedsExamples


@dataclass(frozen=True)
class Optimisation:
    """How gradients become a step; the defaults leave everything to the Trainer.

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
            say = "increasing shares of the run, such as (5/8, 3/4, 7/8)"
            problems.append(_meaningless("milestones", self.milestones, say))
        if not 0 < self.decay <= 1:
            problems.append(_meaningless("decay", self.decay, "a number above 0 to 1"))
        if self.epsilon is not None and not 0 < self.epsilon <= 1:
            problems.append(_meaningless("epsilon", self.epsilon, "a number above 0 to 1"))
        raise_problems(problems)

    @classmethod
    def of(cls, recipe: Recipe) -> "Optimisation":
        """As in a recipe of one stage."""
        sgd = recipe.optimizer == "sgd"
        return cls(
            momentum=recipe.sgd_momentum if sgd else None,
            bert_adam=recipe.optimizer == "bert_adam",
            epsilon=recipe.adam_epsilon,
            nesterov=sgd and recipe.nesterov,
            milestones=recipe.milestones,
        )

    @property
    def decays_all(self) -> bool:
        """Whether weight decay takes in biases and normalisation, as in the papers that use SGD."""
        return self.momentum is not None

    def optimizer(
        self, lr: float, *, sparse: bool = False
    ) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
        """The optimiser's class and arguments, for the Trainer; None for the Trainer's own.

        Raises:
            LimbeckError: `sparse` gradients, as a static student's, and an optimiser other than AdamW.
        """
        if sparse and (self.bert_adam or self.momentum is not None):
            raise LimbeckError(
                f"optimizer={'bert_adam' if self.bert_adam else 'sgd'}: the tables of a static student have sparse "
                "gradients, which it does not read",
                "leave optimizer out: adamw updates the rows of a step alone",
            )
        if sparse:
            return RowAdam, {"lr": lr}
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
    """A Trainer that makes its steps as configured by an `Optimisation`."""

    optimisation: Optimisation

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Which weights decay: under SGD all of them, otherwise no bias and no normalisation."""
        if self.optimisation.decays_all:
            return [name for name, _ in model.named_parameters()]
        return super().get_decay_parameter_names(model)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """The Trainer's own, or SGD at the rate that holds now, which a search may have changed."""
        sparse, given = self._sparse, self.optimizer_cls_and_kwargs
        ours = self.optimisation.optimizer(self.args.learning_rate, sparse=sparse)
        if ours is not None and sparse and given is None:
            betas = self.args.adam_beta1, self.args.adam_beta2
            own = {**ours[1], "betas": betas, "eps": self.args.adam_epsilon}
            given = self.optimizer_cls_and_kwargs = ours[0], own
        if ours is not None and given is not None and given[0] is ours[0]:
            self.optimizer_cls_and_kwargs = (ours[0], {**given[1], "lr": ours[1]["lr"]})
        made = super().create_optimizer(*args, **kwargs)
        if sparse and self.model is not None:
            for module in self.model.modules():
                if (
                    isinstance(module, StaticStudent)
                    and module.pairs
                    and not module.embedding_width
                ):
                    set_apart(made, module.pairs.weight, PAIR_RATE)
        return made

    @property
    def _sparse(self) -> bool:
        """Whether gradients of the model's tables hold the rows of a step alone."""
        modules = () if self.model is None else self.model.modules()
        return any(isinstance(one, nn.Embedding) and one.sparse for one in modules)

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        if self._sparse:
            return clip_gradients(model.parameters(), self.args.max_grad_norm)
        return super()._clip_grad_norm(model)  # type: ignore[no-untyped-call]

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        if grad_norm is None and self._sparse:
            grad_norm = clip_gradients(model.parameters(), float("inf"))
        return super()._get_grad_norm(model, grad_norm)  # type: ignore[no-untyped-call]

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


@problem_list
def unseen_maps(
    optimizer: torch.optim.Optimizer | None, objectives: nn.Module
) -> Iterator[Problem]:
    """Learned maps of the terms that a user's optimiser would leave as they are."""
    if optimizer is None:
        return
    stepped = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    unseen = [name for name, weight in objectives.named_parameters() if id(weight) not in stepped]
    if not unseen:
        return
    yield Problem(
        f"optimizers: the terms have learned maps, which this optimiser does not step: {', '.join(unseen)}",
        "pass optimizer_cls_and_kwargs=(class, settings), which takes in all weights",
    )


# Adam as BERT was trained with: the optimiser of many releases of its time. No library that
# limbeck uses has it: torch's AdamW always corrects the bias of its averages, and clips nothing.


class BertAdam(OneByOne):
    """Adam without bias correction, with decoupled weight decay and clipping of each tensor separately.

    For a parameter p with gradient g, first scaled down to the norm `max_tensor_norm` if it is
    longer: m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², p ← p − lr·(m / (√v + ε) + decay·p). The averages
    start at 0 and are not corrected for it, so that first steps are about three times as long as
    Adam's. Devlin et al. 2019, `AdamWeightDecayOptimizer`; the clipping follows its PyTorch ports.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: shares of the two averages that stay.
        eps: ε, added to the root.
        weight_decay: decay of the weights.
        max_tensor_norm: the norm each tensor's gradient is clipped to; 0: not at all.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        max_tensor_norm: float = 1.0,
    ) -> None:
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "max_tensor_norm": max_tensor_norm,
        }
        super().__init__(params, settings)

    def move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Move a parameter; those without a gradient stay as they are, and so do their averages."""
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        if group["max_tensor_norm"] > 0:
            norm = torch.linalg.vector_norm(gradient)
            gradient = gradient * (group["max_tensor_norm"] / (norm + _TINY)).clamp(max=1.0)
        keep, keep_squares = group["betas"]
        average = state["exp_avg"].lerp_(gradient, 1 - keep)
        squares = state["exp_avg_sq"].mul_(keep_squares)
        squares.addcmul_(gradient, gradient, value=1 - keep_squares)
        update = average / squares.sqrt().add_(group["eps"])
        if group["weight_decay"]:
            update.add_(parameter, alpha=group["weight_decay"])
        parameter.sub_(update, alpha=float(group["lr"]))


# As torch.nn.utils.clip_grad_norm_ has it.
_TINY = 1e-6
