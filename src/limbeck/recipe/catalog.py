"""The recipes that ship with limbeck, read as plain YAML.

Imports little: listing methods must not load torch. `limbeck.recipe` turns the recipes that are read
here into checked recipes.
"""

import difflib
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.plain import read_yaml

FAMILIES = {
    "baseline": "Baselines",
    "soft-label": "Soft labels",
    "fixed-map": "Intermediate layers, fixed maps",
    "combination": "Intermediate layers, combined",
    "random-map": "Intermediate layers, sampled at random",
    "internal": "Attention and hidden states, layer by layer",
    "two-stage": "Two stages: intermediate layers, then soft labels",
    "relation": "Relations, contrast and transport",
    "several": "Several teachers",
    "embedding": "Sentence embeddings",
    "ranking": "Rerankers: the candidates of a query",
}

HEADER = ("method", "family", "summary", "paper", "formula")


@dataclass(frozen=True)
class CatalogEntry:
    """One shipped recipe: its header and its complete text."""

    method: str
    family: str
    summary: str
    paper: str
    formula: str
    text: str


@cache
def available() -> tuple[CatalogEntry, ...]:
    """Every shipped recipe, by family in the order of `FAMILIES`, then by name."""
    found, order = [], list(FAMILIES)
    for file in resources.files("limbeck.recipes").iterdir():
        if file.name.endswith(".yaml"):
            text = file.read_text(encoding="utf-8")
            raw = read_yaml(text, file.name)
            found.append(CatalogEntry(**{key: raw[key] for key in HEADER}, text=text))
    return tuple(sorted(found, key=lambda entry: (order.index(entry.family), entry.method)))


def names() -> tuple[str, ...]:
    """Every shipped recipe's name."""
    return tuple(entry.method for entry in available())


def find(method: str) -> CatalogEntry:
    """The shipped recipe of that name.

    Raises:
        LimbeckError: there is no such recipe, with the nearest name and all choices.
    """
    for entry in available():
        if entry.method == method:
            return entry
    raise LimbeckError(no_such_method(method))


RECOMMENDED = {
    "kd": "labels and the teacher's outputs, the usual first choice",
    "logit-mse": "the teacher's outputs alone, with --unlabelled text",
    "rail-kd-l": "its layers as well",
    "finetune": "the labels alone, to compare with",
    "embedding-mse": "embedding models",
    "listwise-kl": "rerankers",
}
"""Where a newcomer starts, and what for."""


def recommended() -> str:
    """Say which methods to start with, and how to see all."""
    few = ", ".join(f"{name} ({what})" for name, what in RECOMMENDED.items())
    return f"{few}; `limbeck methods` lists all {len(names())}"


def no_such_method(method: str, *others: str) -> Problem:
    """Say that no method has that name, with nearly the same names and where to start; `others`: a plugin's."""
    near = difflib.get_close_matches(method, [*names(), *others], n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return Problem(f"unknown method {method!r}", f"{hint}start with {recommended()}")


def read(method: str) -> dict[str, Any]:
    """The shipped recipe of that name as a dictionary, the caller's own."""
    return deepcopy(_parsed(method))


@cache
def _parsed(method: str) -> dict[str, Any]:
    # A study's plan reads one recipe hundreds of times.
    raw: dict[str, Any] = read_yaml(find(method).text, f"recipe {method}")
    return raw
