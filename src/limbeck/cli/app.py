"""The typer app: which commands exist, and how each of them ends when something is wrong.

A `LimbeckError` or a file that cannot be read or written
becomes a list of what to fix (exit code 2), Ctrl-C a word on how to continue (exit code 130);
`--debug` shows the traceback.
"""

import os
import sys
import warnings
from importlib import metadata
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from limbeck.cli import options
from limbeck.cli.compress_command import compress
from limbeck.cli.console import show_notes, show_problems, show_stopped
from limbeck.cli.methods_command import methods
from limbeck.cli.outputs_command import outputs
from limbeck.cli.row_commands import label, predict
from limbeck.cli.runs_commands import compare, evaluate, table, team
from limbeck.cli.shipping_commands import bench, card, cascade, export, push, shrink
from limbeck.cli.train_command import distill, finetune
from limbeck.support.errors import LimbeckError, Problem

WRONG = 2  # the exit code of typer's own usage errors
STOPPED = 130  # the shells' code for Ctrl-C


class Commands(TyperGroup):
    """The group of commands; turns errors a user can act on into messages and exit codes.

    `--debug` can be anywhere on the line, because users add it to a command that has just failed.
    """

    debug = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `--debug` out of the line, wherever it is, and parse the rest."""
        self.debug = "--debug" in args
        return super().parse_args(ctx, [argument for argument in args if argument != "--debug"])

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error that the user can fix ends in a message and an exit code."""
        if not self.debug:
            silence_libraries()
        show_notes()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            show_stopped()
            code = STOPPED
        except LimbeckError as error:
            if self.debug:
                raise
            show_problems(error.problems)
            code = WRONG
        except OSError as error:
            # Without a file name it is no matter of the user's paths, but a defect to report.
            if self.debug or error.filename is None:
                raise
            show_problems([file_problem(error)])
            code = WRONG
        raise typer.Exit(code)


def file_problem(error: OSError) -> Problem:
    """The operating system's error and its file."""
    reason = (error.strerror or type(error).__name__).lower()
    return Problem(
        f"cannot use {str(error.filename)!r}: {reason}",
        "check that the path exists, that you may read and write it, and that the disk has room",
    )


_CORE = {
    "methods": options.Command(methods, options.START, "limbeck methods kd", options.ManyValues),
    "finetune": options.Command(
        finetune,
        options.TRAIN,
        "limbeck finetune --model MODEL --data reviews.csv --out runs/teacher",
    ),
    "distill": options.Command(
        distill,
        options.TRAIN,
        "limbeck distill --teacher runs/teacher --layers 3 --data reviews.csv --unlabelled more.csv",
    ),
    "compress": options.Command(
        compress,
        options.TRAIN,
        "limbeck compress runs/teacher --budget size=6MB,latency=2ms --data reviews.csv --out small",
    ),
    "shrink": options.Command(
        shrink,
        options.TRAIN,
        "limbeck shrink runs/teacher --layers 3 --vocabulary 8000 --data reviews.txt --out small",
    ),
    "label": options.Command(
        label,
        options.TRAIN,
        "limbeck label --teacher runs/teacher --unlabelled more.csv --out outputs",
    ),
    "evaluate": options.Command(
        evaluate, options.USE, "limbeck evaluate runs/student --data new.csv --label-column label"
    ),
    "predict": options.Command(
        predict, options.USE, "limbeck predict runs/student new.csv --to answers.csv"
    ),
    "export": options.Command(
        export, options.USE, "limbeck export runs/student --format onnx-int8"
    ),
    "bench": options.Command(
        bench, options.USE, "limbeck bench runs/teacher runs/student --threads 1"
    ),
    "cascade": options.Command(
        cascade, options.USE, "limbeck cascade runs/fast runs/teacher --agreement 97 --out both"
    ),
    "card": options.Command(card, options.USE, "limbeck card runs/student --license mit"),
    "push": options.Command(push, options.USE, "limbeck push runs/student me/my-student --dry-run"),
    "table": options.Command(table, options.COMPARE, "limbeck table runs", options.ManyValues),
    "compare": options.Command(compare, options.COMPARE, "limbeck compare runs/student runs/other"),
    "team": options.Command(team, options.COMPARE, "limbeck team runs/teacher-1 runs/teacher-2"),
}
app = typer.Typer(
    name="limbeck",
    cls=Commands,
    help="Distill a large fine-tuned Hugging Face transformer into a small, fast one.",
    epilog="Every command has its own --help, which ends with an example.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for _panel in options.PANELS:
    for _name, _one in {
        **{name: options.COMMANDS.get(name) for name in options.COMMANDS},
        **_CORE,
    }.items():
        if _one.panel == _panel:
            app.command(
                _name,
                cls=_one.parser,
                rich_help_panel=_panel,
                epilog=f"Example: {escape(_one.example)}",
            )(options.plain_types(_one.run))
app.add_typer(
    outputs, name="outputs", rich_help_panel=options.USE, epilog="Example: limbeck outputs list"
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"limbeck {metadata.version('limbeck')}")
        raise typer.Exit


@app.callback()
@options.plain_types
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks and the libraries' own messages.")
    ] = False,
) -> None:
    # Both are here for the help: one has a callback of its own, Commands.parse_args reads the
    # other.
    del version, debug


# Read by the libraries on import, and passed on to data loader workers. A user's own setting wins.
SETTINGS = {
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "DATASETS_VERBOSITY": "error",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def silence_libraries() -> None:
    """Hide advice and progress bars of transformers, datasets and torch, before these are imported.

    Warnings that come from limbeck itself stay; `python -W …` and `PYTHONWARNINGS` win over this.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", module=r"limbeck\b")
