"""QNLI of the pocket: does the sentence hold the answer to the question?

"who praised players ?" is answered by a sentence of which
"coaches praised players" holds, in either voice and with any synonym; not by one that rejects this
for another deed, or that has the roles exchanged.
"""

from random import Random

from limbeck.lab.pocket import corrections, events
from limbeck.lab.pocket.events import USUAL, Event
from limbeck.lab.pocket.example import Domain, Example, chance, text

_CORRECTIONS = (0.25, 0.3, 0.25, 0.2)


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
    words = corrections.sentence(random, told, asked.verb, _CORRECTIONS)
    return Example((_question(random, asked), text(words, ".")), int(not answered))
