"""Named entities of the pocket: who, which body and where, told apart by what stands around a name.

Before the data stage of a training step. Cities and people share their names in part: a name is a
place after a preposition, a body before a group ("rome judges"), and a person where someone acts or
is acted on; a second name is the surname. "the judges" are no entity.
"""

from random import Random

from limbeck.lab.pocket import events, lexicon
from limbeck.lab.pocket.example import Domain, chance, depth, pick

Tagged = list[tuple[str, str]]
"""Words with their tags."""

_PEOPLE = (*lexicon.WOMEN, *lexicon.MEN)
_GROUPS = (*lexicon.SENIORS, *lexicon.JUNIORS)
_BORROWED = 0.25
"""Share of names that are more usual for another kind of entity."""

_NEAR = ("in", *lexicon.PREPOSITIONS)
_CLAUSES = (0.5, 0.35, 0.15)
_LONGEST = 30


def _name(random: Random, usual: tuple[str, ...], other: tuple[str, ...]) -> str:
    return pick(random, other if chance(random, _BORROWED) else usual)


def _person(random: Random) -> Tagged:
    words = [(_name(random, _PEOPLE, lexicon.PLACES), "B-PER")]
    if chance(random, 0.4):
        words.append((_name(random, lexicon.PLACES, _PEOPLE), "I-PER"))
    return words


def _body(random: Random) -> Tagged:
    place = _name(random, lexicon.PLACES, _PEOPLE)
    return [(place, "B-ORG"), (pick(random, _GROUPS), "I-ORG")]


def _someone(random: Random) -> Tagged:
    drawn = random.random()
    if drawn < 0.45:
        return _person(random)
    if drawn < 0.7:
        return _body(random)
    return _outside("the", pick(random, _GROUPS))


def _outside(*words: str) -> Tagged:
    return [(word, "O") for word in words]


def _clause(random: Random) -> Tagged:
    first, second = _someone(random), _someone(random)
    form = events.verb_form(random, events.verb(random))
    if chance(random, events.PASSIVE):
        words = [*first, *_outside("were", form, "by"), *second]
    else:
        words = [*first, *_outside(form), *second]
    if chance(random, 0.4):
        place = (_name(random, lexicon.PLACES, _PEOPLE), "B-LOC")
        words += [*_outside(pick(random, _NEAR)), place]
    return words


def ner(random: Random, domain: Domain) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a sentence and a tag for each."""
    while True:
        words = _clause(random)
        for _ in range(depth(random, _CLAUSES)):
            words += [*_outside(pick(random, ("and", "but", "because"))), *_clause(random)]
        if len(words) < _LONGEST:
            words += _outside(".")
            return tuple(word for word, _ in words), tuple(tag for _, tag in words)
