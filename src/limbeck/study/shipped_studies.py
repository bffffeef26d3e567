"""The studies that ship with limbeck, read as plain YAML: listing them loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any

from limbeck.plain import read_yaml


@dataclass(frozen=True)
class ShippedStudy:
    """One shipped study: its name, what it is of, its scales and its whole content."""

    name: str
    title: str
    paper: str
    scales: tuple[str, ...]
    raw: dict[str, Any]


def shipped() -> dict[str, ShippedStudy]:
    """Every shipped study by name."""
    found = {}
    folder = resources.files("limbeck.study") / "shipped"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".yaml"):
            raw = read_yaml(file.read_text(encoding="utf-8"), file.name)
            name = file.name.removesuffix(".yaml")
            scales = tuple(raw.get("scales", {}))
            found[name] = ShippedStudy(name, raw["title"], raw["paper"], scales, raw)
    return found
