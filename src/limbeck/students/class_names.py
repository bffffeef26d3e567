"""Names of classes on two sides, a model's or its outputs' and the data's, and which of them mean the same.

One rule for live and stored teachers: a name counts by what it says, not by how it is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from transformers import PretrainedConfig


def labels_of(config: PretrainedConfig) -> tuple[str, ...]:
    """A configuration's class names in id order."""
    return tuple(str(name) for _, name in sorted((config.id2label or {}).items()))


def generic_labels(labels: Sequence[str]) -> bool:
    """Whether the names say nothing (`LABEL_0`, `LABEL_1`, …)."""
    return all(re.fullmatch(r"(?i)label_\d+", label) for label in labels)


def plain_label(label: str) -> str:
    """A class name for comparison: case, surrounding space and the kind of dash do not count."""
    return re.sub(r"[\s_-]+", "_", label.strip()).casefold()


def spelling(*sides: Sequence[str]) -> Callable[[str], str]:
    """How class names of several sides are compared: as `plain_label` has them, or as they are written where that
    would make one class of two ("US" and "us").
    """
    apart = all(len({*map(plain_label, side)}) == len(side) for side in sides)
    return plain_label if apart else str


def places_by_name(own: Sequence[str], wanted: Sequence[str]) -> list[int] | None:
    """Where each wanted class stands among one's own; None where they are not the same classes.

    By the names as they are written, else as `plain_label` has them, where these still tell the classes apart.
    """
    for spelled in (str, plain_label):
        mine, theirs = [*map(spelled, own)], [*map(spelled, wanted)]
        if len(set(mine)) == len(own) and sorted(mine) == sorted(theirs):
            return [mine.index(name) for name in theirs]
    return None


def numbered_places(own: Sequence[str]) -> list[int]:
    """Where the classes stand by their numbers if their names say nothing else (`LABEL_1`), else as they are."""
    order = [*range(len(own))]
    if not generic_labels(own):
        return order
    return sorted(order, key=lambda place: int(own[place].rpartition("_")[2]))


def class_places(own: Sequence[str], wanted: Sequence[str]) -> list[int] | None:
    """As `places_by_name`; as many names that say nothing are taken to be in the wanted order."""
    found = places_by_name(own, wanted)
    if found is None and len(own) == len(wanted) and generic_labels(own):
        return numbered_places(own)
    return found


def labels_agree(config: PretrainedConfig, labels: Sequence[str], regression: bool) -> bool:
    """Whether a head trained under `config` can serve the task's labels as it stands.

    Regression: one output. Classification: the same names in the same order, or as many names that
    say nothing (`LABEL_0`), which then are taken to be in the task's order.
    """
    own = labels_of(config)
    if regression:
        return len(own) == 1
    return class_places(own, labels) == [*range(len(labels))]
