"""Malformed inputs: the cases of `scripts/attack_inputs.py`, counted with the other attacks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

from attacks.place import BAD, REFUSED, WARNED, Place, Tried

_OUTCOMES = {"clear error": REFUSED, "accepted with a warning": WARNED}


def inputs(place: Place, *, seed: int = 0, quick: int | None = None) -> Iterator[Tried]:
    """Every case, or `quick` of each kind, in this process; they hold nothing that is sampled (`seed`)."""
    from attack_inputs import attack

    from attacks import KINDS

    home = Path(place.fresh("inputs"))
    home.mkdir(parents=True)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["LIMBECK_CACHE"] = str(home / "cache")
    with chdir(home):
        for ended in attack(home, list(KINDS), quick):
            said = f"{ended.outcome}: {ended.name}: {ended.said}"
            yield Tried("inputs", ended.kind, _OUTCOMES.get(ended.outcome, BAD), said)
