"""What papers and releases state about training: epochs, rates, start, and the grid they searched.

Beside `catalog`, and as light: nothing here loads torch. A recipe's `stated` block has one entry for
each set of settings that it can be run with (`paper`, `released`, or another paper's name where
several papers run one method). An entry has recipe keys, their differences between tasks, and notes on
choices without a key; `from: PAPER.SECTION` puts it on top of a section of `recipes/papers/PAPER.yaml`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from limbeck.recipe import catalog
from limbeck.support.errors import LimbeckError, check_choice
from limbeck.support.plain import read_yaml

QUICK = "quick"
"""The settings that a recipe has without any paper's."""


class Stated(BaseModel):
    """One set of settings; its other fields are recipe keys, nested as in a recipe.

    Attributes:
        source: where it is stated.
        start: what students start from, in words.
        layers: the number of layers of its students; None for any number.
        runs: over how many runs, or which seeds, scores are averaged.
        tasks: task → recipe keys on top of `keys`.
        nets: for named CNNs, instead of `keys` and `tasks`; None if nothing is stated.
        grid: dotted recipe key → the values that were searched.
        chosen: recipe keys where the recipe's own value is not in the grid: limbeck's choice in it.
        notes: choices that have no key.
    """

    model_config = ConfigDict(extra="allow", frozen=True, coerce_numbers_to_str=True)

    source: str = ""
    start: str = ""
    layers: int | None = None
    runs: str = ""
    tasks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    nets: "Stated | None" = None
    grid: dict[str, list[Any]] = Field(default_factory=dict)
    chosen: dict[str, Any] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def keys(self) -> dict[str, Any]:
        """Recipe keys for every task."""
        return dict(self.model_extra or {})

    def settings(self, task: object, *, net: bool = False) -> dict[str, Any]:
        """The recipe keys for one task.

        Raises:
            LimbeckError: a named CNN is trained, and the set has no settings for CNNs.
        """
        if not net:
            keys = _over(self.chosen, self.keys, deleting=False)
            return _over(keys, self.tasks.get(str(task), {}), deleting=False)
        if self.nets is None:
            raise LimbeckError(
                f"settings: {self.source} does not mention named CNNs",
                "leave settings out: the CNNs have settings of their own",
            )
        return self.nets.keys


def stated_in(blocks: Mapping[str, Any]) -> dict[str, Stated]:
    """Every set of settings of a recipe's `stated` block, by the name that chooses it.

    Raises:
        LimbeckError: the file contains no such block, or inherits from a paper or section
            that does not exist.
    """
    if not isinstance(blocks, Mapping):
        raise _no_keys("stated", blocks)
    found = {}
    for name, block in blocks.items():
        if not isinstance(block, Mapping):
            raise _no_keys(f"stated.{name}", block)
        try:
            found[name] = Stated.model_validate(_whole(block))
        except ValidationError as error:
            first = error.errors()[0]
            raise _no_keys(
                ".".join(["stated", name, *map(str, first["loc"])]), first["input"]
            ) from None
    return found


def _no_keys(place: str, block: object) -> LimbeckError:
    return LimbeckError(f"{place}: {block!r} holds no keys", "write keys and values there")


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


def _whole(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block merged over the block that it inherits from."""
    own = {key: value for key, value in block.items() if key != "from"}
    if "from" not in block:
        return own
    paper, _, section = str(block["from"]).partition(".")
    sections = _paper(paper)
    check_choice(f"section of {paper}", section, sections)
    return _over(_whole(sections[section]), own, deleting=True)


@cache
def _paper(name: str) -> dict[str, Any]:
    folder = resources.files("limbeck.recipes") / "papers"
    names = sorted(file.name.removesuffix(".yaml") for file in folder.iterdir())
    check_choice("paper", name, names)
    raw: dict[str, Any] = read_yaml(
        (folder / f"{name}.yaml").read_text(encoding="utf-8"), f"paper {name}"
    )
    return raw


def _over(below: Mapping[str, Any], above: Mapping[str, Any], *, deleting: bool) -> dict[str, Any]:
    """`above` merged over `below`, key by key; with `deleting` a null removes the key below it.

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
