"""Numbers among `TrainingArguments` that no training can mean. Part of `limbeck.training`.

transformers takes most of them as they are: a batch of no rows ends deep in a loader, a rate that is
no number in weights that are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from transformers import EarlyStoppingCallback, TrainingArguments

from limbeck.support.errors import Problem


class Range(NamedTuple):
    """From `least` (`above`: not itself) to `most` (`below`: not itself); None may stand for unset."""

    least: float
    most: float = math.inf
    above: bool = False
    below: bool = False

    def holds(self, value: float) -> bool:
        """Whether a number lies in it; none that is not finite does."""
        low = value > self.least if self.above else value >= self.least
        high = value < self.most if self.below else value <= self.most
        return math.isfinite(value) and low and high

    def __str__(self) -> str:
        low = f"{'above' if self.above else 'from'} {self.least:g}"
        if math.isinf(self.most):
            return f"a finite number {low}" if self.above else f"a finite number {low} on"
        return f"a number {low} {'to below' if self.below else 'to'} {self.most:g}"


_COUNT = Range(1)
_SHARE = Range(0, 1, below=True)
_SEED = Range(0, 2**32 - 1)
RANGES = {
    # As a recipe's `lr`, `weight_decay` and `adam_epsilon`.
    "learning_rate": Range(1e-12, 10),
    "weight_decay": Range(0, 10),
    "adam_epsilon": Range(0, 1, above=True),
    "adam_beta1": _SHARE,
    "adam_beta2": _SHARE,
    "max_grad_norm": Range(0),
    "warmup_steps": Range(0),
    "num_train_epochs": Range(0, above=True),
    "max_steps": Range(-1),
    "per_device_train_batch_size": _COUNT,
    "per_device_eval_batch_size": _COUNT,
    "gradient_accumulation_steps": _COUNT,
    "eval_accumulation_steps": _COUNT,
    "eval_delay": Range(0),
    "logging_steps": Range(0, above=True),
    "save_steps": Range(0, above=True),
    "eval_steps": Range(0, above=True),
    "save_total_limit": _COUNT,
    "torch_empty_cache_steps": _COUNT,
    "dataloader_num_workers": Range(0),
    "dataloader_prefetch_factor": _COUNT,
    "neftune_noise_alpha": Range(0),
    "seed": _SEED,
    "data_seed": _SEED,
}
"""What a number may be, where it is given."""


def value_problems(args: TrainingArguments, callbacks: Iterable[Any]) -> list[Problem]:
    """Numbers beyond their ranges, and a patience of no time."""
    problems = []
    for name, range_ in RANGES.items():
        value = getattr(args, name, None)
        if name == "num_train_epochs" and args.max_steps > 0:  # which decides
            continue
        if isinstance(value, int | float) and not range_.holds(value):
            problems.append(Problem(f"args.{name}={value!r} means nothing", f"give {range_}"))
    for callback in callbacks:
        if isinstance(callback, EarlyStoppingCallback) and callback.early_stopping_patience < 1:
            problems.append(
                Problem(
                    f"callbacks: early_stopping_patience={callback.early_stopping_patience} stops at "
                    "the first score",
                    "give 1 or more, or leave the callback out",
                )
            )
    return problems
