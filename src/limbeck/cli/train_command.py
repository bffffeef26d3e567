"""`limbeck finetune` and `limbeck distill`: one run, from a recipe and the settings on the line.

It builds the recipe and hands it to `limbeck.run.distill`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli.console import output, say
from limbeck.cli.finished import show_result
from limbeck.cli.options import (
    flags_given,
    is_recipe_file,
    is_setting,
    merge,
    parse_axes,
    setting,
    takes_groups,
    typed,
)
from limbeck.recipe.catalog import RECOMMENDED, recommended
from limbeck.support.errors import LimbeckError
from limbeck.support.files import file_name

DATA, STUDENT, TRAINING = "Task and data", "Student", "Training"


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
            "--overwrite",
            help="Replace another recipe's run, or a finished one, that lies in --out.",
        ),
    ] = False


@dataclass(frozen=True)
class DataOptions:
    """What is learned from which rows."""

    task: Annotated[str | None, setting("task", DATA)] = None
    data: Annotated[str | None, setting("data", DATA)] = None
    dev: Annotated[str | None, setting("dev", DATA)] = None
    test: Annotated[str | None, setting("test", DATA)] = None
    dev_share: Annotated[float | None, setting("dev_share", DATA)] = None
    test_share: Annotated[float | None, setting("test_share", DATA)] = None
    group_column: Annotated[str | None, setting("group_column", DATA)] = None
    text_columns: Annotated[list[str] | None, setting("text_columns", DATA)] = None
    label_column: Annotated[str | None, setting("label_column", DATA)] = None
    classes: Annotated[list[str] | None, setting("classes", DATA)] = None
    labels: Annotated[str | None, setting("labels", DATA)] = None
    kind: Annotated[str | None, setting("kind", DATA)] = None
    max_length: Annotated[int | None, setting("max_length", DATA)] = None


@dataclass(frozen=True)
class ShapeOptions:
    """The shape of what is trained."""

    layers: Annotated[list[int] | None, setting("layers", STUDENT)] = None
    pick: Annotated[str | None, setting("pick", STUDENT)] = None


@dataclass(frozen=True)
class TrainingOptions:
    """How it is trained."""

    settings: Annotated[str | None, setting("settings", TRAINING)] = None
    epochs: Annotated[float | None, setting("epochs", TRAINING)] = None
    max_steps: Annotated[int | None, setting("max_steps", TRAINING)] = None
    lr: Annotated[float | None, setting("lr", TRAINING)] = None
    batch_size: Annotated[int | None, setting("batch_size", TRAINING)] = None
    accumulation: Annotated[int | None, setting("accumulation", TRAINING)] = None
    warmup: Annotated[float | None, setting("warmup", TRAINING)] = None
    patience: Annotated[int | None, setting("patience", TRAINING)] = None
    seed: Annotated[int | None, setting("seed", TRAINING)] = None
    precision: Annotated[str | None, setting("precision", TRAINING)] = None
    compile: Annotated[bool | None, setting("compile", TRAINING)] = None
    attention: Annotated[str | None, setting("attention", TRAINING)] = None
    report_to: Annotated[list[str] | None, setting("report_to", TRAINING)] = None
    plugin: Annotated[list[str] | None, setting("plugin", TRAINING)] = None


@dataclass(frozen=True)
class TeacherOptions:
    """Who teaches, and which of what is taught counts."""

    teacher: Annotated[str | None, setting("teacher", DATA)] = None
    teachers: Annotated[list[str] | None, setting("teachers", DATA)] = None
    outputs: Annotated[list[str] | None, setting("outputs", DATA)] = None
    missing_outputs: Annotated[str | None, setting("missing_outputs", DATA)] = None
    output_classes: Annotated[list[str] | None, setting("output_classes", DATA)] = None
    unlabelled: Annotated[list[str] | None, setting("unlabelled", DATA)] = None
    cache: Annotated[str | None, setting("cache", TRAINING)] = None
    min_confidence: Annotated[float | None, setting("min_confidence", TRAINING)] = None


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
            help="What is trained: a pretrained checkpoint's folder or Hub name, or a shape (bert-8-128-2 from the "
            "Hub, bert-8-128-2:random, pocket; for images resnet-20, …). Needed, but for pocket data.",
            rich_help_panel=STUDENT,
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL… KEY=V1,V2…",
            help="Train a team, a run folder each in --out: models (shapes, folders, Hub names; paper "
            "and pocket are teams), settings with several values, and all their combinations.",
            rich_help_panel=STUDENT,
        ),
    ] = None,
    place: RunPlace,
    data: DataOptions,
    shape: ShapeOptions,
    training: TrainingOptions,
) -> None:
    """Train a model without a teacher: a teacher, a team of them, a student to compare with."""
    flags = flags_given({"model": model} | typed(data) | typed(shape) | typed(training))
    given = merge(flags, arguments or [])
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
            help=f"The method. Start with {', '.join(RECOMMENDED)}; 'limbeck methods' lists all with what they are for."
        ),
    ] = None,
    teaching: TeacherOptions,
    place: RunPlace,
    data: DataOptions,
    student: Annotated[str | None, setting("student", STUDENT)] = None,
    shape: ShapeOptions,
    training: TrainingOptions,
) -> None:
    """Distil a fine-tuned teacher into a smaller student, by a method's name or a recipe file."""
    own = {"method": method, "student": student}
    groups = typed(teaching) | typed(data) | typed(shape) | typed(training)
    given = merge(flags_given(own | groups), [one for one in recipe or [] if is_setting(one)])
    names = [one for one in recipe or [] if not is_setting(one)]
    run_recipe(choose_recipe(names, given), given, place.out, place.overwrite)


def choose_recipe(names: Sequence[str], settings: dict[str, Any]) -> str | None:
    """Which recipe to load: a file (whose method `settings` may change) or a method's name.

    None where the teacher decides.

    Raises:
        LimbeckError: no recipe at all, several of them, or one that disagrees with `--method`.
    """
    if len(names) > 1:
        raise LimbeckError(
            f"several recipes were named: {', '.join(names)}",
            "give one of them; settings are written key=value",
        )
    if names and is_recipe_file(names[0]):
        return names[0]
    method = settings.pop("method", None)
    if names and method not in (None, names[0]):
        raise LimbeckError(
            f"the recipe {names[0]!r} and the method {method!r} disagree", "give one of them"
        )
    chosen = names[0] if names else method
    if chosen is None and settings.get("teacher") and settings.get("data"):
        return None
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

    recipe = Recipe.load(name, **settings)

    from limbeck.run import distill as run
    from limbeck.support.machine import is_first

    result = run(recipe, out=out, overwrite=overwrite, show=True)
    if is_first():
        if name is None:
            say(f"Method:  {recipe.method} ({recipe.summary}), as none was named", hang=9)
        show_result(result)


def run_grid(
    words: Sequence[str], settings: Mapping[str, Any], out: Path | None, overwrite: bool
) -> None:
    """Train all cells, print a table of them, and end with what went wrong with any.

    Raises:
        LimbeckError: what is wrong with the grid; or, after the table, why some cells failed.
    """
    models = [word for word in words if not is_setting(word)]
    axes = parse_axes([word for word in words if is_setting(word)])

    from limbeck.run import train_grid
    from limbeck.tables.team import members_table

    folder = out or Path("runs") / file_name(f"{settings.get('task') or 'own'}-team")
    members = train_grid(
        "finetune",
        out=folder,
        models=models,
        axes=axes,
        overwrite=overwrite,
        show=True,
        **settings,
    )
    output().print(members_table({member.name: member.record for member in members}))
    say(f"written to {folder}")
    problems = [problem for member in members for problem in member.problems]
    if problems:
        raise LimbeckError(problems)
