"""A grid of runs: models and settings with several values each, every combination a cell.

Part of `limbeck.run`; `grid` trains the cells.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.students import RANDOM, TEAMS
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import file_name

MODEL = "student.init"


@dataclass(frozen=True)
class GridCell:
    """One run of a grid: the name of its folder, and the recipe settings that make it this one."""

    name: str
    settings: Mapping[str, Any]


def cells_of(
    models: Sequence[str] = (), axes: Mapping[str, Sequence[Any]] | None = None
) -> list[GridCell]:
    """Every combination of a model and a value from each axis, the first axis slowest.

    Args:
        models: what `student.init` may be, or a team's name (`TEAMS`), also as `paper:random`.
        axes: recipe key → its values. A setting with one value is the same in all cells and does
            not show in their names.

    Raises:
        LimbeckError: nothing in it, an axis without values, or cells of the same name.
    """
    axes = dict(axes or {})
    problems = [
        Problem(f"grid: {key} has no values", f"write {key}=FIRST,SECOND")
        for key, values in axes.items()
        if not values
    ]
    if models and MODEL in axes:
        problems.append(
            Problem(f"grid: models are named, and {MODEL} has values too", "give one of them")
        )
    elif models:
        axes = {MODEL: list(_models(models)), **axes}
    if not axes:
        problems.append(
            Problem(
                "grid: there is nothing in it",
                f"name models, a team ({', '.join(TEAMS)}), or settings: student.layers=2,4,6",
            )
        )
    if problems:
        raise LimbeckError(problems)
    # Models that are named show always, so that grids of one folder can be added to.
    named = [MODEL] if models else []
    varied = [key for key, values in axes.items() if len(values) > 1 or key in named]
    varied = varied or list(axes)[:1]
    labels = _labels(varied)
    found = []
    for values in itertools.product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        parts = [labels[key] + _text(settings[key]) for key in varied]
        found.append(GridCell("_".join(parts), settings))
    twice = [name for name, count in Counter(cell.name for cell in found).items() if count > 1]
    if twice:
        raise LimbeckError(
            f"grid: several cells would be the folder {', '.join(twice)}",
            "leave out what is named twice; folders with one name need a grid each",
        )
    return found


def _models(names: Sequence[str]) -> Iterator[str]:
    """The names, each team's replaced by those of its members."""
    for name in names:
        team = name.removesuffix(RANDOM)
        if team not in TEAMS:
            yield name
            continue
        for member in TEAMS[team]:
            # Whole-word masking is in the weights alone: at random it would be one more of its shape.
            if name == team or not member.endswith("-wwm"):
                yield member + name.removeprefix(team)


def _labels(keys: Sequence[str]) -> dict[str, str]:
    """What stands before a value in a folder's name: nothing for models, else the key's last part."""
    last = Counter(key.rpartition(".")[2] for key in keys)
    return {
        key: "" if key == MODEL else f"{name if last[name] == 1 else key}-"
        for key in keys
        for name in [key.rpartition(".")[2]]
    }


def _text(value: Any) -> str:
    """A value as part of a folder's name; of a path, its last part."""
    if isinstance(value, list | tuple):
        return ".".join(map(_text, value))
    if isinstance(value, Mapping):
        return ".".join(f"{key}-{_text(item)}" for key, item in value.items())
    said = str(value)
    return file_name(Path(said).resolve().name if "/" in said else said)
