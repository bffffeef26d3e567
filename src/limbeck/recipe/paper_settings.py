"""What papers and releases state about training: epochs, rates, start, and the grid they searched.

Beside `catalog`, and as light: nothing here loads torch. A recipe's `stated` block has one entry for
each set of settings that it can be run with (`paper`, `released`, or another paper's name where
several papers run one method). An entry holds recipe keys, what differs from task to task, and words
for what no key says; `from: PAPER.SECTION` lays it over a section of `recipes/papers/PAPER.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from limbeck.recipe import catalog
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.plain import read_yaml

QUICK = "quick"
"""The settings that a recipe has without any paper's."""

_WORDS = ("source", "start", "runs", "grid", "chosen", "notes", "tasks", "nets")


@dataclass(frozen=True)
class Stated:
    """One set of settings.

    Attributes:
        source: where it is stated.
        start: what students start from, in words.
        runs: over how many runs, or which seeds, scores are averaged.
        keys: recipe keys, nested as in a recipe.
        tasks: task → recipe keys on top of `keys`.
        nets: for named CNNs, in place of `keys` and `tasks`; None if nothing is stated.
        grid: dotted recipe key → the values that were searched.
        chosen: recipe keys where the recipe's own value is not in the grid: limbeck's choice in it.
        notes: what no key says.
    """

    source: str = ""
    start: str = ""
    runs: str = ""
    keys: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    nets: Stated | None = None
    grid: dict[str, list[Any]] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def settings(self, task: object, *, net: bool = False) -> dict[str, Any]:
        """The recipe keys for one task.

        Raises:
            LimbeckError: they are asked for a named CNN, and none are stated.
        """
        if not net:
            keys = _over(self.chosen, self.keys, deleting=False)
            return _over(keys, self.tasks.get(str(task), {}), deleting=False)
        if self.nets is None:
            raise LimbeckError(
                f"settings: {self.source} says nothing of named CNNs",
                "leave settings out: the CNNs have settings of their own",
            )
        return self.nets.keys


def stated_in(blocks: Mapping[str, Any]) -> dict[str, Stated]:
    """Every set of settings of a recipe's `stated` block, by the name that chooses it.

    Raises:
        LimbeckError: what is written there is no such block, or lays itself over a paper or section
            that there is not.
    """
    for place, block in (("stated", blocks), *_parts(blocks)):
        if not isinstance(block, Mapping):
            raise LimbeckError(f"{place}: {block!r} holds no keys", "write keys and values there")
    return {name: _parsed(_whole(block)) for name, block in blocks.items()}


def _parts(blocks: Any) -> Iterator[tuple[str, Any]]:
    """What has to be a mapping in a `stated` block, by where it stands."""
    for name, block in blocks.items() if isinstance(blocks, Mapping) else ():
        yield f"stated.{name}", block
        for part in ("tasks", "nets", "grid", "chosen") if isinstance(block, Mapping) else ():
            yield f"stated.{name}.{part}", block.get(part, {})


def stated_of(method: str) -> dict[str, Stated]:
    """Every set of settings of a shipped method; none for a method that does not ship."""
    if method not in catalog.names():
        return {}
    return stated_in(catalog.read(method).get("stated", {}))


def flat(keys: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys as dotted ones with their values."""
    for key, value in keys.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _parsed(block: Mapping[str, Any]) -> Stated:
    nets = block.get("nets")
    return Stated(
        source=str(block.get("source", "")),
        start=str(block.get("start", "")),
        runs=str(block.get("runs", "")),
        keys={key: value for key, value in block.items() if key not in _WORDS},
        tasks=block.get("tasks", {}),
        nets=None if nets is None else _parsed(nets),
        grid=block.get("grid", {}),
        chosen=block.get("chosen", {}),
        notes=tuple(block.get("notes", ())),
    )


def _whole(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block laid over what it comes from."""
    own = {key: value for key, value in block.items() if key != "from"}
    if "from" not in block:
        return own
    paper, _, section = str(block["from"]).partition(".")
    sections = _paper(paper)
    if section not in sections:
        raise LimbeckError(unknown(f"section of {paper}", section, list(sections)))
    return _over(_whole(sections[section]), own, deleting=True)


@cache
def _paper(name: str) -> dict[str, Any]:
    folder = resources.files("limbeck.recipes") / "papers"
    names = sorted(file.name.removesuffix(".yaml") for file in folder.iterdir())
    if name not in names:
        raise LimbeckError(unknown("paper", name, names))
    raw: dict[str, Any] = read_yaml(
        (folder / f"{name}.yaml").read_text(encoding="utf-8"), f"paper {name}"
    )
    return raw


def _over(below: Mapping[str, Any], above: Mapping[str, Any], *, deleting: bool) -> dict[str, Any]:
    """`above` on `below`, key by key; with `deleting` a null takes out what is below it.

    A null with nothing below stays: it takes something out of the recipe.
    """
    laid = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(laid.get(key), Mapping):
            laid[key] = _over(laid[key], value, deleting=deleting)
        elif value is None and deleting and key in laid:
            del laid[key]
        else:
            laid[key] = value
    return laid
