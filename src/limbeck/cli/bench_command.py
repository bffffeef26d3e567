"""`limbeck bench`: models side by side, timed in turns, as a table and two drawings.

It calls `limbeck.latency`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import output, say


def bench(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODELS",
            help="Run folders (each with what was exported of it), checkpoints, exported folders.",
        ),
    ],
    batch_sizes: Annotated[
        list[int] | None, typer.Option(help="Rows of a pass. [default: 1]")
    ] = None,
    lengths: Annotated[
        list[int] | None, typer.Option(help="Tokens of a row. [default: 32 128]")
    ] = None,
    threads: Annotated[
        list[int] | None,
        typer.Option(help="Threads, pinned to as many cores. [default: 1]"),
    ] = None,
    backends: Annotated[
        list[str] | None,
        typer.Option(
            help="torch, compiled, onnxruntime, openvino; default: torch for checkpoints, and what "
            "an exported folder is for."
        ),
    ] = None,
    passes: Annotated[int, typer.Option(help="Timed passes of each.")] = 100,
    warm_up: Annotated[int, typer.Option(help="Passes before them.")] = 10,
    out: Annotated[
        Path, typer.Option(help="A folder for bench.json, bench.md and the drawings.")
    ] = Path("bench"),
) -> None:
    """Time models in turns, each in a process of its own: latency, throughput, memory, size."""
    from limbeck.latency.benching import BenchSettings
    from limbeck.latency.benching import bench as run_bench
    from limbeck.latency.show import as_tables, notes_of

    default = BenchSettings()
    settings = BenchSettings(
        batch_sizes=batch_sizes or default.batch_sizes,
        lengths=lengths or default.lengths,
        threads=threads or default.threads,
        backends=backends or None,
        passes=passes,
        warm_up=warm_up,
    )
    report = run_bench(models, settings, out=out, show=True)
    tables, left_out = as_tables(report, output())
    for table in tables:
        output().print(table)
    if left_out:
        said = f"Not shown at this width: {', '.join(left_out)}; all columns are in {out / 'bench.md'}."
        say(said)
    for line in notes_of(report):
        say(line)
    say(f"written to {out}")
