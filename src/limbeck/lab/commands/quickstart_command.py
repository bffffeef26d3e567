"""`limbeck quickstart`: few labels and much text, one table and one report.

It calls `limbeck.lab.quickstart.quickstart`.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.support.cores import cores

_MOST_JOBS = 4
"""Each has a model library of its own in memory."""


def quickstart(
    out: Annotated[
        Path, typer.Option(help="The folder to write; the same command again continues there.")
    ] = Path("runs/quickstart"),
    task: Annotated[str | None, typer.Option(help="The pocket task, by its GLUE name.")] = None,
    labels: Annotated[
        int, typer.Option(min=1, help="How many training rows keep their labels.")
    ] = 1500,
    seeds: Annotated[
        int, typer.Option(min=1, help="How many runs of each student, with seeds 1, 2, ...")
    ] = 4,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes side by side, which change no number: by default one a core, 4 at most.",
        ),
    ] = None,
) -> None:
    """Few labels and much text: a student with and without the unlabelled rows; minutes, no network."""
    from limbeck.lab.quickstart import quickstart as run

    jobs = jobs or min(cores() or 1, _MOST_JOBS)
    settings: dict[str, Any] = {} if task is None else {"task": task}
    run(out=out, labels=labels, seeds=seeds, jobs=jobs, **settings)
