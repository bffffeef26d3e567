"""SST-2 and IMDb of the pocket: scoped negation and contrast, nested.

Before the data stage of a training step. A review is a tree: "not dull plot" turns a quality round,
"critics deny X" turns a complete opinion round, and of two opinions the contrast word decides which one
counts ("X but Y": Y; "although X , Y": Y; "X though Y": X; "X despite Y": X). Brackets show what
belongs together. The label is the sentiment of the complete text. Words alone are little evidence: the
opinion that loses has words too.
"""

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
    """A short review of other films, with neutral sentences around the opinion."""
    words, positive = _short_opinion(random, "other")
    before, after = (pick(random, ("", *lexicon.FILLERS)) for _ in range(2))
    sentences = [part for part in (before, " ".join(words), after) if part]
    return Example((" . ".join(sentences) + " .",), int(positive))


# CoLA of the pocket: every verb agrees with its own subject, across attractors.


_NOUNS = tuple(lexicon.COUNT_NOUNS.items())
_INTRANSITIVE = tuple(lexicon.INTRANSITIVE.items())
_TRANSITIVE = tuple(lexicon.TRANSITIVE.items())
_AGREEMENT_DEPTHS = (0.35, 0.25, 0.25, 0.15)
_ACCEPTABLE = 0.7
_LONGEST_AGREEMENT = 18


class _Sentence:
    """The words so far, and the positions of the verbs with their form in the other number."""

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
        plural = sentence.noun_phrase(depth(random, _AGREEMENT_DEPTHS))
        if chance(random, 0.5):
            sentence.verb(_INTRANSITIVE, plural)
        else:
            sentence.verb(_TRANSITIVE, plural)
            sentence.noun_phrase(depth(random, (0.6, 0.3, 0.1)))
        if len(sentence.words) <= _LONGEST_AGREEMENT:
            break
    acceptable = chance(random, _ACCEPTABLE)
    if not acceptable:
        position, other_form = pick(random, sentence.verbs)
        sentence.words[position] = other_form
    return Example((" ".join(sentence.words) + " .",), int(acceptable))
