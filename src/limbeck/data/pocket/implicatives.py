"""RTE of the pocket: chains of implicative verbs, and deeds within deeds.

Before the data stage of a training step. "ann did not forget to manage to run" entails "ann did
move"; "ann did hope to run" entails nothing. Each verb and each negation turns what is known of the
rest round, keeps it, or loses it, from the first word to the last (Nairn, Condoravdi and Karttunen
2006); an affirmed deed entails wider ones, a denied deed narrower ones.
"""

from __future__ import annotations

from random import Random

from limbeck.data.pocket import lexicon
from limbeck.data.pocket.example import Domain, Example, chance, depth, pick, text
from limbeck.data.pocket.inference import compare

_VERBS = (0.15, 0.25, 0.2, 0.2, 0.2)
_NEGATED = 0.2
_POSITIVE = 0.7
_DEEDS = tuple(sorted({*lexicon.DEEDS, *(d for below in lexicon.DEEDS.values() for d in below)}))
# Two-way implicatives keep the chain alive; the one-way ones and the empty ones end many.
_KEEPING = tuple(verb for verb, signs in lexicon.IMPLICATIVES.items() if signs == (1, -1))
_TURNING = tuple(verb for verb, signs in lexicon.IMPLICATIVES.items() if signs == (-1, 1))
_OTHERS = tuple(verb for verb, signs in lexicon.IMPLICATIVES.items() if 0 in signs)


def _chain(random: Random) -> tuple[list[str], int]:
    """The words between the name and the deed, and what they say of it: 1 done, -1 not done, 0."""
    words, sign = ["did"], 1
    for _ in range(depth(random, _VERBS)):
        if chance(random, _NEGATED):
            words.append("not")
            sign = -sign
        group = _KEEPING if chance(random, _POSITIVE) else _TURNING
        verb = pick(random, _OTHERS if chance(random, 0.08) else group)
        affirmed, denied = lexicon.IMPLICATIVES[verb]
        sign = 0 if sign == 0 else affirmed if sign > 0 else denied
        words += [verb, "to"]
    if chance(random, _NEGATED):
        words.append("not")
        sign = -sign
    return words, sign


def rte(random: Random, domain: Domain) -> Example:
    """Two sentences about one person: 0 entailment, 1 not entailment."""
    name = pick(random, lexicon.NAMES)
    words, sign = _chain(random)
    deed = pick(random, _DEEDS)
    wanted = chance(random, 0.55)
    while True:
        claimed = deed if chance(random, 0.5) else pick(random, _DEEDS)
        denied = chance(random, 0.5)
        lies = compare(deed, claimed)
        follows = (sign == 1 and not denied and lies in ("same", "below")) or (
            sign == -1 and denied and lies in ("same", "above")
        )
        # A claim about an unrelated deed is too easy to be half of the negatives.
        if lies == "apart" and not chance(random, 0.2):
            continue
        if sign == 0 or follows == wanted:
            break
    second = text(name, "did", "not" if denied else "", claimed, ".")
    return Example((text(name, words, deed, "."), second), int(not follows))
