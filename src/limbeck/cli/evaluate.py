"""`limbeck evaluate`: score a finished run's student on a task, its own or one out of its domain.

Last on the way of a training step: calls `limbeck.run.evaluate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import output


def evaluate(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    task: Annotated[
        str | None, typer.Option(help="The task to score on; default: the run's own.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="'hub', 'pocket', a GLUE folder or a file; default: the run's own."),
    ] = None,
    split: Annotated[str, typer.Option(help="The split to score on.")] = "dev",
) -> None:
    """Score a run's student, on its own task or out of its domain, and record the score."""
    from limbeck.run import evaluate as run_evaluation

    scores = run_evaluation(run, task=task, data=data, split=split)
    console = output()
    for name, value in scores.items():
        console.print(f"{name} {value:.1f}", markup=False, soft_wrap=True)
