"""`limbeck cascade`: a fast model that asks a slow one where it is unsure. It calls `limbeck.exporting.cascade`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import say, say_command
from limbeck.cli.options import takes_groups, typed
from limbeck.cli.scored_options import Plugins, ScoredRows
from limbeck.support.registry import load_plugins


@dataclass(frozen=True)
class WantedOptions:
    """What the thresholds are chosen for; one of them."""

    max_drop: Annotated[
        float | None,
        typer.Option(
            help="Points of the primary score that may be lost beside SLOW; this, at 0.3, if nothing is said."
        ),
    ] = None
    score: Annotated[float | None, typer.Option(help="The primary score to reach, 0 to 100.")] = (
        None
    )
    agreement: Annotated[
        float | None,
        typer.Option(help="Percent of rows to predict as SLOW does; needs no labels."),
    ] = None
    cost: Annotated[
        float | None, typer.Option(help="Percent of SLOW's time that a row may cost.")
    ] = None


@takes_groups
def cascade(
    *,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="FAST [MIDDLE] SLOW",
            help="Run folders, checkpoints' folders or Hub names, exported folders; the fastest first.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("cascade"),
    wanted: WantedOptions,
    rows: ScoredRows,
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            help="A file of text in place of labelled rows: SLOW's predictions are its labels."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a cascade that lies there.")
    ] = False,
    plugin: Plugins = None,
) -> None:
    """Let a fast model answer and ask a slow one where it is unsure; measured, and written as a folder."""
    load_plugins(plugin or ())

    from limbeck.data import RowsAsked
    from limbeck.exporting.cascade import cascade as make_cascade
    from limbeck.exporting.cascade import lines_of

    asked = RowsAsked(**typed(rows))
    found = make_cascade(
        models,
        out,
        asked,
        unlabelled=unlabelled,
        wanted=typed(wanted) or None,
        overwrite=overwrite,
        show=True,
    )
    for line in lines_of(found):
        say(line, hang=2)
    say(f"Files:   {out} (models, thresholds, README.md, curve.svg)", hang=9)
    say_command("Next:    ", f"limbeck predict {out} ROWS.csv --to predictions.csv")
