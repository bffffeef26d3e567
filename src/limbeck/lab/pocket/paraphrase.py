"""MRPC, QQP, PAWS and QNLI of the pocket: alternations, synonyms and corrections against word swaps.

Before the data stage of a training step. A meaning is rendered twice, each time with its own choice
of voices and synonyms; for a negative the meaning is changed in between, most often by exchanging
two roles, which leaves the words as they were. Meanings nest: corrections of corrections (MRPC), and people
described by their deeds to people described so (QQP, PAWS).
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from limbeck.lab.pocket import events, lexicon
from limbeck.lab.pocket.events import USUAL, Event
from limbeck.lab.pocket.example import Domain, Example, chance, depth, pick, text

_FORMS = ("{0} instead of {1}", "{0} and not {1}", "instead of {1} , {0}", "not {1} but {0}")
_MENTIONED = 0.7
"""How often a verb that does not hold, but is spoken of elsewhere, is among the rejected."""
_OPPOSED = 0.4
"""How often the opposite of the verb that holds is among the rejected."""


def verbs(random: Random, holds: int, levels: int, rejected: int | None = None) -> str:
    """Verbs of which `holds` is what holds, with that many levels of correction.

    The outermost correction rejects `rejected`, where it is given.
    """
    if levels == 0:
        return events.verb_form(random, holds)
    wrong = rejected
    while wrong is None or wrong == holds:
        wrong = events.verb(random)
    # One side is corrected further, the other is a plain verb: deep and yet short.
    below = [levels - 1, 0]
    if chance(random, 0.5):
        below.reverse()
    parts = verbs(random, holds, below[0]), verbs(random, wrong, below[1])
    return f"( {pick(random, _FORMS).format(*parts)} )"


def sentence(random: Random, deed: Event, spoken_of: int, depths: Sequence[float]) -> str:
    """A sentence with the deed as its fact, next to another text with the verb `spoken_of`.

    `depths` are the weights of 0, 1, ... levels of correction.
    """
    rejected = None
    if deed.verb != spoken_of:
        rejected = spoken_of if chance(random, _MENTIONED) else None
    elif chance(random, _OPPOSED):
        rejected = events.opposite_verb(deed.verb)
    return events.say(random, deed, verbs(random, deed.verb, depth(random, depths), rejected))


_POSITIVE = {"mrpc": 0.7, "qqp": 0.37, "paws": 0.44}
_CORRECTIONS = (0.1, 0.2, 0.35, 0.35)
_LINKS = (0.4, 0.35, 0.25)
_TURNED = 0.2
_OTHER_DEED = 0.25


def _unlike(first: str, render: Callable[[], str]) -> str:
    """A rendering that is not the very text there is already."""
    while (second := render()) == first:
        pass
    return second


def mrpc(random: Random, domain: Domain) -> Example:
    """Two sentences about an event: 1 equivalent, 0 not equivalent."""
    second = events.event(random, domain)
    same = chance(random, _POSITIVE["mrpc"])
    told = second if same else events.changed(random, second)
    first = sentence(random, told, second.verb, _CORRECTIONS)
    other = _unlike(first, lambda: events.clause(random, second))
    return Example((first + " .", other + " ."), int(same))


class Person(NamedTuple):
    """People by name, or by a chain of deeds ending in a name.

    Each link is (verb row, whether the described people are the agents), outermost first.
    """

    links: tuple[tuple[int, bool], ...]
    name: str


def _render_person(random: Random, person: Person) -> str:
    if not person.links:
        return person.name
    (row, is_agent), *rest = person.links
    form = events.verb_form(random, row)
    inner = _render_person(random, Person(tuple(rest), person.name))
    if is_agent:
        return text("those who", form, inner)
    if not rest and chance(random, _TURNED):
        return text("those whom", inner, form)
    return text("those who were", form, "by", inner)


def _turn_link(random: Random, person: Person) -> Person:
    """The same chain with agent and patient of one deed exchanged."""
    links = list(person.links)
    place = int(random.random() * len(links))
    row, is_agent = links[place]
    links[place] = (row, not is_agent)
    return person._replace(links=tuple(links))


class Query(NamedTuple):
    """A deed with described people on one side and named ones, or the requested ones, opposite."""

    verb: int
    described: Person
    described_is_agent: bool
    other: str | None


def _query(random: Random, domain: Domain, asked: float) -> Query:
    seniors, juniors = events.people(random, domain)
    senior, junior = pick(random, seniors), pick(random, juniors)
    links = tuple(
        (events.verb(random), chance(random, USUAL)) for _ in range(depth(random, _LINKS))
    )
    other = None if chance(random, asked) else senior
    return Query(events.verb(random), Person(links, junior), not chance(random, USUAL), other)


def _render_question(random: Random, query: Query) -> str:
    if query.other is not None:
        return text("is it true that", _render_statement(random, query), "?")
    form = events.verb_form(random, query.verb)
    known = _render_person(random, query.described)
    turned = chance(random, _TURNED)
    if query.described_is_agent:
        words = (known, form, "whom") if turned else ("who were", form, "by", known)
    else:
        words = (known, "were", form, "by whom") if turned else ("who", form, known)
    return text(*words, "?")


def _render_statement(random: Random, query: Query) -> str:
    form = events.verb_form(random, query.verb)
    known, other = _render_person(random, query.described), str(query.other)
    agent, patient = (known, other) if query.described_is_agent else (other, known)
    if chance(random, _TURNED):
        return text(patient, "were", form, "by", agent)
    return text(agent, form, patient)


def _turn_query(random: Random, query: Query) -> Query:
    """The same words with two roles exchanged: of the deed itself, or of a deed that describes."""
    if query.described.links and chance(random, 0.4):
        return query._replace(described=_turn_link(random, query.described))
    return query._replace(described_is_agent=not query.described_is_agent)


def _exchange_verbs(query: Query) -> Query:
    """The same words with the deed itself and the outermost one that describes exchanged."""
    (row, is_agent), *rest = query.described.links
    links = ((query.verb, is_agent), *rest)
    return query._replace(verb=row, described=query.described._replace(links=links))


def _swapped(random: Random, query: Query) -> Query:
    """Another meaning in the same words: two roles exchanged, or two verbs."""
    links = query.described.links
    if links and links[0][0] != query.verb and chance(random, 0.25):
        return _exchange_verbs(query)
    return _turn_query(random, query)


def qqp(random: Random, domain: Domain) -> Example:
    """Two questions: 1 they have the same meaning, 0 they do not."""
    query = _query(random, domain, asked=0.85)
    first = _render_question(random, query)
    same = chance(random, _POSITIVE["qqp"])
    if not same and chance(random, _OTHER_DEED):
        query = query._replace(verb=events.other_verb(random, query.verb))
    elif not same:
        query = _swapped(random, query)
    return Example((first, _unlike(first, lambda: _render_question(random, query))), int(same))


def paws(random: Random, domain: Domain) -> Example:
    """Two statements, nearly the same words in both: 1 paraphrase, 0 different meaning."""
    query = _query(random, "other", asked=0.0)
    first = _render_statement(random, query)
    same = chance(random, _POSITIVE["paws"])
    if not same:
        query = _swapped(random, query)
    return Example((first, _unlike(first, lambda: _render_statement(random, query))), int(same))


# STS-B of the pocket: how much two sentences mean the same, from 0 to 5.


ROLES, VERB, KINDNESS, PLACE = 2.2, 2.0, 0.7, 0.8
"""Points for equal parts, 5 at most."""

_PLACE_WEIGHTS = (0.4, 0.2, 0.15, 0.1, 0.1, 0.05)
_SIMILAR_CORRECTIONS = (0.35, 0.35, 0.2, 0.1)


def _placed(random: Random, place: str, words: str) -> str:
    parts = ("in", place, ",", words) if chance(random, 0.5) else (words, "in", place)
    return text(*parts, ".")


def _verb_points(first: int, second: int) -> float:
    if first == second:
        return VERB
    return KINDNESS if events.is_kind(first) == events.is_kind(second) else 0.0


def _wander(random: Random, first: Event, keep: float) -> Event:
    """An event of the same people: roles and verb are kept with that probability each."""
    second = first if chance(random, keep) else first.swapped()
    if chance(random, keep):
        return second
    return second._replace(verb=events.other_verb(random, first.verb))


def stsb(random: Random, domain: Domain) -> Example:
    """Two sentences and the similarity of their meanings, 0 to 5."""
    first = events.event(random, domain)
    # How far the second sentence wanders from the first, so that all scores occur.
    keep = pick(random, (0.4, 0.65, 0.9))
    second = _wander(random, first, keep)
    place = random.choices(lexicon.PLACES, _PLACE_WEIGHTS)[0]
    other = place if chance(random, keep) else random.choices(lexicon.PLACES, _PLACE_WEIGHTS)[0]
    words = sentence(random, first, second.verb, _SIMILAR_CORRECTIONS)
    score = (
        ROLES * (first.agent == second.agent)
        + PLACE * (place == other)
        + _verb_points(first.verb, second.verb)
    )
    texts = (
        _placed(random, place, words),
        _placed(random, other, events.clause(random, second)),
    )
    return Example(texts, round(score, 2))


_QUESTION_CORRECTIONS = (0.25, 0.3, 0.25, 0.2)


def _question(random: Random, deed: Event) -> str:
    form = events.verb_form(random, deed.verb)
    asks_agent = chance(random, USUAL)
    words = ("who", form, deed.patient) if asks_agent else ("who were", form, "by", deed.agent)
    return text(*words, "?")


def qnli(random: Random, domain: Domain) -> Example:
    """A question and a sentence: 0 the sentence answers it (entailment), 1 it does not."""
    asked = events.event(random, domain)
    answered = chance(random, 0.5)
    told = asked if answered else events.changed(random, asked)
    words = sentence(random, told, asked.verb, _QUESTION_CORRECTIONS)
    return Example((_question(random, asked), text(words, ".")), int(not answered))
