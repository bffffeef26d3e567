"""`limbeck analyze`: look into finished runs, as numbers and figures.

It calls `limbeck.lab.analysis`. Without arguments it lists the analyses.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress
from rich.table import Table

from limbeck.cli.console import output, say, trouble
from limbeck.cli.options import Plugins, is_setting, parse_settings
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import load_plugins


def analyze(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WHAT RUNS KEY=VALUE",
            help="The analysis, folders of finished runs, then its settings: rows=500 models=[student]",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where numbers (JSON) and figures (SVG, PNG) are written; default: a single run's own folder "
            "`analysis`, whose numbers its report.html shows."
        ),
    ] = None,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Keep each run's numbers beside it too, and show them in its report.html.",
        ),
    ] = False,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="A run, folder or Hub name to hold students against; default: each run's own teacher."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="'hub', 'pocket', a GLUE folder or a file; default: the run's own."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="The split; default: the one that selects, dev.")
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            help="first: students as they were after their first stage, where runs have kept them "
            "(keep_first_stage); default: last."
        ),
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Look into finished runs: layers, attention, noise, agreement, calibration. Alone, it lists what there is."""
    load_plugins(plugin or ())
    words = arguments or []
    if not words:
        _list()
        return

    from limbeck.lab.analysis import analyze as analyze_runs
    from limbeck.support.terminal import step_bar

    what, *rest = words
    # A path may hold `=`; a folder that is there is a run.
    settings = [word for word in rest if is_setting(word) and not Path(word).exists()]
    runs = [word for word in rest if word not in settings]
    given = parse_settings(settings)
    taken = {"out", "report", "teacher", "data", "split", "stage", "watch", "what", "runs"} & {
        *given
    }
    if taken:
        named = ", ".join(sorted(taken))
        raise LimbeckError(f"{named}: no setting of an analysis", "write it as an option, --…")
    with step_bar(trouble()) as bar:
        found = analyze_runs(
            what,
            runs,
            out=out,
            report=report,
            teacher=teacher,
            data=data,
            split=split,
            stage=stage,
            watch=watching(bar),
            **given,
        )
    for path in found.files:
        say(str(path))


def watching(bar: Progress) -> Callable[[str], Callable[[int, int], None]]:
    """Makes a line in the bar for everything that says how far it is."""

    def watch(name: str) -> Callable[[int, int], None]:
        task = bar.add_task(name, total=None)
        return lambda done, total: bar.update(task, completed=done, total=total)

    return watch


def _list() -> None:
    from limbeck.lab.analysis import ANALYSES

    table = Table(box=None, pad_edge=False)
    for heading in ("analysis", "what it shows", "settings"):
        table.add_column(heading, no_wrap=heading == "analysis")
    for name in ANALYSES:
        one = ANALYSES.get(name)
        table.add_row(name, one.summary, ", ".join(one.settings.model_fields))
    output().print(table)
    output().print("limbeck analyze WHAT RUN; a setting as KEY=VALUE")
