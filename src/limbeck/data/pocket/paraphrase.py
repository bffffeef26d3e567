"""MRPC, QQP and PAWS of the pocket: alternations and synonyms against word swaps.

Before the data stage of a training step. A meaning is rendered twice, each time with its own choice
of voice and synonyms; for a negative the meaning is changed in between, most often by exchanging two
roles, which leaves the words as they were. Meanings nest: reports of reports (MRPC), and people
described by what they did to people described so (QQP, PAWS).
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from limbeck.data.pocket import events, lexicon
from limbeck.data.pocket.events import Event
from limbeck.data.pocket.example import Domain, Example, chance, depth, pick, pick_two, text

_POSITIVE = {"mrpc": 0.68, "qqp": 0.37, "paws": 0.44}
_REPORTS = (0.4, 0.35, 0.25)
_LINKS = (0.35, 0.35, 0.3)


class Report(NamedTuple):
    """Somebody's saying; `verb` is a row of `lexicon.REPORTING`."""

    speaker: str
    verb: int


def _render_story(random: Random, reports: list[Report], deed: Event) -> str:
    words = []
    for speaker, row in reports:
        form = pick(random, lexicon.REPORTING[row])
        active = chance(random, 0.5)
        words.append(f"{speaker} {form} that" if active else f"it was {form} by {speaker} that")
    return text(*words, events.clause(random, deed), ".")


def _change_story(
    random: Random, reports: list[Report], deed: Event, names: tuple[str, ...]
) -> tuple[list[Report], Event]:
    kind = random.random()
    free = [
        name
        for name in names
        if name not in (deed.agent, deed.patient, *(report.speaker for report in reports))
    ]
    if kind < 0.15 and free:
        return reports, deed._replace(agent=pick(random, free))
    if kind < 0.3:
        return reports, deed._replace(verb=events.another_verb(random, deed.verb))
    if kind < 0.75 or not reports:
        return reports, deed.swapped()
    # Exchange a speaker with the next one down, or the last speaker with the agent.
    place = int(random.random() * len(reports))
    changed = list(reports)
    if place + 1 < len(reports):
        below = changed[place + 1]
        changed[place + 1] = below._replace(speaker=changed[place].speaker)
        changed[place] = changed[place]._replace(speaker=below.speaker)
        return changed, deed
    changed[place] = changed[place]._replace(speaker=deed.agent)
    return changed, deed._replace(agent=reports[place].speaker)


def mrpc(random: Random, domain: Domain) -> Example:
    """Two reports of an event: 1 equivalent, 0 not equivalent."""
    names = events.people(random, domain)
    count = depth(random, _REPORTS)
    cast = random.sample(names, count + 2)
    reports = [Report(name, int(random.random() * len(lexicon.REPORTING))) for name in cast[2:]]
    deed = Event(cast[0], events.verb(random), cast[1])
    first = _render_story(random, reports, deed)
    same = chance(random, _POSITIVE["mrpc"])
    if not same:
        reports, deed = _change_story(random, reports, deed, names)
    return Example((first, _render_story(random, reports, deed)), int(same))


class Person(NamedTuple):
    """Somebody by name, or by a chain of deeds ending in a name.

    Each link is (verb row, whether the described person is the agent), outermost first.
    """

    links: tuple[tuple[int, bool], ...]
    name: str


def _person(random: Random, levels: int, name: str) -> Person:
    return Person(tuple((events.verb(random), chance(random, 0.5)) for _ in range(levels)), name)


def _render_person(random: Random, person: Person) -> str:
    if not person.links:
        return person.name
    (row, is_agent), *rest = person.links
    form = events.verb_form(random, row)
    inner = _render_person(random, Person(tuple(rest), person.name))
    if is_agent:
        return text("the one who", form, inner)
    if chance(random, 0.5) and not rest:
        return text("the one", inner, form)
    return text("the one who was", form, "by", inner)


def _change_person(random: Random, person: Person) -> Person:
    links = list(person.links)
    place = int(random.random() * len(links))
    row, is_agent = links[place]
    links[place] = (row, not is_agent)
    return person._replace(links=tuple(links))


class Query(NamedTuple):
    """A deed with somebody described on one side and somebody named, or asked for, on the other."""

    verb: int
    described: Person
    described_is_agent: bool
    other: str | None


def _render_question(random: Random, query: Query) -> str:
    form = events.verb_form(random, query.verb)
    known = _render_person(random, query.described)
    if query.other is not None:
        return text("is it true that", _render_statement(random, query), "?")
    if query.described_is_agent:
        forms = (("who was", form, "by", known), (known, form, "who"))
    else:
        forms = (("who", form, known), (known, "was", form, "by who"))
    return text(*pick(random, forms), "?")


def _render_statement(random: Random, query: Query) -> str:
    form = events.verb_form(random, query.verb)
    known, other = _render_person(random, query.described), str(query.other)
    agent, patient = (known, other) if query.described_is_agent else (other, known)
    if chance(random, 0.5):
        return text(agent, form, patient)
    return text(patient, "was", form, "by", agent)


def _change_query(random: Random, query: Query) -> Query:
    if query.described.links and chance(random, 0.5):
        return query._replace(described=_change_person(random, query.described))
    if chance(random, 0.3):
        return query._replace(verb=events.another_verb(random, query.verb))
    return query._replace(described_is_agent=not query.described_is_agent)


def _query(random: Random, domain: Domain, asked: float) -> Query:
    name, other = pick_two(random, events.people(random, domain))
    return Query(
        events.verb(random),
        _person(random, depth(random, _LINKS), name),
        chance(random, 0.5),
        None if chance(random, asked) else other,
    )


def qqp(random: Random, domain: Domain) -> Example:
    """Two questions: 1 they ask the same, 0 they do not."""
    query = _query(random, domain, asked=0.6)
    first = _render_question(random, query)
    same = chance(random, _POSITIVE["qqp"])
    if not same:
        query = _change_query(random, query)
    return Example((first, _render_question(random, query)), int(same))


def paws(random: Random, domain: Domain) -> Example:
    """Two statements, nearly the same words in both: 1 paraphrase, 0 different meaning."""
    query = _query(random, "other", asked=0.0)
    first = _render_statement(random, query)
    same = chance(random, _POSITIVE["paws"])
    if not same:
        if query.described.links and chance(random, 0.5):
            query = query._replace(described=_change_person(random, query.described))
        else:
            query = query._replace(described_is_agent=not query.described_is_agent)
    return Example((first, _render_statement(random, query)), int(same))
