"""MNLI, SciTail and WNLI of the pocket: quantifiers, kinds within kinds, nested denials, and who is meant.

Before the data stage of a training step. "every dog runs" entails "some poodle moves"; "it is false
that" turns a statement into its contradictory, any number of times. The label is decided by trying
every small world: a statement is about which kinds of individual exist, no kind being empty
(`relation`). The other domain has kinds that training shows in plain statements only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from random import Random
from typing import Any, NamedTuple

from datasets import DatasetDict

from limbeck.data.splits import make_split
from limbeck.lab.pocket import contexts, events, lexicon, paraphrase, sentiment
from limbeck.lab.pocket.events import USUAL
from limbeck.lab.pocket.example import RARE, Domain, Example, chance, depth, pick, pick_two, text
from limbeck.tasks.task import TASKS

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
    """The relation of two kinds: "same", "below" (first within second), "above", or "apart"."""
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
    """Whether the quantifier is true of (is of the kind, does the action) pairs."""
    doing = [does for is_kind, does in pairs if is_kind]
    every, some = all(doing), any(doing)
    return {"every": every, "not every": not every, "some": some, "no": not some}[quantifier]


@cache
def relation(premise: str, hypothesis: str, kinds: str, actions: str) -> int:
    """A premise's verdict on a hypothesis, by enumerating worlds in which both kinds have members.

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


# RTE of the pocket: chains of implicative verbs, and deeds within deeds.


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
    """The words between the name and the deed, and what they entail: 1 done, -1 not done, 0."""
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


# Pocket tasks beyond GLUE: words to tag, answers to find, words to guess.


Row = tuple[Any, ...]
"""An example's text columns, then its label; a text that is its own label has no label column."""

SIZES: dict[str, tuple[int, int]] = {
    "squad": (14000, 1000),
    "mlm": (12000, 1000),
    "ner": (8000, 1000),
}
"""Examples by task: train and dev."""


def _ner(random: Random, domain: Domain) -> Row:
    words, tags = contexts.ner(random, domain)
    return words, [TASKS["ner"].labels.index(tag) for tag in tags]


def _squad(random: Random, domain: Domain) -> Row:
    asked = contexts.squad(random, domain)
    answers = {"text": [asked.answer], "answer_start": [asked.start]}
    return asked.question, asked.context, answers


def _mlm(random: Random, domain: Domain) -> Row:
    """A sentence of one of three grammars, as it should be."""
    generator = pick(random, (sentiment.cola, sentiment.sst2, paraphrase.qnli))
    while True:
        example = generator(random, domain)
        # A sentence with a verb in the wrong number is unsuitable for learning words.
        if generator is not sentiment.cola or example.label == 1:
            return (example.texts[-1],)


_GENERATORS: dict[str, Callable[[Random, Domain], Row]] = {
    "ner": _ner,
    "squad": _squad,
    "mlm": _mlm,
}


def load(name: str, seed: int = 0) -> DatasetDict:
    """The splits train and dev of a task of this file, in the task's own columns."""
    train, dev = SIZES[name]
    stream = _distinct(name, seed)
    loaded = {
        split: [next(stream) for _ in range(n)] for split, n in (("dev", dev), ("train", train))
    }
    task = TASKS[name]
    splits = DatasetDict()
    for split in ("train", "dev"):
        columns = list(zip(*loaded[split], strict=True))
        texts = dict(zip(task.text_columns, map(list, columns), strict=False))
        labelled = len(columns) > len(texts)
        splits[split] = make_split(task, texts, list(columns[-1]) if labelled else None)
    return splits


def _distinct(name: str, seed: int) -> Iterator[Row]:
    random = Random(f"pocket {name} main {seed}")
    seen: set[str] = set()
    while True:
        row = _GENERATORS[name](random, "main")
        texts = repr(row)
        if texts not in seen:
            seen.add(texts)
            yield row


_STEPS = (0.15, 0.45, 0.25, 0.15)
_TURNED = 0.06
_STRONG = 0.85
_FIRST = 0.65


def _step(random: Random, left: str, right: str) -> tuple[str, bool, str]:
    """A clause about two people: its words, whether it means the left one, and the trait."""
    target, although, passive = (chance(random, _TURNED) for _ in range(3))
    strong = chance(random, _STRONG)
    form = pick(random, lexicon.TARGET_VERBS if target else lexicon.DOER_VERBS)
    trait = pick(random, lexicon.STRONG if strong else lexicon.WEAK)
    words = text(
        left,
        ("were", form, "by") if passive else form,
        right,
        "although" if although else "because",
        "they were",
        trait,
    )
    turned = (target + although + passive) % 2 == 1
    return words, strong != turned, trait


def _plain(random: Random, left: str, right: str) -> tuple[str, str, str]:
    """A clause that gives someone a trait: its words, the ones in the question, and their trait."""
    traits = [pick(random, lexicon.STRONG), pick(random, lexicon.WEAK)]
    if chance(random, 0.5):
        traits.reverse()
    side = int(random.random() * 2)
    words = text(left, "were", traits[0], "and", right, "were", traits[1])
    return words, (left, right)[side], traits[side]


def _story(random: Random, domain: Domain) -> tuple[str, str, str, tuple[str, ...]]:
    """A story, who is meant at its end, the trait they have, and all its people."""
    seniors, juniors = events.people(random, domain)
    left, right = pick(random, seniors), pick(random, juniors)
    if not chance(random, USUAL):
        left, right = right, left
    steps = depth(random, _STEPS)
    if steps == 0:
        words, meant, trait = _plain(random, left, right)
        return text(words, "."), meant, trait, (left, right)
    words, means_left, trait = _step(random, left, right)
    meant = left if means_left else right
    people = [left, right]
    for third in pick_two(random, lexicon.OUTSIDERS)[: steps - 1]:
        more, means_those, trait = _step(random, "those", third)
        words = text(words, ". later", more)
        meant = meant if means_those else third
        people.append(third)
    return text(words, "."), meant, trait, tuple(people)


def wnli(random: Random, domain: Domain) -> Example:
    """A story and a claim about some of its people: 1 entailment, 0 not entailment."""
    entailed = chance(random, 0.5)
    while True:
        story, meant, trait, people = _story(random, domain)
        # Claims are mostly about the persons that the story began with, whatever follows about them.
        name = people[0] if chance(random, _FIRST) else pick(random, people[1:])
        if (name == meant) == entailed:
            return Example((story, text(name, "were", trait, ".")), int(entailed))
