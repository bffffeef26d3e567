"""SQuAD 1.1's two scores of an answer: exact match and token F1. Part of `limbeck.tasks`.

Rajpurkar et al. 2016, §6.1: answers are compared without case, punctuation and articles, and with
the best of the given right answers.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(answer: str) -> str:
    """Lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, right: Sequence[str]) -> float:
    """1 if the answer equals one of the right ones, else 0."""
    return float(normalise(answer) in {normalise(one) for one in right})


def token_f1(answer: str, right: Sequence[str]) -> float:
    """The best F1, 0 to 1, of the answer's words against a right answer's words.

    Without a shared word it is 0, also where normalising leaves no word of either: version 2.0
    alone takes that for a right "no answer".
    """
    return max(_f1(normalise(answer).split(), normalise(one).split()) for one in right)


def _f1(given: list[str], right: list[str]) -> float:
    shared = sum((Counter(given) & Counter(right)).values())
    return 2 * shared / (len(given) + len(right)) if shared else 0.0
