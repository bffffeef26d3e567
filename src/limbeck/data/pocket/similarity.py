"""STS-B of the pocket: how much two sentences mean the same, from 0 to 5.

Before the data stage of a training step. Each sentence tells one event and its place. The score
adds what agrees: agent 1.25, patient 1.25, verb 1.5 (synonyms agree), place 1; a sentence that
denies what the other affirms keeps 0.4 of the score. Who is agent depends on the voice, so shared
words alone give a rough estimate only.
"""

from __future__ import annotations

from random import Random

from limbeck.data.pocket import events, lexicon
from limbeck.data.pocket.events import Event
from limbeck.data.pocket.example import Domain, Example, chance, pick, text

AGENT, VERB, PATIENT, PLACE, DENIED = 1.25, 1.5, 1.25, 1.0, 0.4
"""Weights of the parts, 5 in all, and the share that is left when one sentence denies the other."""


def _render(random: Random, deed: Event, place: str, denied: int) -> str:
    """The event in either voice, under as many denials as asked for."""
    prefix = ["it is false that"] * denied
    front = chance(random, 0.5)
    where = ["in", place]
    return text(
        [*where, ","] if front else "",
        *prefix,
        events.clause(random, deed),
        "" if front else where,
        ".",
    )


def _denials(random: Random) -> int:
    return random.choices((0, 1, 2), (0.6, 0.3, 0.1))[0]


def _wander(random: Random, first: Event, domain: Domain, keep: float) -> Event:
    """An event of the same verb whose people are kept with that probability each."""
    other = events.event(random, domain)
    return Event(
        first.agent if chance(random, keep) else other.agent,
        first.verb,
        first.patient if chance(random, keep) else other.patient,
    )


def stsb(random: Random, domain: Domain) -> Example:
    """Two sentences and the similarity of their meanings, 0 to 5."""
    first = events.event(random, domain)
    place = pick(random, lexicon.PLACES)
    # How far the second event wanders from the first, so that all scores occur.
    keep = pick(random, (0.2, 0.5, 0.8, 1.0))
    second = first.swapped() if chance(random, 0.25) else _wander(random, first, domain, keep)
    if not chance(random, keep):
        second = second._replace(verb=events.verb(random))
    second_place = place if chance(random, keep) else pick(random, lexicon.PLACES)
    score = (
        AGENT * (first.agent == second.agent)
        + VERB * (first.verb == second.verb)
        + PATIENT * (first.patient == second.patient)
        + PLACE * (place == second_place)
    )
    denials = _denials(random), _denials(random)
    if (denials[0] - denials[1]) % 2:
        score *= DENIED
    texts = (
        _render(random, first, place, denials[0]),
        _render(random, second, second_place, denials[1]),
    )
    return Example(texts, round(score, 2))
