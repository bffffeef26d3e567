"""`limbeck predict` and `label`: a model's predictions about any rows, and a teacher's outputs about them.

They call `limbeck.predicting` and `limbeck.labelling`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from limbeck.cli import finished
from limbeck.cli.console import say, say_command
from limbeck.cli.options import Plugins, settings_flags, takes_groups
from limbeck.labelling.language_models.endpoint_settings import EndpointAccess, EndpointSettings
from limbeck.labelling.settings import LabelSettings
from limbeck.predicting.settings import PredictSettings
from limbeck.support import registry, terminal, words
from limbeck.support.errors import LimbeckError, check_choice
from limbeck.support.files import at_home, one_error_for_a_full_disk

if TYPE_CHECKING:
    from limbeck.predicting.job import PredictJob

STREAM_FORMATS = ("jsonl", "csv")
_INTERRUPTED = 130  # the shells' code for Ctrl-C
_PIPE_CLOSED = 141  # a shell's exit code for a program that SIGPIPE ends


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
            help="CSV, TSV, JSON lines, Parquet, plain text (one text per line) or images; several, patterns, "
            "folders; - is standard input.",
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            help="The file to write: .jsonl, .csv or .parquet; killed, the same command continues it. Without it, "
            "or by -, rows go to standard output."
        ),
    ] = None,
    to_format: Annotated[
        str, typer.Option(help="Format of standard output: jsonl or csv.")
    ] = "jsonl",
    settings: Annotated[dict[str, Any], settings_flags("Predictions", PredictSettings)],
    endpoint: Annotated[dict[str, Any], settings_flags("Endpoint of a cascade", EndpointAccess)],
    plugin: Plugins = None,
) -> None:
    """Predict any number of rows: labels by name, probabilities, embeddings; streamed, continued after a kill."""
    registry.load_plugins(plugin or ())
    check_choice("to-format", to_format, STREAM_FORMATS)
    asked = PredictSettings.checked(settings)

    from limbeck.data.stream import RowStream, named_files
    from limbeck.predicting.job import prepare

    target = None if to is None or str(to) == "-" else at_home(to)
    job = prepare(
        model,
        lambda: RowStream(named_files(files), asked.format),
        asked,
        endpoint=EndpointAccess.named(endpoint),
        target=target,
        form=to_format if target is None else "",
    )
    console = terminal.messages()
    if target is not None:
        console.print(str(job.write_file(target, console)))
    else:
        _write_to_pipe(job, to_format, console)


def _write_to_pipe(job: PredictJob, form: str, console: Console) -> None:
    """Write rows to standard output; its reader may stop at any time."""
    if sys.stdout is None:
        raise LimbeckError("standard output is closed", "name a file with --to")
    try:
        with one_error_for_a_full_disk(Path("standard output")):
            said = job.write_stream(sys.stdout.buffer, form, console)
    except KeyboardInterrupt:
        console.print(
            "\nstopped; the written rows are complete, and with --to FILE you could resume"
        )
        raise typer.Exit(_INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever reads has enough; the interpreter must not try to write the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(_PIPE_CLOSED) from None
    console.print(str(said))


@takes_groups
def label(
    *,
    teacher: Annotated[
        list[str] | None,
        typer.Option(
            help="A run folder, or a checkpoint's folder or Hub name; several are a team: the mean of their "
            "outputs is stored, and the outputs of each."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="'hub', 'pocket', a GLUE folder, a file (also .txt, one text per line) or a folder of files; "
            "labels are ignored."
        ),
    ] = None,
    unlabelled: Annotated[
        list[str] | None, typer.Option(help="More files or folders of rows.")
    ] = None,
    prompt: Annotated[
        Path | None,
        typer.Option(
            help="Prompt for a language model, a YAML file; by default a causal model and an endpoint get the "
            "default prompt."
        ),
    ] = None,
    settings: Annotated[dict[str, Any], settings_flags("Labels", LabelSettings)],
    endpoint: Annotated[dict[str, Any], settings_flags("Endpoint", EndpointSettings)],
    plugin: Plugins = None,
) -> None:
    """Store a teacher's outputs about any rows: logits, probabilities, hidden states, and the labels they come to."""
    registry.load_plugins(plugin or ())
    from limbeck.labelling.label_rows import label as run

    made = run(
        teacher or (),
        data,
        unlabelled=unlabelled or (),
        prompt=prompt,
        endpoint=EndpointSettings.named(endpoint),
        show=True,
        **settings,
    )
    size = words.human_size(made.manifest.bytes)
    say(f"{made.files.url}: {len(made):,} rows, {size}")
    say_command(
        "Next:    ", finished.after_labelling(made, teacher or (), data, settings.get("to"))
    )
