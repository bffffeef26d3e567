"""The draws: which words of a row each copy replaces, and by what. Part of `limbeck.lab.augmentation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from limbeck.lab.augmentation.word_positions import spelt_like


class Slot(NamedTuple):
    """A word of a text that may change: characters `start` to `end`, and what may stand there."""

    start: int
    end: int
    choices: Sequence[str]


def copies_of(
    texts: Sequence[str],
    slots: Sequence[Sequence[Slot]],
    *,
    row: int,
    copies: int,
    probability: float,
    seed: int,
) -> list[tuple[str, ...]]:
    """The copies of one row that differ from it and from each other, in the order of their numbers.

    Whether copy n replaces a word, and by which candidate, is a function of (seed, row, n): asking
    for more copies adds some and changes none. A candidate may be the word itself.

    Args:
        texts: the row's text columns.
        slots: for each of them the words that may change, from left to right.
        row: the row's number.
    """
    made = []
    for draw in draws_of(row, copies, sum(len(own) for own in slots), seed):
        copy, first = [], 0
        for text, own in zip(texts, slots, strict=True):
            copy.append(_replaced(text, own, draw[first : first + len(own)], probability))
            first += len(own)
        made.append(tuple(copy))
    return distinct(tuple(texts), made)


def draws_of(row: int, copies: int, words: int, seed: int) -> np.ndarray:
    """(copies, words, 2) numbers in [0, 1): is the word replaced, and by which candidate.

    Filled copy by copy, so that the numbers of the first copies do not depend on how many follow.
    """
    return np.random.default_rng([seed, row]).random((copies, words, 2))


def distinct(row: tuple[str, ...], copies: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The copies that differ from the row and from those before them, in their order."""
    return [copy for copy in dict.fromkeys(copies) if copy != row]


def _replaced(text: str, slots: Sequence[Slot], draw: np.ndarray, probability: float) -> str:
    """One text with some words replaced; `draw` (words, 2) says whether, and by which."""
    parts, end = [], 0
    for slot, (whether, which) in zip(slots, draw.tolist(), strict=True):
        if whether < probability and slot.choices:
            choice = slot.choices[int(which * len(slot.choices))]
            parts += [text[end : slot.start], spelt_like(text[slot.start : slot.end], choice)]
            end = slot.end
    return "".join([*parts, text[end:]])
