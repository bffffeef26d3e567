"""CoLA of the pocket: every verb agrees with its own subject, across attractors.

Before the data stage of a training step. Subjects are held from their verbs by prepositional
phrases and by relative clauses, which nest ("the dogs that the girl near the cats sees sleep"). An
unacceptable sentence has exactly one verb in the wrong number. Nouns of both numbers are
everywhere, so neither the words nor the nearest noun tell.
"""

from __future__ import annotations

from random import Random

from limbeck.lab.pocket import lexicon
from limbeck.lab.pocket.example import Domain, Example, chance, depth, pick

_NOUNS = tuple(lexicon.COUNT_NOUNS.items())
_INTRANSITIVE = tuple(lexicon.INTRANSITIVE.items())
_TRANSITIVE = tuple(lexicon.TRANSITIVE.items())
_DEPTHS = (0.35, 0.25, 0.25, 0.15)
_ACCEPTABLE = 0.7
_LONGEST = 18


class _Sentence:
    """The words so far, and where the verbs stand with their form in the other number."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.words: list[str] = []
        self.verbs: list[tuple[int, str]] = []

    def verb(self, forms: tuple[tuple[str, str], ...], plural: bool) -> None:
        form = pick(self.random, forms)
        self.verbs.append((len(self.words), form[not plural]))
        self.words.append(form[plural])

    def noun_phrase(self, levels: int) -> bool:
        """Write a noun phrase with that many levels of modifiers; returns whether it is plural."""
        plural = chance(self.random, 0.5)
        self.words += ["the", pick(self.random, _NOUNS)[plural]]
        if levels == 0:
            return plural
        kind = self.random.random()
        if kind < 0.35:
            self.words.append(pick(self.random, lexicon.PREPOSITIONS))
            self.noun_phrase(levels - 1)
            return plural
        self.words.append("that")
        if kind < 0.6:
            self.verb(_TRANSITIVE, plural)
            self.noun_phrase(levels - 1)
        else:
            self.verb(_TRANSITIVE, self.noun_phrase(levels - 1))
        return plural


def cola(random: Random, domain: Domain) -> Example:
    """A sentence: 1 acceptable, 0 one verb does not agree with its subject."""
    while True:
        sentence = _Sentence(random)
        plural = sentence.noun_phrase(depth(random, _DEPTHS))
        if chance(random, 0.5):
            sentence.verb(_INTRANSITIVE, plural)
        else:
            sentence.verb(_TRANSITIVE, plural)
            sentence.noun_phrase(depth(random, (0.6, 0.3, 0.1)))
        if len(sentence.words) <= _LONGEST:
            break
    acceptable = chance(random, _ACCEPTABLE)
    if not acceptable:
        position, other_form = pick(random, sentence.verbs)
        sentence.words[position] = other_form
    return Example((" ".join(sentence.words) + " .",), int(acceptable))
