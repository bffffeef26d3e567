"""QNLI of the pocket: does the sentence hold the answer to the question?

Before the data stage of a training step. "who praised ann ?" is answered by a sentence that affirms
that somebody praised (or lauded) ann, in either voice, and not by one that denies it, tells it of
other people, or has ann do the praising. Denials nest ("it is false that ann knew that ...").
"""

from __future__ import annotations

from random import Random

from limbeck.data.pocket import events
from limbeck.data.pocket.events import Event
from limbeck.data.pocket.example import Domain, Example, chance, depth, text

_CLAUSES = (0.0, 0.5, 0.5)
_PREFIXES = (0.4, 0.35, 0.25)


def _clause(random: Random, deed: Event, affirmed: bool) -> str:
    """The event under denials and affirmations that come out as asked for."""
    prefixes = ["it is false that" if chance(random, 0.5) else "it is true that"
                for _ in range(depth(random, _PREFIXES))]  # fmt: skip
    denials = sum(prefix == "it is false that" for prefix in prefixes)
    if affirmed == bool(denials % 2):
        prefixes.append("it is false that")
    return text(*prefixes, events.clause(random, deed))


def _question(random: Random, deed: Event, asks_agent: bool) -> str:
    form = events.verb_form(random, deed.verb)
    if asks_agent:
        words = ("who", form, deed.patient)
    else:
        words = ("who was", form, "by", deed.agent)
    return text(*words, "?")


def qnli(random: Random, domain: Domain) -> Example:
    """A question and a sentence: 0 the sentence answers it (entailment), 1 it does not."""
    names = events.people(random, domain)
    deed = events.event(random, names)
    asks_agent = chance(random, 0.5)
    answered = chance(random, 0.5)
    told, affirmed = deed, answered
    if not answered:
        kind = random.random()
        if kind < 0.4:
            told, affirmed = deed.swapped(), True
        elif kind < 0.5:
            told, affirmed = deed._replace(verb=events.another_verb(random, deed.verb)), True
    clauses = [_clause(random, told, affirmed)]
    for _ in range(depth(random, _CLAUSES) - 1):
        beside = events.event(random, names)
        if {beside.agent, beside.patient} & {deed.agent, deed.patient}:
            beside = beside._replace(verb=events.another_verb(random, deed.verb))
        clauses.insert(int(random.random() * 2), _clause(random, beside, chance(random, 0.5)))
    sentence = text(" and ".join(clauses), ".")
    return Example((_question(random, deed, asks_agent), sentence), int(not answered))
