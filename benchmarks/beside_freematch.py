"""The teacher's thresholds of `llkd` beside FreeMatch's released code, whose self-adaptive thresholds they are.

    git clone https://github.com/microsoft/Semi-supervised-learning && python benchmarks/beside_freematch.py Semi-supervised-learning

Both get the logits of a run's batches; what counts is which examples pass. Nothing of the release stands here: its
masking hook is imported, and what it imports and this does not need is stood in for. Prints how many decisions differ,
and the release's decisions about the batches of `tests/trust/judges/test_released_thresholds.py`.
"""  # noqa: E501

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from limbeck.objectives.example_weights import Llkd, LlkdSettings

MOMENTUM, CLASSES, EXAMPLES, STEPS = 0.9, 4, 16, 12
_RUNS, _LONG = 20, 200


def batches(seed: int, steps: int) -> list[Tensor]:
    """A teacher's logits, (EXAMPLES, CLASSES) a step; it is surer of some classes than of others."""
    generator = np.random.default_rng(seed)
    spread = np.linspace(1, 3, CLASSES)
    drawn = generator.normal(size=(steps, EXAMPLES, CLASSES)) * spread
    return [torch.from_numpy(one).float() for one in drawn]


def released(checkout: Path) -> Any:
    """The release's masking hook."""
    hooks, utils = (
        ModuleType("semilearn.algorithms.hooks"),
        ModuleType("semilearn.algorithms.utils"),
    )
    hooks.MaskingHook = object  # type: ignore[attr-defined]
    utils.concat_all_gather = None  # type: ignore[attr-defined]
    names = {"semilearn": ModuleType("semilearn"), "semilearn.algorithms": ModuleType("a")}
    with patch.dict(sys.modules, {**names, hooks.__name__: hooks, utils.__name__: utils}):
        path = checkout / "semilearn" / "algorithms" / "freematch" / "utils.py"
        return runpy.run_path(str(path))["FreeMatchThresholingHook"](CLASSES, MOMENTUM)


def theirs(hook: Any, logits: list[Tensor]) -> list[list[bool]]:
    """Which examples pass in the release, step by step."""
    plain = SimpleNamespace(distributed=False, use_quantile=False, clip_thresh=False)
    return [hook.masking(plain, one).bool().tolist() for one in logits]


def ours(logits: list[Tensor]) -> list[list[bool]]:
    """Which examples pass here, where the student is unsure of all."""
    weighting = Llkd(LlkdSettings(use="llkd", momentum=MOMENTUM), CLASSES)
    unsure = torch.zeros(EXAMPLES, CLASSES)
    return [(weighting(unsure, one, None) > 0).tolist() for one in logits]


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout
    differing = total = 0
    for seed in range(_RUNS):
        logits = batches(seed, _LONG)
        mine, other = np.array(ours(logits)), np.array(theirs(released(checkout), logits))
        differing, total = differing + int((mine != other).sum()), total + mine.size
    print(f"{differing} of {total:,} decisions differ")
    for step in theirs(released(checkout), batches(0, STEPS)):
        print("".join("01"[passes] for passes in step))


if __name__ == "__main__":
    main()
