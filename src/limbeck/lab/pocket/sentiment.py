"""SST-2 and IMDb of the pocket: scoped negation and contrast, nested.

Before the data stage of a training step. A review is a tree: "not dull plot" turns a quality round,
"critics deny X" turns a whole opinion round, and of two opinions the contrast word says which one
counts ("X but Y": Y; "although X , Y": Y; "X though Y": X; "X despite Y": X). Brackets show what
belongs together. The label is the sentiment of the whole. Words alone say little about it: the
opinion that loses has words too.
"""

from __future__ import annotations

from random import Random

from limbeck.lab.pocket import lexicon
from limbeck.lab.pocket.example import Domain, Example, chance, depth, pick

_DEPTHS = (0.0, 0.3, 0.2, 0.15, 0.15, 0.2)
_FLIP = 0.25
_LONGEST = 26


def opinion(random: Random, levels: int, domain: Domain) -> tuple[list[str], bool]:
    """The words of an opinion with that many levels of nesting, and whether it is positive."""
    if levels == 0:
        return _quality(random, domain)
    if chance(random, 0.35):
        words, positive = opinion(random, levels - 1, domain)
        denied = chance(random, _FLIP)
        verb = pick(random, lexicon.DENYING if denied else lexicon.ASSERTING)
        return [pick(random, lexicon.AUDIENCES), verb, *words], positive != denied
    return _contrast(random, levels, domain)


def _quality(random: Random, domain: Domain) -> tuple[list[str], bool]:
    nouns = lexicon.ASPECTS if domain == "main" else lexicon.OTHER_ASPECTS
    if domain == "main" and chance(random, 0.03):
        nouns = lexicon.OTHER_ASPECTS
    positive, negated = chance(random, 0.5), chance(random, _FLIP)
    adjective = pick(random, lexicon.POSITIVE if positive else lexicon.NEGATIVE)
    negator = [pick(random, lexicon.NEGATORS)] if negated else []
    return [*negator, adjective, pick(random, nouns)], positive != negated


def _contrast(random: Random, levels: int, domain: Domain) -> tuple[list[str], bool]:
    # One side reaches the full depth, the other any depth below it.
    below = [levels - 1, int(random.random() * levels)]
    if chance(random, 0.5):
        below.reverse()
    first, first_positive = opinion(random, below[0], domain)
    second, second_positive = opinion(random, below[1], domain)
    word = pick(random, ("but", "although", "though", "despite"))
    if word == "although":
        return ["(", word, *first, ",", *second, ")"], second_positive
    counts = second_positive if word == "but" else first_positive
    return ["(", *first, word, *second, ")"], counts


def _short_opinion(random: Random, domain: Domain) -> tuple[list[str], bool]:
    while True:
        words, positive = opinion(random, depth(random, _DEPTHS), domain)
        if len(words) <= _LONGEST:
            return words, positive


def sst2(random: Random, domain: Domain) -> Example:
    """A phrase with its sentiment: 0 negative, 1 positive."""
    words, positive = _short_opinion(random, domain)
    return Example((" ".join(words),), int(positive))


def imdb(random: Random, domain: Domain) -> Example:
    """A short review of other films, with sentences that say nothing around the opinion."""
    words, positive = _short_opinion(random, "other")
    before, after = (pick(random, ("", *lexicon.FILLERS)) for _ in range(2))
    sentences = [part for part in (before, " ".join(words), after) if part]
    return Example((" . ".join(sentences) + " .",), int(positive))
