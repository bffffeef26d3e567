"""`train_grid(…)`: an entire team, each member an ordinary run in its own folder.

Part of `limbeck.run`. The same call again keeps finished runs and continues stopped ones.
"""

import gc
import itertools
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.run import inputs
from limbeck.run.distill import distill
from limbeck.run.earlier_run import EarlierRun
from limbeck.run.prepare import Loaded, refuse_wrong
from limbeck.run.run_folder import RunFolder
from limbeck.students import RANDOM, TEAMS
from limbeck.support import terminal
from limbeck.support.errors import LimbeckError, Problem, first_line
from limbeck.support.files import file_name

# A grid of runs: models and settings with several values each, every combination a cell. Part of
# `limbeck.run`; `grid` trains the cells.


MODEL = "student.init"


def cells_of(
    models: Sequence[str] = (), axes: Mapping[str, Sequence[Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Folder name → recipe settings of every combination of a model and a value from each axis, the first axis slowest.

    Args:
        models: what `student.init` may be, or a team's name (`TEAMS`), also as `paper:random`.
        axes: recipe key → its values. A setting with one value is the same in all cells and does
            not show in their names.

    Raises:
        LimbeckError: nothing in it, an axis without values, or cells of the same name.
    """
    axes = dict(axes or {})
    if models and MODEL in axes:
        raise LimbeckError(
            f"grid: models are named, and {MODEL} has values too", "give one of them"
        )
    if models:
        axes = {MODEL: list(_models(models)), **axes}
    empty = [key for key, values in axes.items() if not values]
    if empty or not axes:
        raise LimbeckError(
            f"grid: {', '.join(empty) or 'it'} has no values",
            f"name models, a team ({', '.join(TEAMS)}), or settings: student.layers=2,4,6",
        )
    # Models that are named show always, so that grids of one folder can be added to.
    named = [MODEL] if models else []
    varied = [key for key, values in axes.items() if len(values) > 1 or key in named]
    varied = varied or list(axes)[:1]
    labels = _labels(varied)
    found: dict[str, dict[str, Any]] = {}
    for values in itertools.product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        name = "_".join(labels[key] + _text(settings[key]) for key in varied)
        if name in found:
            raise LimbeckError(
                f"grid: several cells would be the folder {name}",
                "remove duplicate names; folders with the same name need separate grids",
            )
        found[name] = settings
    return found


def _models(names: Sequence[str]) -> Iterator[str]:
    """The names, with each team's name replaced by its members'."""
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
    """The prefix of a value in a folder's name: nothing for models, otherwise the key's last part."""
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


log = logging.getLogger(__name__)

# The settings that decide which rows a run reads.
_ROWS = (
    *("task", "data", "text_columns", "label_column", "kind", "classes", "labels"),
    *("teacher", "teachers"),
)


@dataclass(frozen=True)
class Member:
    """How one cell ended.

    Attributes:
        name: the name of its folder.
        path: its run folder.
        record: the run's facts; None if it failed before it began.
        problems: why it failed; empty if it has finished.
    """

    name: str
    path: Path
    record: Record | None
    problems: tuple[Problem, ...] = ()


def train_grid(
    recipe: str | Path = "finetune",
    *,
    out: str | Path,
    models: Sequence[str] = (),
    axes: Mapping[str, Sequence[Any]] | None = None,
    overwrite: bool = False,
    show: bool = False,
    **settings: Any,
) -> list[Member]:
    """Train every cell of a grid into a run folder of its own, `out/<cell>`.

    A cell that fails does not stop the others; its member has the reason.

    Args:
        recipe: a shipped method's name or a YAML file.
        out: the folder of run folders.
        models: what students start from: shapes (`bert-8-128-2`), folders, Hub names, teams
            (`paper`, `pocket`).
        axes: recipe keys with several values each.
        overwrite: replace runs of other recipes in the cells' folders, or runs whose rows or models
            that have changed since.
        show: show pre-flight findings and progress on the terminal.
        **settings: recipe keys of all cells.

    Example:
        ```python
        limbeck.train_grid(
            "finetune", out="runs/grid", models=["path/to/encoder"], axes={"lr": [5e-5, 1e-4]}, data="questions.csv"
        )
        ```

    Raises:
        LimbeckError: everything that is wrong with any cell, before the first one starts.
    """
    cells = cells_of(models, axes)
    clash = [key for key in next(iter(cells.values())) if key in settings]
    if clash:
        raise LimbeckError(
            f"grid: {', '.join(clash)} is part of the grid and set outside it too", "give it once"
        )
    recipes = _recipes(cells, recipe, settings)
    folder = Path(out)
    _check(recipes, folder, overwrite=overwrite)
    console = terminal.messages(shown=show)
    members = []
    for number, (name, one) in enumerate(recipes.items(), start=1):
        console.print(f"[{number}/{len(recipes)}] {name}", markup=False, style="bold")
        members.append(_train(name, one, folder / name, overwrite=overwrite, show=show))
        gc.collect()  # A trainer and its callbacks hold each other, and the next may be large.
    return members


def _recipes(
    cells: Mapping[str, Mapping[str, Any]], recipe: str | Path, settings: Mapping[str, Any]
) -> dict[str, Recipe]:
    recipes: dict[str, Recipe] = {}
    wrong: dict[str, list[Problem]] = {}
    for name, own in cells.items():
        try:
            recipes[name] = inputs.with_start(Recipe.load(recipe, **settings, **own))
        except LimbeckError as error:
            wrong[name] = error.problems
    _raise(wrong, len(cells))
    return recipes


def _check(recipes: Mapping[str, Recipe], out: Path, *, overwrite: bool) -> None:
    """Folders, rows and models of all cells that are still to be trained.

    The rows are loaded once for all cells that share them; each model is built and let go, so that
    missing checkpoints and layers are known before hours have passed.
    """
    wrong: dict[str, list[Problem]] = {}
    loaded: dict[str, Loaded] = {}
    for name, recipe in recipes.items():
        try:
            earlier = EarlierRun(RunFolder(out / name), recipe)
            if earlier.finished(overwrite=overwrite) is not None:
                continue
            rows = repr([getattr(recipe, key) for key in _ROWS] + [recipe.conditions])
            loaded[rows] = refuse_wrong(recipe, loaded=loaded.get(rows))
        except LimbeckError as error:
            wrong[name] = error.problems
    _raise(wrong, len(recipes))


def _raise(wrong: Mapping[str, Sequence[Problem]], count: int) -> None:
    """Raise all cells' problems, each once, with the cells that have it unless all do."""
    cells: dict[Problem, list[str]] = {}
    for name, problems in wrong.items():
        for problem in problems:
            cells.setdefault(problem, []).append(name)
    if cells:
        raise LimbeckError(
            problem if len(names) == count else _of(", ".join(names), problem)
            for problem, names in cells.items()
        )


def _of(name: str, problem: Problem) -> Problem:
    return replace(problem, message=f"{name}: {problem.message}")


def _train(name: str, recipe: Recipe, path: Path, *, overwrite: bool, show: bool) -> Member:
    # A finished run of the same recipe stays, also where other recipes' runs are replaced.
    try:
        with suppress(LimbeckError):
            EarlierRun(RunFolder(path), recipe).finished()
            overwrite = False
        done = distill(recipe, path, overwrite=overwrite, show=show)
        return Member(name, path, done.record)
    except LimbeckError as error:
        problems = [problem for problem in error.problems if problem.severity == "error"]
    except Exception as error:  # if one run fails, the others continue
        log.debug("%s failed", name, exc_info=True)
        first = first_line(error)
        fix = "run this one alone with --debug to see where; the others are not affected"
        problems = [Problem(f"{type(error).__name__}: {first}", fix)]
    record = Record.load(path) if (path / RECORD_NAME).is_file() else None
    return Member(name, path, record, tuple(_of(name, problem) for problem in problems))
