"""RTE of the pocket: chains of implicative verbs, and deeds within deeds.

Before the data stage of a training step. "ann did not forget to manage to run" entails "ann did
move"; "ann did hope to run" entails nothing. Each verb and each negation turns what is known of the
rest round, keeps it, or loses it, from the first word to the last (Nairn, Condoravdi and Karttunen
2006); an affirmed deed entails wider ones, a denied deed narrower ones. Some sentences tell of two
people, and the claim is about one of them.
"""

from __future__ import annotations

from random import Random

from limbeck.lab.pocket import lexicon
from limbeck.lab.pocket.example import Domain, Example, chance, depth, pick, text
from limbeck.lab.pocket.inference import compare

_VERBS = (0.1, 0.2, 0.25, 0.25, 0.2)
_VERBS_OF_TWO = (0.3, 0.35, 0.35)
_TWO = 0.2
_NEGATED = 0.2
_POSITIVE = 0.75
_SAME_DEED = 0.75
_CLAIM_DENIED = 0.3
_DEEDS = tuple(sorted({*lexicon.DEEDS, *(d for below in lexicon.DEEDS.values() for d in below)}))
# Two-way implicatives keep the chain alive; the one-way ones and the empty ones end many.
_KEEPING = tuple(verb for verb, signs in lexicon.IMPLICATIVES.items() if signs == (1, -1))
_TURNING = tuple(verb for verb, signs in lexicon.IMPLICATIVES.items() if signs == (-1, 1))
_OTHERS = tuple(verb for verb, signs in lexicon.IMPLICATIVES.items() if 0 in signs)


def _chain(random: Random, verbs: int) -> tuple[list[str], int]:
    """The words between the name and the deed, and what they say of it: 1 done, -1 not done, 0."""
    words, sign = ["did"], 1
    for _ in range(verbs):
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


def _claim(random: Random, deed: str, sign: int) -> tuple[str, bool, bool]:
    """A deed to claim, whether to deny it, and whether that follows from the sign of `deed`."""
    while True:
        claimed = deed if chance(random, _SAME_DEED) else pick(random, _DEEDS)
        lies = compare(deed, claimed)
        # A claim about an unrelated deed is too easy to be half of the negatives.
        if lies != "apart" or chance(random, 0.2):
            break
    denied = chance(random, _CLAIM_DENIED)
    follows = lies in (("same", "above") if denied else ("same", "below"))
    return claimed, denied, follows and sign == (-1 if denied else 1)


def rte(random: Random, domain: Domain) -> Example:
    """Somebody's doings, or two people's, and a claim: 0 entailment, 1 not entailment."""
    wanted = chance(random, 0.5)
    while True:
        names = [pick(random, lexicon.WOMEN), pick(random, lexicon.MEN)]
        if chance(random, 0.5):
            names.reverse()
        weights = _VERBS_OF_TWO if chance(random, _TWO) else _VERBS
        told = []
        for name in names if weights is _VERBS_OF_TWO else names[:1]:
            words, sign = _chain(random, depth(random, weights))
            told.append((name, words, pick(random, _DEEDS), sign))
        name, _, deed, sign = pick(random, told)
        claimed, denied, follows = _claim(random, deed, sign)
        if follows == wanted:
            break
    first = " and ".join(text(who, words, what) for who, words, what, _ in told)
    second = text(name, "did", "not" if denied else "", claimed, ".")
    return Example((first + " .", second), int(not follows))
