"""Questions of the pocket whose answer stands in a text: who did it, or to whom it was done.

Before the data stage of a training step. The text tells of several deeds, in either voice; others
of them share the verb or one side with the deed that is asked about, so that a word alone does not
lead to the answer. Who acts may be one group or two.
"""

from random import Random
from typing import NamedTuple

from limbeck.lab.pocket import events, lexicon
from limbeck.lab.pocket.example import Domain, chance, pick, pick_two, text

_DEEDS = (2, 3)
_PAIR = 0.3
"""Share of sides that are two groups."""

_ASKS_AGENT = 0.7


class _Deed(NamedTuple):
    agent: str
    form: str
    patient: str


class Asked(NamedTuple):
    """A question, a context, and where in it the answer begins."""

    question: str
    context: str
    answer: str
    start: int


def _side(random: Random, groups: tuple[str, ...]) -> str:
    if chance(random, _PAIR):
        return " and ".join(pick_two(random, groups))
    return pick(random, groups)


def _deeds(random: Random) -> list[_Deed]:
    """Deeds of which no two share two parts."""
    while True:
        forms = [pick(random, lexicon.EVENT_VERBS)[0] for _ in range(pick(random, _DEEDS))]
        deeds = [
            _Deed(_side(random, lexicon.SENIORS), form, _side(random, lexicon.JUNIORS))
            for form in forms
        ]
        agents = {(deed.agent, deed.form) for deed in deeds}
        patients = {(deed.patient, deed.form) for deed in deeds}
        if len(agents) == len(patients) == len(deeds):
            return deeds


def _sentence(random: Random, deed: _Deed) -> str:
    if chance(random, events.PASSIVE):
        return text(deed.patient, "were", deed.form, "by", deed.agent, ".")
    return text(deed.agent, deed.form, deed.patient, ".")


def squad(random: Random, domain: Domain) -> Asked:
    """A question, its context, and the answer."""
    deeds = _deeds(random)
    asked = int(random.random() * len(deeds))
    deed = deeds[asked]
    sentences = [_sentence(random, one) for one in deeds]
    if chance(random, _ASKS_AGENT):
        question, answer = text("who", deed.form, deed.patient, "?"), deed.agent
    else:
        question, answer = text("who were", deed.form, "by", deed.agent, "?"), deed.patient
    before = sum(len(sentence) + 1 for sentence in sentences[:asked])
    place = sentences[asked].index(answer)
    return Asked(question, " ".join(sentences), answer, before + place)
