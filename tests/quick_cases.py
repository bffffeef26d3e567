"""Which cases of a test run by default: the others, of the same kind, are slow ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

# Of one stage and two, layers in turn, teams, encoder–decoders, lists and embeddings: a method each.
ONE_OF_A_KIND = (
    *("finetune", "kd", "tinybert", "internal-kd-pid-soft", "cr-ild", "rail-kd-l", "alp-kd"),
    *("bert-emd", "codir", "skd-student-rank", "skd-best-of", "takd", "wkd-uniform", "l-ild-t5"),
    *("embedding-contrast", "listwise-kl"),
)


def quick(*kept: Any, of: Iterable[Any]) -> list[Any]:
    """All values of a parameter; those that are not kept are marked slow."""
    slow = pytest.mark.slow
    return [
        one
        if one in kept
        else pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=slow)
        for one in of
    ]
