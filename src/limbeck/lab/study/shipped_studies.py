"""The studies that ship with limbeck, read as plain YAML: listing them loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from limbeck.support.plain import read_yaml

_FOLDER = resources.files("limbeck.lab.study") / "shipped"


@dataclass(frozen=True)
class ShippedStudy:
    """One shipped study: its name, what it is of, its scales and its whole content."""

    name: str
    title: str
    paper: str
    scales: tuple[str, ...]
    raw: dict[str, Any]


def shipped_names() -> tuple[str, ...]:
    """Every shipped study's name."""
    files = sorted(file.name for file in _FOLDER.iterdir())
    return tuple(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def shipped() -> dict[str, ShippedStudy]:
    """Every shipped study by name."""
    return {name: shipped_study(name) for name in shipped_names()}


@cache
def shipped_study(name: str) -> ShippedStudy:
    """The one of `shipped_names` with this name, which is read once and not to be changed."""
    file = _FOLDER / f"{name}.yaml"
    raw = read_yaml(file.read_text(encoding="utf-8"), file.name)
    return ShippedStudy(name, raw["title"], raw["paper"], tuple(raw.get("scales", {})), raw)
