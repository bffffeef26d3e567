"""QNLI of the pocket: does the sentence hold the answer to the question?

Before the data stage of a training step. "who praised players ?" is answered by a sentence of which
"coaches praised players" holds, in either voice and with any synonym; not by one of which it is
rejected, or that denies it, has the roles exchanged, or tells of another deed.
"""

from __future__ import annotations

from random import Random

from limbeck.data.pocket import corrections, events
from limbeck.data.pocket.corrections import Fact
from limbeck.data.pocket.events import USUAL, Event
from limbeck.data.pocket.example import Domain, Example, chance, depth, text

_CORRECTIONS = (0.3, 0.4, 0.3)


def _question(random: Random, deed: Event) -> str:
    form = events.verb_form(random, deed.verb)
    asks_agent = chance(random, USUAL)
    words = ("who", form, deed.patient) if asks_agent else ("who were", form, "by", deed.agent)
    return text(*words, "?")


def qnli(random: Random, domain: Domain) -> Example:
    """A question and a sentence: 0 the sentence answers it (entailment), 1 it does not."""
    deed = events.event(random, domain)
    answered = chance(random, 0.5)
    fact = Fact(deed) if answered else corrections.changed(random, Fact(deed))
    words, _ = corrections.sentence(random, fact, depth(random, _CORRECTIONS))
    return Example((_question(random, deed), text(words, ".")), int(not answered))
