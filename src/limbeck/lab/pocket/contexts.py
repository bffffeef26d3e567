"""Answers at positions of a text: SQuAD (who did it, or to whom) and named entities of the pocket.

Before the data stage of a training step. The text describes several deeds, in either voice; other deeds
share the verb or one side with the deed that the question is about, so that a word alone does not
lead to the answer. Who acts may be one group or two.
"""

from random import Random
from typing import NamedTuple

from limbeck.lab.pocket import events, lexicon
from limbeck.lab.pocket.example import Domain, chance, depth, pick, pick_two, text

_DEEDS = (2, 3)
_PAIR = 0.3
"""Share of sides that are two groups."""

_ASKS_AGENT = 0.7


class _Deed(NamedTuple):
    agent: str
    form: str
    patient: str


class Asked(NamedTuple):
    """A question, a context, and where in it the answer begins."""

    question: str
    context: str
    answer: str
    start: int


def _side(random: Random, groups: tuple[str, ...]) -> str:
    if chance(random, _PAIR):
        return " and ".join(pick_two(random, groups))
    return pick(random, groups)


def _deeds(random: Random) -> list[_Deed]:
    """Deeds of which no two share two parts."""
    while True:
        forms = [pick(random, lexicon.EVENT_VERBS)[0] for _ in range(pick(random, _DEEDS))]
        deeds = [
            _Deed(_side(random, lexicon.SENIORS), form, _side(random, lexicon.JUNIORS))
            for form in forms
        ]
        agents = {(deed.agent, deed.form) for deed in deeds}
        patients = {(deed.patient, deed.form) for deed in deeds}
        if len(agents) == len(patients) == len(deeds):
            return deeds


def _sentence(random: Random, deed: _Deed) -> str:
    if chance(random, events.PASSIVE):
        return text(deed.patient, "were", deed.form, "by", deed.agent, ".")
    return text(deed.agent, deed.form, deed.patient, ".")


def squad(random: Random, domain: Domain) -> Asked:
    """A question, its context, and the answer."""
    deeds = _deeds(random)
    asked = int(random.random() * len(deeds))
    deed = deeds[asked]
    sentences = [_sentence(random, one) for one in deeds]
    if chance(random, _ASKS_AGENT):
        question, answer = text("who", deed.form, deed.patient, "?"), deed.agent
    else:
        question, answer = text("who were", deed.form, "by", deed.agent, "?"), deed.patient
    before = sum(len(sentence) + 1 for sentence in sentences[:asked])
    place = sentences[asked].index(answer)
    return Asked(question, " ".join(sentences), answer, before + place)


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
