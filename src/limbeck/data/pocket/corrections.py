"""Sentences that correct themselves: of several clauses, the words between say which one holds.

Before the data stage of a training step: what paraphrase (MRPC), similarity and questions share.
"X instead of Y" and "X and not Y" leave X standing; "instead of X , Y" and "not X but Y" leave Y.
Corrections nest, in brackets. All clauses of a sentence are about the same people, so that what
holds cannot be told from the words.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from limbeck.data.pocket import events
from limbeck.data.pocket.events import PASSIVE, Event
from limbeck.data.pocket.example import chance, pick, text


class Fact(NamedTuple):
    """An event that happened, or did not."""

    deed: Event
    denied: bool = False


def clause(random: Random, fact: Fact) -> str:
    """The fact in either voice: "coaches never praised players"."""
    deed, form = fact.deed, events.verb_form(random, fact.deed.verb)
    never = "never" if fact.denied else ""
    if chance(random, PASSIVE):
        return text(deed.patient, "were", never, form, "by", deed.agent)
    return text(deed.agent, never, form, deed.patient)


def changed(random: Random, fact: Fact) -> Fact:
    """A fact of the same people that is another: most often with the roles exchanged."""
    kind = random.random()
    if kind < 0.5:
        return fact._replace(deed=fact.deed.swapped())
    if kind < 0.8:
        return fact._replace(deed=fact.deed.opposite())
    return fact._replace(denied=not fact.denied)


def sentence(random: Random, fact: Fact, levels: int) -> tuple[str, list[Fact]]:
    """A sentence of which the fact is what holds, with that many levels of correction.

    Returns also the facts that it rejects.
    """
    if levels == 0:
        return clause(random, fact), []
    # One side reaches the full depth, the other any depth below it.
    below = [levels - 1, int(random.random() * levels)]
    if chance(random, 0.5):
        below.reverse()
    other = changed(random, fact)
    holds, rejected = sentence(random, fact, below[0])
    against, also_rejected = sentence(random, other, below[1])
    form = pick(random, ("{0} instead of {1}", "{0} and not {1}", "instead of {1} , {0}",
                         "not {1} but {0}"))  # fmt: skip
    return f"( {form.format(holds, against)} )", [*rejected, other, *also_rejected]
