"""Sentences that correct themselves: of several verbs, the words between say which one holds.

Before the data stage of a training step: what paraphrase (MRPC), similarity and questions share.
"X instead of Y" and "X and not Y" leave X standing; "instead of X , Y" and "not X but Y" leave Y.
Corrections nest, in brackets: "coaches ( not ( helped and not mocked ) but praised ) players". All
verbs are about the same people, and the one that another text speaks of is often among those
rejected, so that what holds cannot be guessed from the words.
"""

from collections.abc import Sequence
from random import Random

from limbeck.lab.pocket import events
from limbeck.lab.pocket.events import Event
from limbeck.lab.pocket.example import chance, depth, pick

_FORMS = ("{0} instead of {1}", "{0} and not {1}", "instead of {1} , {0}", "not {1} but {0}")
_MENTIONED = 0.7
"""How often a verb that does not hold, but is spoken of elsewhere, is among the rejected."""
_OPPOSED = 0.4
"""How often the opposite of the verb that holds is among the rejected."""


def verbs(random: Random, holds: int, levels: int, rejected: int | None = None) -> str:
    """Verbs of which `holds` is what holds, with that many levels of correction.

    The outermost correction rejects `rejected`, where it is given.
    """
    if levels == 0:
        return events.verb_form(random, holds)
    wrong = rejected
    while wrong is None or wrong == holds:
        wrong = events.verb(random)
    # One side is corrected further, the other is a plain verb: deep and yet short.
    below = [levels - 1, 0]
    if chance(random, 0.5):
        below.reverse()
    parts = verbs(random, holds, below[0]), verbs(random, wrong, below[1])
    return f"( {pick(random, _FORMS).format(*parts)} )"


def sentence(random: Random, deed: Event, spoken_of: int, depths: Sequence[float]) -> str:
    """A sentence of which the deed is what holds, beside another text with the verb `spoken_of`.

    `depths` are the weights of 0, 1, ... levels of correction.
    """
    rejected = None
    if deed.verb != spoken_of:
        rejected = spoken_of if chance(random, _MENTIONED) else None
    elif chance(random, _OPPOSED):
        rejected = events.opposite_verb(deed.verb)
    return events.say(random, deed, verbs(random, deed.verb, depth(random, depths), rejected))
