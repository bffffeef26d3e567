"""`limbeck bench`: models side by side, timed in turns, as a table.

It calls `limbeck.latency`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli.console import output, say
from limbeck.cli.options import settings_flags, takes_groups
from limbeck.latency.settings import BenchSettings


@takes_groups
def bench(
    *,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODELS",
            help="Run folders (each with what was exported of it), checkpoints, exported folders.",
        ),
    ],
    settings: Annotated[dict[str, Any], settings_flags("Options", BenchSettings)],
    out: Annotated[Path, typer.Option(help="A folder for bench.json and bench.md.")] = Path(
        "bench"
    ),
) -> None:
    """Time models in turns, each in a process of its own: latency, throughput, memory, size."""
    from limbeck.latency.benching import bench as run_bench
    from limbeck.latency.report import as_tables, notes_of

    report = run_bench(models, BenchSettings.checked(settings), out=out, show=True)
    tables, left_out = as_tables(report, output())
    for table in tables:
        output().print(table)
    if left_out:
        said = f"Not shown at this width: {', '.join(left_out)}; all columns are in {out / 'bench.md'}."
        say(said)
    for line in notes_of(report):
        say(line)
    say(f"written to {out}")
