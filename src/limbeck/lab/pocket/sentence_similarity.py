"""STS-B of the pocket: how much two sentences mean the same, from 0 to 5.

Before the data stage of a training step. Both sentences are about the same two groups of people:
who did what to whom, and where. The score adds what agrees of what holds: the roles 2.2, the place
0.8, the verb 2 (0.7 if the verbs are only both kind or both harsh). The first sentence may correct
itself, and who acts depends on the voice, so shared words alone give a rough estimate only.
"""

from __future__ import annotations

from random import Random

from limbeck.lab.pocket import corrections, events, lexicon
from limbeck.lab.pocket.events import Event
from limbeck.lab.pocket.example import Domain, Example, chance, pick, text

ROLES, VERB, KINDNESS, PLACE = 2.2, 2.0, 0.7, 0.8
"""Points for what agrees, 5 at most."""

_PLACE_WEIGHTS = (0.4, 0.2, 0.15, 0.1, 0.1, 0.05)
_CORRECTIONS = (0.35, 0.35, 0.2, 0.1)


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
    words = corrections.sentence(random, first, second.verb, _CORRECTIONS)
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
