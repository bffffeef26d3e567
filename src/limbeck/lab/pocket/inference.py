"""MNLI and SciTail of the pocket: quantifiers, kinds within kinds, and nested denials.

Before the data stage of a training step. "every dog runs" entails "some poodle moves"; "it is false
that" turns a statement into its contradictory, any number of times. The label is decided by trying
every small world: a statement is about which kinds of individual exist, no kind being empty
(`relation`). The other domain has kinds that training shows in plain statements only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from random import Random
from typing import NamedTuple

from limbeck.lab.pocket import lexicon
from limbeck.lab.pocket.example import RARE, Domain, Example, chance, depth, pick, text

QUANTIFIERS = ("every", "some", "no", "not every")
_CONTRADICTORY = {"every": "not every", "not every": "every", "some": "no", "no": "some"}
_PREFIXES = ("it is false that", "it is true that")
ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)

_QUANTIFIER_WEIGHTS = (0.35, 0.3, 0.2, 0.15)
_DENIALS = (0.2, 0.3, 0.3, 0.2)
_FEW_DENIALS = (0.75, 0.25)
# How often both statements are about one kind, or one action.
_SAME = 0.8
_APART = 0.05


class Statement(NamedTuple):
    """`prefixes`, then a quantifier, a kind and an action."""

    prefixes: tuple[str, ...]
    quantifier: str
    kind: str
    action: str

    def words(self) -> str:
        """The statement as a text, without its full stop."""
        return text(*self.prefixes, self.quantifier, self.kind, self.action)

    def effective(self) -> str:
        """The quantifier once the denials before it are worked in."""
        denied = sum(prefix == _PREFIXES[0] for prefix in self.prefixes) % 2
        return _CONTRADICTORY[self.quantifier] if denied else self.quantifier


@cache
def _above(kind: str) -> frozenset[str]:
    """The kind or action itself, and all that contain it."""
    trees: tuple[Mapping[str, tuple[str, ...]], ...] = (
        lexicon.KINDS, lexicon.OTHER_KINDS, lexicon.SCIENCE_KINDS, lexicon.ACTIONS, lexicon.DEEDS,
    )  # fmt: skip
    found = {kind}
    for tree in trees:
        for parent, below in tree.items():
            if kind in below:
                found |= _above(parent)
    return frozenset(found)


def compare(first: str, second: str) -> str:
    """How two kinds lie: "same", "below" (first within second), "above", or "apart"."""
    if first == second:
        return "same"
    if second in _above(first):
        return "below"
    return "above" if first in _above(second) else "apart"


# Which of (in the first, in the second) an individual can be.
_CELLS = {
    "same": ((0, 0), (1, 1)),
    "below": ((0, 0), (0, 1), (1, 1)),
    "above": ((0, 0), (1, 0), (1, 1)),
    "apart": ((0, 0), (1, 0), (0, 1)),
}


def _holds(quantifier: str, pairs: list[tuple[int, int]]) -> bool:
    """Whether the quantifier holds of (is of the kind, does the action) pairs."""
    doing = [does for is_kind, does in pairs if is_kind]
    every, some = all(doing), any(doing)
    return {"every": every, "not every": not every, "some": some, "no": not some}[quantifier]


@cache
def relation(premise: str, hypothesis: str, kinds: str, actions: str) -> int:
    """What a premise says of a hypothesis, by enumerating worlds in which both kinds have members.

    Takes the effective quantifiers and how the kinds and the actions compare.
    """
    cells = [cell for cell in _CELLS[kinds] if any(cell)]
    types = list(product(cells, _CELLS[actions]))
    seen = set()
    for choice in product((False, True), repeat=len(types)):
        world = [
            kind_and_action for kind_and_action, there in zip(types, choice, strict=True) if there
        ]
        if not all(any(kind[side] for kind, _ in world) for side in (0, 1)):
            continue
        truth = [
            _holds(quantifier, [(kind[side], action[side]) for kind, action in world])
            for side, quantifier in enumerate((premise, hypothesis))
        ]
        if truth[0]:
            seen.add(truth[1])
    return ENTAILMENT if seen == {True} else CONTRADICTION if seen == {False} else NEUTRAL


def _pair_from(random: Random, tree: Mapping[str, tuple[str, ...]]) -> tuple[str, str]:
    """Two of a tree's words: the same, or on one line in either order, rarely apart."""
    words = sorted({*tree, *(word for below in tree.values() for word in below)})
    first = pick(random, words)
    kind = random.random()
    if kind < _SAME:
        return first, first
    related = [word for word in words if compare(first, word) in ("above", "below")]
    return first, pick(random, words if kind > 1 - _APART else related)


def _prefixes(random: Random, weights: Sequence[float]) -> tuple[str, ...]:
    return tuple(_PREFIXES[not chance(random, 0.5)] for _ in range(depth(random, weights)))


def _statements(
    random: Random, tree: Mapping[str, tuple[str, ...]], plain: bool
) -> tuple[Statement, Statement]:
    kinds, actions = _pair_from(random, tree), _pair_from(random, lexicon.ACTIONS)
    prefixes = [() if plain else _prefixes(random, weights) for weights in (_DENIALS, _FEW_DENIALS)]
    first, second = (
        Statement(
            prefixes[side],
            random.choices(QUANTIFIERS, _QUANTIFIER_WEIGHTS)[0],
            kinds[side],
            actions[side],
        )
        for side in (0, 1)
    )
    return first, second


def _label(premise: Statement, hypothesis: Statement) -> int:
    return relation(
        premise.effective(),
        hypothesis.effective(),
        compare(premise.kind, hypothesis.kind),
        compare(premise.action, hypothesis.action),
    )


def mnli(random: Random, domain: Domain) -> Example:
    """Premise and hypothesis: 0 entailment, 1 neutral, 2 contradiction."""
    plain = domain == "main" and chance(random, 2 * RARE)
    tree: Mapping[str, tuple[str, ...]]
    if plain:
        tree = pick(random, (lexicon.OTHER_KINDS, lexicon.SCIENCE_KINDS))
    else:
        tree = lexicon.KINDS if domain == "main" else lexicon.OTHER_KINDS
    wanted = pick(random, (ENTAILMENT, NEUTRAL, CONTRADICTION))
    return _example(random, tree, plain, wanted)


def scitail(random: Random, domain: Domain) -> Example:
    """Premise and hypothesis about insects and reptiles: 0 entails, 1 neutral."""
    wanted = pick(random, (ENTAILMENT, NEUTRAL))
    return _example(random, lexicon.SCIENCE_KINDS, False, wanted)


def _example(
    random: Random, tree: Mapping[str, tuple[str, ...]], plain: bool, wanted: int
) -> Example:
    while True:
        premise, hypothesis = _statements(random, tree, plain)
        if _label(premise, hypothesis) == wanted:
            return Example((premise.words() + " .", hypothesis.words() + " ."), wanted)
