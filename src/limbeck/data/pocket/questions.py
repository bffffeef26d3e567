"""QNLI of the pocket: does the sentence hold the answer to the question?

Before the data stage of a training step. "who praised players ?" is answered by a sentence that
affirms that somebody praised (or lauded) players, in either voice, and not by one that denies it,
tells it of other people, or has players do the praising. Denials nest ("it is false that it is true
that ...").
"""

from __future__ import annotations

from random import Random

from limbeck.data.pocket import events
from limbeck.data.pocket.events import USUAL, Event
from limbeck.data.pocket.example import Domain, Example, chance, depth, text

_BESIDE = 0.3
_PREFIXES = (0.55, 0.3, 0.15)


def _clause(random: Random, deed: Event, affirmed: bool) -> str:
    """The event under denials and affirmations that come out as asked for."""
    prefixes = ["it is false that" if chance(random, 0.4) else "it is true that"
                for _ in range(depth(random, _PREFIXES))]  # fmt: skip
    denials = sum(prefix == "it is false that" for prefix in prefixes)
    if affirmed == bool(denials % 2):
        prefixes.append("it is false that")
    return text(*prefixes, events.clause(random, deed))


def _question(random: Random, deed: Event, asks_agent: bool) -> str:
    form = events.verb_form(random, deed.verb)
    words = ("who", form, deed.patient) if asks_agent else ("who were", form, "by", deed.agent)
    return text(*words, "?")


def _beside(random: Random, deed: Event, domain: Domain) -> Event:
    """Another event, which does not answer a question about this one."""
    other = events.event(random, domain)
    if {other.agent, other.patient} & {deed.agent, deed.patient} and other.verb == deed.verb:
        return other.opposite()
    return other


def qnli(random: Random, domain: Domain) -> Example:
    """A question and a sentence: 0 the sentence answers it (entailment), 1 it does not."""
    deed = events.event(random, domain)
    answered = chance(random, 0.5)
    told, affirmed = deed, answered
    if not answered:
        kind = random.random()
        if kind < 0.4:
            told, affirmed = deed.swapped(), True
        elif kind < 0.55:
            told, affirmed = deed.opposite(), True
    clauses = [_clause(random, told, affirmed)]
    if chance(random, _BESIDE):
        beside = _clause(random, _beside(random, deed, domain), chance(random, 0.5))
        clauses.insert(int(random.random() * 2), beside)
    sentence = text(" and ".join(clauses), ".")
    question = _question(random, deed, asks_agent=chance(random, USUAL))
    return Example((question, sentence), int(not answered))
