"""`limbeck predict`: a model's predictions about rows of any length.

It calls `limbeck.predicting`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from limbeck.cli.options import settings_flags, takes_groups
from limbeck.predicting.settings import PredictSettings
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.registry import load_plugins
from limbeck.support.terminal import messages

if TYPE_CHECKING:
    from limbeck.predicting.job import PredictJob

STREAM_FORMATS = ("jsonl", "csv")
_INTERRUPTED = 130  # the shells' code for Ctrl-C
_PIPE_CLOSED = 141  # what a shell reports of a program that SIGPIPE ends


@takes_groups
def predict(
    *,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A run folder, a checkpoint's folder or Hub name, an exported folder.",
        ),
    ],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="CSV, TSV, JSON lines, Parquet, plain text (a row a line) or images; several, patterns, folders; - is "
            "standard input.",
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            help="The file to write: .jsonl, .csv or .parquet; killed, the same command continues it. Without it, "
            "or by -, rows go to standard output.",
        ),
    ] = None,
    to_format: Annotated[str, typer.Option(help="Of standard output: jsonl or csv.")] = "jsonl",
    settings: Annotated[dict[str, Any], settings_flags("Predictions", PredictSettings)],
    plugin: Annotated[
        list[str] | None,
        typer.Option(help="Files of Python that register what predicting needs, a task type say."),
    ] = None,
) -> None:
    """Predict any number of rows: labels by name, probabilities, embeddings; streamed, continued after a kill."""
    load_plugins(plugin or ())
    if to_format not in STREAM_FORMATS:
        raise LimbeckError(unknown("to-format", to_format, STREAM_FORMATS))
    asked = PredictSettings.checked(settings)

    from limbeck.data.stream import RowStream, named_files
    from limbeck.predicting.job import prepare
    from limbeck.support.files import at_home

    target = None if to is None or str(to) == "-" else at_home(to)
    job = prepare(
        model,
        lambda: RowStream(named_files(files), asked.format),
        asked,
        target=target,
        form=to_format if target is None else "",
    )
    console = messages()
    if target is not None:
        console.print(str(job.write_file(target, console)))
    else:
        _write_to_pipe(job, to_format, console)


def _write_to_pipe(job: PredictJob, form: str, console: Console) -> None:
    """Rows to standard output; whoever reads them may stop."""
    from limbeck.support.files import one_error_for_a_full_disk

    if sys.stdout is None:
        raise LimbeckError("standard output is closed", "name a file with --to")
    try:
        with one_error_for_a_full_disk(Path("standard output")):
            said = job.write_stream(sys.stdout.buffer, form, console)
    except KeyboardInterrupt:
        console.print("\nstopped; what was written is whole, and --to FILE would let it continue")
        raise typer.Exit(_INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever reads has enough; the interpreter must not try to write the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(_PIPE_CLOSED) from None
    console.print(str(said))
