"""Which words of a row each augmented example replaces, and by what. Part of `limbeck.lab.augmentation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from limbeck.lab.augmentation.word_positions import spelt_like


class ReplaceableWord(NamedTuple):
    """A word of a text that may change: characters `start` to `end`, and what may stand there."""

    start: int
    end: int
    choices: Sequence[str]


def augmented_examples_of(
    texts: Sequence[str],
    replaceable: Sequence[Sequence[ReplaceableWord]],
    *,
    row: int,
    examples: int,
    probability: float,
    seed: int,
) -> list[tuple[str, ...]]:
    """The augmented examples of one row that differ from it and from each other, in the order of their numbers.

    Whether augmented example n replaces a word, and by which candidate, is a function of (seed, row, n): asking
    for more augmented examples adds some and changes none. A candidate may be the word itself.

    Args:
        texts: the row's text columns.
        replaceable: for each of them the words that may change, from left to right.
        row: the row's number.
    """
    made = []
    for draw in random_numbers_of(row, examples, sum(len(own) for own in replaceable), seed):
        example, first = [], 0
        for text, own in zip(texts, replaceable, strict=True):
            example.append(_replaced(text, own, draw[first : first + len(own)], probability))
            first += len(own)
        made.append(tuple(example))
    return distinct(tuple(texts), made)


def random_numbers_of(row: int, examples: int, words: int, seed: int) -> np.ndarray:
    """(augmented examples, words, 2) numbers in [0, 1): is the word replaced, and by which candidate.

    Filled one augmented example at a time, so that the numbers of the first do not depend on how many follow.
    """
    return np.random.default_rng([seed, row]).random((examples, words, 2))


def distinct(row: tuple[str, ...], examples: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The augmented examples that differ from the row and from those before them, in their order."""
    return [example for example in dict.fromkeys(examples) if example != row]


def _replaced(
    text: str, replaceable: Sequence[ReplaceableWord], draw: np.ndarray, probability: float
) -> str:
    """One text with some words replaced; `draw` (words, 2) says whether, and by which."""
    parts, end = [], 0
    for word, (whether, which) in zip(replaceable, draw.tolist(), strict=True):
        if whether < probability and word.choices:
            choice = word.choices[int(which * len(word.choices))]
            parts += [text[end : word.start], spelt_like(text[word.start : word.end], choice)]
            end = word.end
    return "".join([*parts, text[end:]])
