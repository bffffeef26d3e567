"""The options of every command that scores something: which rows, by which task, and what plugins they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from limbeck.cli.options import setting

Plugins = Annotated[
    list[str] | None,
    typer.Option(help="Files of Python that register what scoring needs, a task type say."),
]


@dataclass(frozen=True)
class ScoredRows:
    """Which rows are scored; those of the run where nothing is said."""

    task: Annotated[
        str | None, typer.Option(help="The task to score on; default: the run's own.")
    ] = None
    data: Annotated[
        str | None,
        typer.Option(help="'hub', 'pocket', a GLUE folder or a file; default: the run's own."),
    ] = None
    split: Annotated[
        str | None,
        typer.Option(help="The split; by default the one the task is scored on."),
    ] = None
    text_columns: Annotated[list[str] | None, setting("text_columns")] = None
    label_column: Annotated[str | None, setting("label_column")] = None
