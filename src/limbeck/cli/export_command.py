"""`limbeck export`: a model for another runtime, if it keeps its score there.

It calls `limbeck.exporting`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import say, say_command
from limbeck.cli.conversion_options import ConversionOptions
from limbeck.cli.export_summary import show_export
from limbeck.cli.finished import after_export
from limbeck.cli.options import takes_groups, typed
from limbeck.cli.scored_options import Plugins, ScoredRows
from limbeck.support.files import at_home
from limbeck.support.registry import load_plugins


@takes_groups
def export(
    *,
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_MODEL",
            help="A run folder; or any checkpoint's folder or Hub name, with --task, --data.",
        ),
    ],
    conversion: ConversionOptions,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write; default: RUN/exported/FORMAT."),
    ] = None,
    rows: ScoredRows,
    max_length: Annotated[
        int | None,
        typer.Option(help="Tokens a text is cut to; default: the run's, else the model's."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an exported model that lies there.")
    ] = False,
    plugin: Plugins = None,
) -> None:
    """Write a model for another runtime, scored there beside torch, and refused if it loses too much."""
    load_plugins(plugin or ())

    from limbeck.exporting import export as export_model

    result = export_model(
        model,
        out=out,
        **typed(rows),
        max_length=max_length,
        overwrite=overwrite,
        show=True,
        **typed(conversion),
    )
    show_export(result.manifest)
    say((result.path / "predict.py").read_text(encoding="utf-8").rstrip())
    say(f"Files:   {result.path} (model, tokenizer and the predict.py above)", hang=9)
    if (command := after_export(result.path, at_home(model))) is not None:
        say_command("Next:    ", command)
