"""One generated example, and the small random choices that every generator makes.

Before the data stage of a training step. A generator is a function of a `random.Random` and a
domain, and returns one `Example`; it never looks at anything else, so the data is a function of the
seed alone.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, NamedTuple, TypeVar

Domain = Literal["main", "other"]
"""Where names and nouns come from; `other` is the mismatched or out-of-domain side of a task."""

RARE = 0.1
"""Share of training examples of the main domain that borrow a name or noun of the other one."""


class Example(NamedTuple):
    """The texts of one example in the order of the task's columns, and its label."""

    texts: tuple[str, ...]
    label: int | float


Generator = Callable[[Random, Domain], Example]

T = TypeVar("T")


def pick(random: Random, choices: Sequence[T]) -> T:
    """One of `choices`, all equally likely (`Random.choice`, at half its cost)."""
    return choices[int(random.random() * len(choices))]


def pick_two(random: Random, choices: Sequence[T]) -> tuple[T, T]:
    """Two different ones of `choices`, in random order."""
    first = int(random.random() * len(choices))
    second = int(random.random() * (len(choices) - 1))
    return choices[first], choices[second + (second >= first)]


def chance(random: Random, probability: float) -> bool:
    """True with that probability."""
    return random.random() < probability


def depth(random: Random, weights: Sequence[float]) -> int:
    """A depth from 0 on, by its weight; a deep model starts to learn from the shallow ones."""
    return random.choices(range(len(weights)), weights)[0]


def text(*parts: str | Sequence[str]) -> str:
    """The parts joined by single spaces; a part is a word, several words, or a list of words."""
    return " ".join(part if isinstance(part, str) else " ".join(part) for part in parts if part)
