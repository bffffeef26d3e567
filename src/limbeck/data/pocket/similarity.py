"""STS-B of the pocket: how much two sentences mean the same, from 0 to 5.

Before the data stage of a training step. Both sentences are about the same two groups of people:
who did what to whom, and where. The score adds what agrees of what holds: the roles 2, the place 1,
the verb 2 (1 if the verbs are only both kind or both harsh); if one says that it never happened and
the other that it did, 0.4 of that is left. The first sentence may correct itself, and who acts
depends on the voice, so shared words alone give a rough estimate only.
"""

from __future__ import annotations

from random import Random

from limbeck.data.pocket import corrections, events, lexicon
from limbeck.data.pocket.corrections import Fact
from limbeck.data.pocket.events import Event
from limbeck.data.pocket.example import Domain, Example, chance, depth, pick, text

ROLES, VERB, KINDNESS, PLACE, DENIED = 2.0, 2.0, 1.0, 1.0, 0.4
"""Points for what agrees, 5 at most, and the share left when one sentence denies the other."""

_PLACE_WEIGHTS = (0.5, 0.2, 0.1, 0.1, 0.05, 0.05)
_CORRECTIONS = (0.35, 0.4, 0.25)
_NEVER = 0.15


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
    return second if chance(random, keep) else second._replace(verb=events.verb(random))


def _score(first: Fact, second: Fact, same_place: bool) -> float:
    points = (
        ROLES * (first.deed.agent == second.deed.agent)
        + PLACE * same_place
        + _verb_points(first.deed.verb, second.deed.verb)
    )
    return round(points if first.denied == second.denied else DENIED * points, 2)


def stsb(random: Random, domain: Domain) -> Example:
    """Two sentences and the similarity of their meanings, 0 to 5."""
    first = Fact(events.event(random, domain), chance(random, _NEVER))
    # How far the second sentence wanders from the first, so that all scores occur.
    keep = pick(random, (0.3, 0.6, 0.9))
    second = Fact(_wander(random, first.deed, keep), chance(random, _NEVER))
    place = random.choices(lexicon.PLACES, _PLACE_WEIGHTS)[0]
    other = place if chance(random, keep) else random.choices(lexicon.PLACES, _PLACE_WEIGHTS)[0]
    words, _ = corrections.sentence(random, first, depth(random, _CORRECTIONS))
    texts = (
        _placed(random, place, words),
        _placed(random, other, corrections.clause(random, second)),
    )
    return Example(texts, _score(first, second, place == other))
