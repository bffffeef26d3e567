"""`limbeck study`: many runs as one experiment, up to a paper's table with its own numbers beside.

Without a study it lists those that ship with limbeck.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from limbeck.cli.console import output, say, trouble
from limbeck.cli.options import is_recipe_file, is_setting, parse_settings, takes_groups
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.terminal import print_line
from limbeck.support.words import count_of

OUT = Path("runs/studies")
ENGINES = ("local", "ray")


@dataclass(frozen=True)
class ProcessOptions:
    """What runs a study's runs."""

    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes side by side, each on cores of its own; by default the study's."
        ),
    ] = None
    engine: Annotated[
        str, typer.Option(help="local, or ray: the runs are tasks of a Ray cluster.")
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray: a cluster's HOST:PORT whose machines all see the folder OUT; by default "
            "RAY_ADDRESS, else one on this machine."
        ),
    ] = None


@takes_groups
def study(
    *,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STUDY KEY=VALUE",
            help="A study file or a shipped study's name, then any key of it: seeds=[1,2] settings.epochs=1",
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(help="paper (as published), small (files at hand) or pocket (minutes)."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Where all rows come from: hub, pocket, a folder of GLUE's files."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="What teachers are made from: a folder, a Hub name, pocket.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="The folder of studies: each has its own in it, and all share OUT/runs; the same "
            "command again goes on where it was stopped."
        ),
    ] = OUT,
    processes: ProcessOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it will take, and run nothing.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the studies that ship.")] = False,
) -> None:
    """Cross methods, tasks and seeds, choose settings on dev, and make a paper's table of it."""
    words = arguments or []
    names = [word for word in words if not is_setting(word) or is_recipe_file(word)]
    if listed or not names:
        if words and not listed:
            raise LimbeckError("no study is named", "name one of `limbeck study --list`, or a file")
        _list()
        return
    if len(names) > 1:
        raise LimbeckError(f"several studies were named: {', '.join(names)}", "give one of them")
    given = parse_settings([word for word in words if word not in names])
    both = [
        key for key, flag in (("data", data), ("model", model)) if flag is not None and key in given
    ]
    if both:
        raise LimbeckError(
            [Problem(f"--{key} and {key}=… are both given", "give one") for key in both]
        )
    if processes.engine not in ENGINES:
        raise LimbeckError(unknown("engine", processes.engine, ENGINES))
    if processes.address is not None and processes.engine != "ray":
        raise LimbeckError(
            f"--address {processes.address} without a cluster", "give --engine ray as well"
        )
    given = {"data": data, "model": model, **given}
    _run(names[0], scale, given, out, processes, dry_run=dry_run)


def _list() -> None:
    from limbeck.lab.study.study_file import shipped

    table = Table(box=None, pad_edge=False)
    for heading in ("study", "of", "scales"):
        table.add_column(heading, no_wrap=heading == "study")
    for name, one in shipped().items():
        table.add_row(name, one.paper, ", ".join(one.scales))
    output().print(table)
    output().print(
        "limbeck study NAME --scale pocket; or a file of your own: limbeck study STUDY.yaml"
    )


def _run(
    name: str,
    scale: str | None,
    given: dict[str, Any],
    out: Path,
    processes: ProcessOptions,
    *,
    dry_run: bool,
) -> None:
    from limbeck.lab.commands.analyze_command import watching
    from limbeck.lab.study import (
        SharedRuns,
        StudyPlan,
        carry_out,
        estimate,
        load_study,
        write_study,
    )
    from limbeck.lab.study.plan_builder import runs_folder
    from limbeck.support.cores import cores
    from limbeck.support.terminal import step_bar
    from limbeck.tables import terminal

    asked = load_study(name, scale=scale, **given)
    jobs = processes.jobs or min(asked.jobs or 1, cores() or 1)
    console = trouble()
    folder = out / asked.full_name
    plan = StudyPlan.of(asked, folder)
    runs = SharedRuns(runs_folder(out), asked.keep_students)
    console.print(f"{asked.full_name}: {_sizes(plan)}")
    found = estimate(plan, runs, jobs, say=lambda line: console.print(line, style="dim"))
    for line in found.lines(jobs):
        print_line(console, line)
    if dry_run:
        return
    failed = carry_out(
        plan,
        runs,
        jobs=jobs,
        engine=processes.engine,
        address=processes.address,
        seconds=found.seconds,
        console=console,
    )
    try:
        with step_bar(console) as bar:
            table, page = write_study(plan, runs, folder, watch=watching(bar))
    except LimbeckError as error:
        raise LimbeckError(
            [*(problem for one in failed for problem in one.problems), *error.problems]
        ) from None
    output().print(terminal(table))
    say(f"table and records in {folder}; page: {page.resolve().as_uri()}")
    if failed:
        raise LimbeckError(
            [
                Problem(
                    f"{one.name}: {problem.message}",
                    problem.fix or "the same command tries it again",
                )
                for one in failed
                for problem in one.problems
            ]
        )


def _sizes(plan: Any) -> str:  # importing its type would load torch
    asked = plan.study
    tries = max(group.tries for group in plan.groups)
    parts = [
        count_of(len(asked.methods), "method"),
        count_of(len(asked.tasks), "task"),
        count_of(len(asked.seeds), "seed"),
    ]
    parts += [f"{count_of(len(values), 'value')} of {key}" for key, values in asked.axes.items()]
    parts += [f"{tries} settings to choose from on dev"] if tries > 1 else []
    return ", ".join(parts)
