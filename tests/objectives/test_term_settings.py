"""What a recipe means that leaves a setting out, and which values are refused: written down, so that neither drifts.

A published method's numbers follow from its recipe and from these.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel

WRITTEN = Path(__file__).parent / "term_settings.txt"
SIGNS = {Ge: (">=", "ge"), Gt: (">", "gt"), Le: ("<=", "le"), Lt: ("<", "lt")}


def settings_classes() -> Iterator[type[BaseModel]]:
    names = ["limbeck.support.settings"]
    for package in ("limbeck.objectives", "limbeck.mappings", "limbeck.input_transforms"):
        names += [f"{package}.{one.name}" for one in iter_modules(import_module(package).__path__)]
    for name in names:
        for found in vars(import_module(name)).values():
            if inspect.isclass(found) and issubclass(found, BaseModel) and found.__module__ == name:
                yield found


def lines() -> Iterator[str]:
    for found in settings_classes():
        for name, field in found.model_fields.items():
            if name not in vars(found).get("__annotations__", {}):
                continue
            limits = [_limit(one) for one in field.metadata if type(one) in SIGNS]
            default = (
                "required"
                if field.is_required()
                else repr(field.get_default(call_default_factory=True))
            )
            yield " ".join([f"{found.__name__}.{name}", default, *limits])


def _limit(one: Ge | Gt | Le | Lt) -> str:
    sign, name = SIGNS[type(one)]
    return f"{sign}{getattr(one, name):g}"


def test_defaults_and_limits_are_those_that_are_written_down():
    """A setting that is added or changed on purpose is written down with it."""
    assert sorted(lines()) == WRITTEN.read_text(encoding="utf-8").splitlines()


def test_every_setting_says_what_it_is():
    silent = [
        f"{found.__name__}.{name}"
        for found in settings_classes()
        for name, field in found.model_fields.items()
        if not field.description and name not in ("compare", "use", "kind")
    ]
    assert silent == []
