"""`limbeck submit`: the test rows of GLUE, predicted and packed as the benchmark takes them.

It calls `limbeck.lab.submitting`.
"""

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import say, trouble
from limbeck.support.terminal import print_line


def submit(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…",
            help="Finished runs, one for each of GLUE's nine tasks; MNLI's also predicts the diagnostic rows.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The .zip file.")] = Path("submission.zip"),
    data: Annotated[
        str | None,
        typer.Option(help="'hub', hub:DIR or a GLUE folder; default: where each run's rows are."),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="Write the files of the tasks that are there; the benchmark takes all or none.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
) -> None:
    """Predict GLUE's test rows and write them for gluebenchmark.com, all tasks in one archive."""
    from limbeck.lab.submitting import submit as write_submission

    found = write_submission(runs, out, data=data, partial=partial, overwrite=overwrite, show=True)
    for name, rows in found.rows.items():
        say(f"{rows:8,} rows  {name}")
    say(f"{found.path}: {len(found.rows)} files")
    if found.missing:
        print_line(trouble(), f"the benchmark refuses it without {', '.join(found.missing)}")
