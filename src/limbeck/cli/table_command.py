"""`limbeck table`: methods by tasks over many runs, with spread over seeds and a paired test.

It finds records, has `limbeck.tables` make and render the table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import output

# What a file's name says about its format, where --format is silent.
BY_SUFFIX = {".md": "markdown", ".tex": "latex", ".csv": "csv"}


def table(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold runs.")],
    profile: Annotated[
        str, typer.Option(help="Which scores make a task's number: glue, or a paper's own.")
    ] = "glue",
    baseline: Annotated[
        str | None, typer.Option(help="The method every other one is tested against.")
    ] = None,
    correction: Annotated[
        str,
        typer.Option(help="Which tests Holm's correction takes together: table, or column."),
    ] = "table",
    variance: Annotated[
        str,
        typer.Option(
            help="Spread over seeds by which differences are judged: own (of the two methods) or pooled (over all "
            "methods of the same depth, for few seeds)."
        ),
    ] = "own",
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="terminal, markdown, latex or csv; by default what --out's name says.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead.")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(help="What to show beside the scores, for example: layers latency kept."),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Recipe settings whose values get rows of their own, for example: lr."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="The split to compare by, for example test, whose rows chose nothing; default: dev."
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="A title for the table.")] = "",
) -> None:
    """Compare runs: mean ± standard deviation over seeds, methods by tasks."""
    from limbeck.records import write_whole
    from limbeck.tables import DEFAULT_FACTS, build_table, check_by, collect, render, terminal

    records = collect(runs)
    check_by(records, by or ())
    built = build_table(
        records,
        profile=profile,
        baseline=baseline,
        correction=correction,
        variance=variance,
        facts=columns or DEFAULT_FACTS,
        by=by or (),
        title=title,
        split=split,
    )
    form = form or (BY_SUFFIX.get(out.suffix, "terminal") if out else "terminal")
    if out is not None:
        write_whole(out, render(built, form))
    elif form == "terminal":
        output().print(terminal(built))
    else:
        # As it is: a console would wrap it.
        sys.stdout.write(render(built, form))
