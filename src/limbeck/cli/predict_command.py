"""`limbeck predict`: a model's predictions about rows of any length.

It calls `limbeck.predicting`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from limbeck.cli.options import option, setting, takes_groups, typed
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.registry import load_plugins
from limbeck.support.terminal import messages

if TYPE_CHECKING:
    from limbeck.predicting.job import PredictJob

ROWS, OUTPUT, RUNNING = "Rows", "Output", "Running"


@dataclass(frozen=True)
class PredictOptions:
    """As `limbeck.predicting.PredictSettings` takes them."""

    output: Annotated[
        list[str] | None,
        option(
            OUTPUT,
            "labels, scores (the label's probability), ranks (of a query's passages), probabilities, logits, "
            "embeddings; several. \\[default: labels]",
        ),
    ] = None
    keep: Annotated[
        list[str] | None,
        option(
            OUTPUT,
            "Columns of the rows that stand beside the predictions: names, all or none. \\[default: all]",
        ),
    ] = None
    prefix: Annotated[str, option(OUTPUT, "Of the predicted columns' names.")] = ""
    csv_safe: Annotated[
        bool,
        typer.Option(
            "--csv-safe",
            help="CSV and TSV: write an apostrophe before text that a spreadsheet would run as a formula.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace --to, and begin again what other settings or rows have begun.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    text_columns: Annotated[list[str] | None, setting("text_columns", ROWS)] = None
    pooling: Annotated[
        str,
        option(
            OUTPUT,
            "How hidden states of the last layer become an embedding: mean (over real tokens), cls or last.",
        ),
    ] = "mean"
    prompt: Annotated[
        str,
        option(
            OUTPUT,
            "What the texts are, of embedding models: sentence, query or passage, each with the model's own prompt.",
        ),
    ] = "sentence"
    batch_size: Annotated[int, option(RUNNING, "Rows of a pass.", min=1)] = 32
    max_length: Annotated[
        int | None,
        option(
            RUNNING,
            "Tokens read of a row; by default what the model was trained or exported with, or its folder says, "
            "else 512 at most.",
            min=1,
        ),
    ] = None
    max_new_tokens: Annotated[int | None, option(RUNNING, "Tokens of a generated text.", min=1)] = (
        None
    )
    precision: Annotated[str, option(RUNNING, "fp32 or bf16.")] = "fp32"
    chunk_rows: Annotated[
        int | None,
        option(
            RUNNING,
            "Rows that are read, sorted by length and written at once, the work that a kill may cost; by default "
            "4096, to standard output 256.",
            min=1,
        ),
    ] = None


@dataclass(frozen=True)
class SourceOptions:
    """What the rows and the model are."""

    format: Annotated[
        str | None,
        option(
            ROWS,
            "Of the rows: csv, tsv, jsonl, text or parquet; needed for standard input, else the ending says it.",
        ),
    ] = None
    task: Annotated[
        str | None,
        option(ROWS, "A known task: its columns, and its classes' names where the model has none."),
    ] = None
    backend: Annotated[
        str | None,
        option(
            RUNNING,
            "What computes: torch, onnxruntime or openvino (of an exported folder, or a run that holds "
            "one); default: what the folder is for.",
        ),
    ] = None


STANDARD_OUTPUT = "-"
STREAM_FORMATS = ("jsonl", "csv", "tsv")
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
        option(
            OUTPUT,
            "The file to write: .jsonl, .csv, .tsv or .parquet; killed, the same command continues it. Without it, "
            "or by -, rows go to standard output.",
        ),
    ] = None,
    to_format: Annotated[str, option(OUTPUT, "Of standard output: jsonl, csv or tsv.")] = "jsonl",
    options: PredictOptions,
    source: SourceOptions,
    plugin: Annotated[
        list[str] | None,
        typer.Option(help="Files of Python that register what predicting needs, a task type say."),
    ] = None,
) -> None:
    """Predict any number of rows: labels by name, probabilities, embeddings; streamed, continued after a kill."""
    load_plugins(plugin or ())
    if to_format not in STREAM_FORMATS:
        raise LimbeckError(unknown("to-format", to_format, STREAM_FORMATS))

    target = None if to is None or str(to) == STANDARD_OUTPUT else to

    from limbeck.data.stream import RowStream, named_files
    from limbeck.predicting.job import prepare
    from limbeck.predicting.settings import PredictSettings
    from limbeck.support.files import at_home

    job = prepare(
        model,
        lambda: RowStream(named_files(files), source.format),
        PredictSettings(**typed(options)),
        target=None if target is None else at_home(target),
        form=to_format,
        backend=source.backend,
        task=source.task,
    )
    console = messages()
    if target is not None:
        console.print(str(job.write_file(console)))
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
