"""WNLI of the pocket: who is meant, in up to three steps.

Before the data stage of a training step. "coaches defeated players because they were strong":
coaches; "weak" turns it round, and so do "although", a verb like "feared" and the passive. Then
"later those defeated guards because they were weak": first who those were, then who were weak.
"""

from random import Random

from limbeck.lab.pocket import events, lexicon
from limbeck.lab.pocket.events import USUAL
from limbeck.lab.pocket.example import Domain, Example, chance, depth, pick, pick_two, text

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
    """A clause that says who has which trait: its words, the ones asked about, and their trait."""
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
        # Claims are mostly about those the story began with, whatever it goes on to say of them.
        name = people[0] if chance(random, _FIRST) else pick(random, people[1:])
        if (name == meant) == entailed:
            return Example((story, text(name, "were", trait, ".")), int(entailed))
