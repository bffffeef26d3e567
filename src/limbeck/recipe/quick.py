"""What a method is trained with where no paper's settings are asked for. Part of `limbeck.recipe`.

Free of torch, as `limbeck methods` shows it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from limbeck import catalog
from limbeck.paper_settings import flat, stated_of
from limbeck.recipe.fields import plain_defaults

# What is shown also where a paper says nothing of it.
_ALWAYS = (
    "epochs",
    "lr",
    "batch_size",
    "max_length",
    "lr_schedule",
    "warmup",
    "weight_decay",
    "select_by",
    "student.init",
)
_ALWAYS_FIRST = ("first_stage.epochs", "first_stage.lr", "first_stage.batch_size")
# What a key comes to whose default is to be left out.
_LEFT_OUT = {"adam_epsilon": 1e-8}


def quick_settings(method: str) -> dict[str, Any]:
    """The dotted training keys of a shipped method as they are without any paper's settings."""
    own = dict(flat(catalog.read(method)))
    known = [key for key in _known(method) if key in own or key in _defaults()]
    found = {key: own.get(key, _defaults().get(key)) for key in (*_ALWAYS, *known)}
    if any(key.startswith("first_stage.") for key in own):
        found |= {key: own.get(key, found[key.partition(".")[2]]) for key in _ALWAYS_FIRST}
    return found


def _known(method: str) -> list[str]:
    """Dotted keys that some set of the method states."""
    sets = stated_of(method).values()
    return [
        key for one in sets for keys in (one.keys, *one.tasks.values()) for key, _ in flat(keys)
    ]


@cache
def _defaults() -> dict[str, Any]:
    return plain_defaults() | _LEFT_OUT
