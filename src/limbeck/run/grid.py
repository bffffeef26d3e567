"""`train_grid(…)`: a whole team, each member an ordinary run in its own folder.

Part of `limbeck.run`. The same call again keeps what has finished and continues what was stopped.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.run.distill import distill
from limbeck.run.grid_cells import GridCell, cells_of
from limbeck.run.loaded_models import build_models
from limbeck.run.required_settings import missing
from limbeck.run.run_folder import RunFolder
from limbeck.run.stage_rows import load_rows
from limbeck.run.student_start import with_start
from limbeck.run.unchanged import finished
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import Task

log = logging.getLogger(__name__)

# The settings that decide which rows a run reads.
_ROWS = (
    "task",
    "data",
    "text_columns",
    "label_column",
    "kind",
    "classes",
    "labels",
    "teacher",
    "teachers",
)


@dataclass(frozen=True)
class Member:
    """How one cell ended.

    Attributes:
        name: the name of its folder.
        path: its run folder.
        record: what is known of the run; None if it failed before it began.
        problems: why it failed; empty if it has finished.
    """

    name: str
    path: Path
    record: Record | None
    problems: tuple[Problem, ...] = field(default=())


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

    A cell that fails does not stop the others; its member says why.

    Args:
        recipe: a shipped method's name or a YAML file.
        out: the folder of run folders.
        models: what students start from: shapes (`bert-8-128-2`), folders, Hub names, teams
            (`paper`, `pocket`).
        axes: recipe keys with several values each.
        overwrite: replace what lies in the cells' folders of other recipes, or of rows or models
            that have changed since.
        show: show pre-flight findings and progress on the terminal.
        **settings: recipe keys of all cells.

    Raises:
        LimbeckError: everything that is wrong with any cell, before the first one starts.
    """
    cells = cells_of(models, axes)
    clash = [key for key in cells[0].settings if key in settings]
    if clash:
        raise LimbeckError(
            f"grid: {', '.join(clash)} is part of the grid and set outside it too", "give it once"
        )
    recipes = _recipes(cells, recipe, settings)
    folder = Path(out)
    _check(recipes, folder, overwrite=overwrite)
    console = Console(stderr=True, quiet=not show, highlight=False, markup=False, emoji=False)
    members = []
    for number, (name, one) in enumerate(recipes.items(), start=1):
        console.print(f"[{number}/{len(recipes)}] {name}", markup=False, style="bold")
        members.append(_train(name, one, folder / name, overwrite=overwrite, show=show))
        gc.collect()  # A trainer and its callbacks hold each other, and the next may be large.
    return members


def _recipes(
    cells: Sequence[GridCell], recipe: str | Path, settings: Mapping[str, Any]
) -> dict[str, Recipe]:
    recipes: dict[str, Recipe] = {}
    wrong: dict[str, list[Problem]] = {}
    for cell in cells:
        try:
            recipes[cell.name] = with_start(Recipe.load(recipe, **settings, **cell.settings))
        except LimbeckError as error:
            wrong[cell.name] = error.problems
    _raise(wrong, len(cells))
    return recipes


def _check(recipes: Mapping[str, Recipe], out: Path, *, overwrite: bool) -> None:
    """Folders, rows and models of all cells that are still to be trained.

    The rows are loaded once for all cells that share them; each model is built and let go, so that
    missing checkpoints and layers are known before hours have passed.
    """
    wrong: dict[str, list[Problem]] = {}
    tasks: dict[str, Task] = {}
    for name, recipe in recipes.items():
        try:
            if finished(recipe, RunFolder(out / name), overwrite=overwrite) is not None:
                continue
            problems = missing(recipe)
            if problems:
                raise LimbeckError(problems)
            rows = repr([getattr(recipe, key) for key in _ROWS] + [recipe.conditions])
            if rows not in tasks:
                tasks[rows], _ = load_rows(recipe)
            build_models(recipe, tasks[rows])
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
            [
                problem if len(names) == count else _of(", ".join(names), problem)
                for problem, names in cells.items()
            ]
        )


def _of(name: str, problem: Problem) -> Problem:
    return Problem(f"{name}: {problem.message}", problem.fix, problem.severity)


def _train(name: str, recipe: Recipe, path: Path, *, overwrite: bool, show: bool) -> Member:
    # A finished run of the same recipe stays, also where other recipes' runs are replaced.
    try:
        fresh = overwrite and not _is_own(path, recipe)
        done = distill(recipe, path, overwrite=fresh, show=show)
        return Member(name, path, done.record)
    except LimbeckError as error:
        problems = [problem for problem in error.problems if problem.severity == "error"]
    except Exception as error:  # whatever ends one run, the others go on
        log.debug("%s failed", name, exc_info=True)
        first = (str(error).strip().splitlines() or [""])[0]
        fix = "run this one alone with --debug to see where; the others are not affected"
        problems = [Problem(f"{type(error).__name__}: {first}", fix)]
    record = Record.load(path) if (path / RECORD_NAME).is_file() else None
    return Member(name, path, record, tuple(_of(name, problem) for problem in problems))


def _is_own(path: Path, recipe: Recipe) -> bool:
    try:
        finished(recipe, RunFolder(path))
    except LimbeckError:
        return False
    return True
