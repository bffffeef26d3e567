"""Who did what to whom, and the ways to say it: active, passive, with a synonym, as a question.

Before the data stage of a training step: the parts that paraphrase, similarity and questions share.
The meaning of an event is (agent, verb, patient), with synonyms one verb; a rendering chooses voice
and synonym at random, so that equal meanings look different and swapped roles look alike.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from limbeck.data.pocket import lexicon
from limbeck.data.pocket.example import RARE, Domain, chance, pick, pick_two, text


class Event(NamedTuple):
    """One deed; `verb` is a row of `lexicon.EVENT_VERBS`."""

    agent: str
    verb: int
    patient: str

    def swapped(self) -> Event:
        """The same deed with the roles exchanged."""
        return Event(self.patient, self.verb, self.agent)


def people(random: Random, domain: Domain) -> tuple[str, ...]:
    """The names an example draws from."""
    rare = domain == "other" or chance(random, RARE)
    return lexicon.OTHER_PEOPLE if rare else lexicon.PEOPLE


def verb(random: Random) -> int:
    """Some verb, as a row of `lexicon.EVENT_VERBS`."""
    return int(random.random() * len(lexicon.EVENT_VERBS))


def another_verb(random: Random, row: int) -> int:
    """Some verb that means something else."""
    other = int(random.random() * (len(lexicon.EVENT_VERBS) - 1))
    return other + (other >= row)


def event(random: Random, names: tuple[str, ...]) -> Event:
    """Some event between two different people."""
    agent, patient = pick_two(random, names)
    return Event(agent, verb(random), patient)


def verb_form(random: Random, row: int) -> str:
    """One of the verb's synonyms."""
    return pick(random, lexicon.EVENT_VERBS[row])


def clause(random: Random, deed: Event) -> str:
    """The event as a clause, in either voice."""
    form = verb_form(random, deed.verb)
    if chance(random, 0.5):
        return text(deed.agent, form, deed.patient)
    return text(deed.patient, "was", form, "by", deed.agent)
