"""`limbeck finetune` and `limbeck distill`: one run, from a recipe and the settings on the line.

It builds the recipe and hands it to `limbeck.run.distill`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli import console, finished, options
from limbeck.cli.options import flags_given, is_setting, merge, setting, takes_groups
from limbeck.recipe.catalog import RECOMMENDED, recommended
from limbeck.support.errors import LimbeckError, raise_problems
from limbeck.support.files import file_name

Rows = Annotated[dict[str, Any], options.flags(options.DATA, options.ROWS)]
Shape = Annotated[dict[str, Any], options.flags(options.STUDENT, options.SHAPE)]
Training = Annotated[dict[str, Any], options.flags(options.TRAINING, options.TRAINED)]
Teaching = Annotated[dict[str, Any], options.flags(options.DATA, options.TEACHING)]
Taught = Annotated[dict[str, Any], options.flags(options.TRAINING, options.TAUGHT)]


@dataclass(frozen=True)
class RunPlace:
    """Where a run is written."""

    out: Annotated[
        Path | None,
        typer.Option(
            help="The run folder to write, by default runs/TASK-METHOD-MODEL-LAYERS-sSEED-DIGEST, one an experiment; "
            "the same command again continues an unfinished run there."
        ),
    ] = None
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace another recipe's run, or a finished one, in --out."
        ),
    ] = False


@takes_groups
def finetune(
    *,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Any recipe setting, for example student.layers=3."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model to train: a pretrained checkpoint's folder or Hub name, or a shape (bert-8-128-2 from the "
            "Hub, bert-8-128-2:random, pocket; for images resnet-20, …). Required, except for pocket data.",
            rich_help_panel=options.STUDENT,
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL… KEY=V1,V2…",
            help="Train a team, a run folder each in --out: models (shapes, folders, Hub names; paper "
            "and pocket are teams), settings with several values, and all their combinations.",
            rich_help_panel=options.STUDENT,
        ),
    ] = None,
    place: RunPlace,
    data: Rows,
    shape: Shape,
    training: Training,
) -> None:
    """Train a model without a teacher: a teacher, a team of them, a student to compare with."""
    given = merge(flags_given({"model": model} | data | shape | training), arguments or [])
    if given.pop("method", "finetune") != "finetune":
        raise LimbeckError("limbeck finetune has one method", "use limbeck distill for the others")
    if grid:
        run_grid(grid, given, place.out, place.overwrite)
    else:
        run_recipe("finetune", given, place.out, place.overwrite)


@takes_groups
def distill(
    *,
    recipe: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE KEY=VALUE",
            help="A recipe file or a method's name, then any setting: student.layers=3",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"The method. Start with {', '.join(RECOMMENDED)}; 'limbeck methods' lists all with their purposes."
        ),
    ] = None,
    teaching: Teaching,
    taught: Taught,
    place: RunPlace,
    data: Rows,
    student: Annotated[str | None, setting("student", options.STUDENT)] = None,
    shape: Shape,
    training: Training,
) -> None:
    """Distill a fine-tuned teacher into a smaller student, by a method's name or a recipe file."""
    flags = {"method": method, "student": student} | teaching | taught | data | shape | training
    given = merge(flags_given(flags), [one for one in recipe or [] if is_setting(one)])
    names = [one for one in recipe or [] if not is_setting(one)]
    run_recipe(choose_recipe(names, given), given, place.out, place.overwrite)


_ROWS = frozenset({"data", "parallel", "unlabelled"})
_OTHERWISE = "settings are written key=value, several teachers --teachers A B"
_TEACHERS = frozenset({"teacher", "teachers", "outputs"})


def choose_recipe(names: Sequence[str], settings: dict[str, Any]) -> str | None:
    """Which recipe to load: a file (whose method `settings` may change) or a method's name.

    None where the teacher decides.

    Raises:
        LimbeckError: no recipe at all, several of them, or one that disagrees with `--method`.
    """
    if len(names) > 1:
        raise LimbeckError(
            f"several recipes were named: {', '.join(names)}",
            f"give one of them; {_OTHERWISE}",
        )
    if names and options.is_recipe_file(names[0]):
        return names[0]
    method = settings.pop("method", None)
    if names and method not in (None, names[0]):
        raise LimbeckError(
            f"the recipe {names[0]!r} and the method {method!r} disagree",
            f"give one of them; {_OTHERWISE}",
        )
    chosen = names[0] if names else method
    # With unlabeled text alone, the check of missing settings names --data.
    if chosen is None and settings.get("teacher") and (settings.keys() & _ROWS):
        return None
    if chosen is None and (settings.keys() & _ROWS) and not (settings.keys() & _TEACHERS):
        raise LimbeckError(
            "teacher: none is given",
            "add --teacher FOLDER, which defines the method too; `limbeck finetune` makes one",
        )
    if chosen is None:
        raise LimbeckError(
            "method: none is given",
            f"add --method NAME or a recipe file; start with {recommended()}",
        )
    return str(chosen)


def run_recipe(
    name: str | None, settings: Mapping[str, Any], out: Path | None, overwrite: bool
) -> None:
    """Load the recipe with its settings, run it, print how good the result is and where."""
    from limbeck.recipe import Recipe
    from limbeck.recipe.teacher_text import WHY

    recipe = Recipe.load(name, **settings)

    from limbeck.run import distill as run
    from limbeck.support.machine import is_first

    result = run(recipe, out=out, overwrite=overwrite, show=True)
    if is_first():
        if name is None:
            console.say(f"Method:  {recipe.method} ({recipe.summary}), as none was named", hang=9)
            console.say(f"Why:     {WHY.get(recipe.method, 'the usual one')}", hang=9)
        finished.show_result(result)


def run_grid(
    words: Sequence[str], settings: Mapping[str, Any], out: Path | None, overwrite: bool
) -> None:
    """Train all cells, print a table of them, and end with what went wrong with any.

    Raises:
        LimbeckError: errors in the grid; or, after the table, why some cells failed.
    """
    models = [word for word in words if not is_setting(word)]
    axes = options.parse_axes([word for word in words if is_setting(word)])

    from limbeck.run import train_grid
    from limbeck.tables.team import members_table

    folder = out or Path("runs") / file_name(f"{settings.get('task') or 'own'}-team")
    members = train_grid(
        "finetune", out=folder, models=models, axes=axes, overwrite=overwrite, show=True, **settings
    )
    console.output().print(
        members_table({member.name: member.record for member in members}).printed()
    )
    console.say(f"written to {folder}")
    problems = [problem for member in members for problem in member.problems]
    raise_problems(problems)
