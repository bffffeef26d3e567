"""Whether two trainings came to the same weights, on any processor.

Two runs that differ in rounding alone do not end equal. Adam divides a gradient by its own size, so a
weight whose gradient is rounding noise is moved by whole learning rates, in a direction that differs
from processor to processor. Attention's key bias is the extreme: softmax removes it, so its true
gradient is zero. It is left out. For all others the difference is held, as root mean square over a
weight tensor, against how far Adam can have moved it: the sum of the learning rates. A wrong term, a
lost row or another order of rows moves weights elsewhere by about that sum.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from limbeck.records import Record

SHARE = 1e-3
"""Of the way that a weight may differ. Other rounding moves weights apart by less than 1e-6 of it, and
key biases by 1e-4."""

_KEY_BIAS = re.compile(r"(key|k_lin|k_proj)\.bias$")


def without_true_gradient(name: str) -> bool:
    """Whether a weight is one that no loss depends on: attention's key bias."""
    return _KEY_BIAS.search(name) is not None


def travelled(record: Record) -> float:
    """The sum of the learning rates of a run's last stage: they rise to the peak and fall to zero in straight lines."""
    steps = max(epoch.step for epoch in record.epochs)
    return record.recipe["lr"] * steps / 2


def assert_trained_alike(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], *, travelled: float
) -> None:
    """Hold two trainings' weights against each other.

    Args:
        ours, theirs: weights by name.
        travelled: sum of the learning rates of all steps.
    """
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        if without_true_gradient(name) or not weight.is_floating_point():
            continue
        apart = (weight - theirs[name]).float().pow(2).mean().sqrt().item()
        assert apart <= SHARE * travelled, f"{name}: {apart / travelled:.1%} of the way apart"
