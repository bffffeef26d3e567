"""`limbeck compress`: from a teacher and a budget to the students that meet it. It calls `limbeck.compressing`."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli import console, options
from limbeck.cli.options import flags, flags_given, merge, settings_flags, takes_groups
from limbeck.compressing.settings import CompressSettings

_ROWS = (
    "task",
    "data",
    "dev",
    "text_columns",
    "label_column",
    "classes",
    "labels",
    "kind",
    "max_length",
)
_TAUGHT = ("unlabelled", "outputs")


@takes_groups
def compress(
    *,
    teacher: Annotated[
        str,
        typer.Argument(
            metavar="TEACHER", help="A run's folder, a checkpoint's folder or Hub name."
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Any recipe setting of the rows and the training, for example batch_size=16.",
        ),
    ] = None,
    settings: Annotated[dict[str, Any], settings_flags("Options", CompressSettings)],
    out: Annotated[
        Path, typer.Option(help="Folder to write; rerun the same command to resume there.")
    ] = Path("compressed"),
    rows: Annotated[dict[str, Any], flags(options.DATA, {one: options.ROWS[one] for one in _ROWS})],
    taught: Annotated[
        dict[str, Any], flags(options.DATA, {one: options.TEACHING[one] for one in _TAUGHT})
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace another compression in --out.")
    ] = False,
) -> None:
    """Find, train and export the best student that meets a budget of size, latency, memory or parameters."""
    from limbeck.compressing.compress import compress as run_compress
    from limbeck.compressing.page import front_table, notes_of

    given = merge(flags_given(rows | taught), arguments or [])
    budget = settings.pop("budget", "")
    found = run_compress(
        teacher, budget, out, overwrite=overwrite, show=True, recipe=given, **settings
    )
    console.output().print(front_table(found.points, found.about["metric"]).printed())
    for line in notes_of(found.about):
        console.say(line, hang=2)
    console.say(found.about["reason"], hang=2)
    console.say(f"Files:   {out} (front.html, front.svg, front.json, students)", hang=9)
    if (best := found.recommended) is not None:
        console.say(f"Ship:    {best.path}", hang=9)
        command = ["limbeck", "push", best.run or best.path, "USER/NAME"]
        if best.kind == "teacher":  # its export belongs to no run of this folder
            command = ["limbeck", "predict", best.path, "ROWS.csv", "--to", "predictions.csv"]
        console.say_command("Next:    ", shlex.join(command))
