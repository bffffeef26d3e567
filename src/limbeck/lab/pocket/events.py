"""Events of agent, verb and patient, and their wordings: active, passive, with a synonym.

Before the data stage of a training step: the parts that paraphrase, similarity and questions share.
The meaning of an event is (agent, verb, patient), with synonyms one verb; a rendering chooses voice
and synonym at random, so that equal meanings look different and swapped roles look alike. Seniors
mostly act on juniors, verbs are mostly kind, clauses mostly active: a model can begin with the
common cases and continue with the exceptions.
"""

from random import Random
from typing import NamedTuple

from limbeck.lab.pocket import lexicon
from limbeck.lab.pocket.example import RARE, Domain, chance, pick, text

USUAL = 0.8
"""Share of events in which a senior is the agent, and of verbs that are kind."""

PASSIVE = 0.25
"""Share of clauses in the passive."""

_EXCHANGED = 0.25
"""Share of changed events in which the roles are exchanged."""

_FIRST_SYNONYM = 0.7


class Event(NamedTuple):
    """One deed; `verb` is a row of `lexicon.EVENT_VERBS`."""

    agent: str
    verb: int
    patient: str

    def swapped(self) -> "Event":
        """The same deed with the roles exchanged."""
        return Event(self.patient, self.verb, self.agent)

    def opposite(self) -> "Event":
        """A harsh deed for a kind one, or the other way round."""
        return self._replace(verb=opposite_verb(self.verb))


def people(random: Random, domain: Domain) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The seniors and the juniors an example draws from."""
    if domain == "other" or chance(random, RARE):
        return lexicon.OTHER_SENIORS, lexicon.OTHER_JUNIORS
    return lexicon.SENIORS, lexicon.JUNIORS


def verb(random: Random) -> int:
    """Some verb, mostly a kind one, as a row of `lexicon.EVENT_VERBS`."""
    kind = int(random.random() * len(lexicon.KIND_VERBS))
    return kind if chance(random, USUAL) else opposite_verb(kind)


def is_kind(row: int) -> bool:
    """Whether the verb is one of the kind ones."""
    return row < len(lexicon.KIND_VERBS)


def opposite_verb(row: int) -> int:
    """The harsh verb opposite to a kind one, or the other way round."""
    return (row + len(lexicon.KIND_VERBS)) % len(lexicon.EVENT_VERBS)


def event(random: Random, domain: Domain) -> Event:
    """Some event between a senior and a junior."""
    seniors, juniors = people(random, domain)
    deed = Event(pick(random, seniors), verb(random), pick(random, juniors))
    return deed if chance(random, USUAL) else deed.swapped()


def changed(random: Random, deed: Event) -> Event:
    """Another deed of the same people: most often the opposite one, or with roles exchanged."""
    if chance(random, _EXCHANGED):
        return deed.swapped()
    return deed._replace(verb=other_verb(random, deed.verb))


def other_verb(random: Random, row: int) -> int:
    """Another verb, most often the opposite one."""
    if chance(random, USUAL):
        return opposite_verb(row)
    other = int(random.random() * (len(lexicon.EVENT_VERBS) - 1))
    return other + (other >= row)


def verb_form(random: Random, row: int) -> str:
    """One of the verb's synonyms, more often the first."""
    return lexicon.EVENT_VERBS[row][not chance(random, _FIRST_SYNONYM)]


def say(random: Random, deed: Event, verbs: str) -> str:
    """A clause of the event, in either voice, with these words instead of the verb."""
    if chance(random, PASSIVE):
        return text(deed.patient, "were", verbs, "by", deed.agent)
    return text(deed.agent, verbs, deed.patient)


def clause(random: Random, deed: Event) -> str:
    """The event as a plain clause, in either voice and with any synonym."""
    return say(random, deed, verb_form(random, deed.verb))
