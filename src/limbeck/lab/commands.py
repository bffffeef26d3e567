"""The lab's commands: `limbeck study`, `analyze`, `quickstart` and `submit`. They load no more than the help needs."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress
from rich.table import Table

from limbeck.cli import options
from limbeck.cli.console import output, say, trouble
from limbeck.cli.options import Plugins, is_recipe_file, is_setting, parse_settings, takes_groups
from limbeck.support import registry, words
from limbeck.support.cores import cores
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.terminal import print_line
from limbeck.support.workers import check_engine

OUT = Path("runs/studies")


@dataclass(frozen=True)
class ProcessOptions:
    """The engine of a study's runs."""

    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of processes, each on its own cores; by default the study's."
        ),
    ] = None
    engine: Annotated[
        str, typer.Option(help="local, or ray: the runs are tasks of a Ray cluster.")
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray: a cluster's HOST:PORT whose machines all see the folder OUT; by default "
            "RAY_ADDRESS, otherwise a new one on this machine."
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
        typer.Option(help="Source of all rows: hub, pocket, or a folder of GLUE's files."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Pretrained checkpoint of the teachers: a folder, a Hub name, pocket."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of studies: each has a subfolder, and all share OUT/runs; the same "
            "command resumes a stopped study."
        ),
    ] = OUT,
    processes: ProcessOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the expected cost, and run nothing.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the built-in studies.")] = False,
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
    check_engine(processes.engine, processes.address)
    given = {"data": data, "model": model, **given}
    try:
        _run(names[0], scale, given, out, processes, dry_run=dry_run)
    except LimbeckError as error:
        raise LimbeckError(
            [replace(one, fix=_FLAG.sub(_key, one.fix)) for one in error.problems]
        ) from None


_FLAG = re.compile(r"--([a-z][a-z-]*)")
_OF_A_STUDY = {"teacher": "teachers.at", "teachers": "teachers.team"}
_KEPT = ("data", "model", "seed")
"""Flags that a study has itself, or that name no key of one."""


def _key(flag: re.Match[str]) -> str:
    """A flag of a run's command as the key of a study's file."""
    name = flag[1].replace("-", "_")
    if name in _KEPT or name not in options.SETTINGS:
        return flag[0]
    return f"{_OF_A_STUDY.get(name, options.SETTINGS[name])}:"


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
        words.count_of(len(asked.methods), "method"),
        words.count_of(len(asked.tasks), "task"),
        words.count_of(len(asked.seeds), "seed"),
    ]
    parts += [
        f"{words.count_of(len(values), 'value')} of {key}" for key, values in asked.axes.items()
    ]
    parts += [f"{tries} settings to choose from on dev"] if tries > 1 else []
    return ", ".join(parts)


_MOST_JOBS = 4
"""Each has a model library of its own in memory."""


def quickstart(
    out: Annotated[
        Path, typer.Option(help="The folder to write; the same command again continues there.")
    ] = Path("runs/quickstart"),
    task: Annotated[str | None, typer.Option(help="The pocket task, by its GLUE name.")] = None,
    labels: Annotated[
        int, typer.Option(min=1, help="How many training rows keep their labels.")
    ] = 1500,
    seeds: Annotated[
        int, typer.Option(min=1, help="How many runs of each student, with seeds 1, 2, ...")
    ] = 4,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes side by side, which change no number: by default one a core, 4 at most.",
        ),
    ] = None,
) -> None:
    """Few labels and much text: a student with and without the unlabeled rows; minutes, no network."""
    from limbeck.lab.quickstart import quickstart as run

    jobs = jobs or min(cores() or 1, _MOST_JOBS)
    settings: dict[str, Any] = {} if task is None else {"task": task}
    run(out=out, labels=labels, seeds=seeds, jobs=jobs, **settings)


def submit(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…",
            help="Finished runs, one for each of GLUE's nine tasks; MNLI's also predicts the diagnostic rows.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The .zip file.")] = Path("submission.zip"),
    data: Annotated[
        str | None,
        typer.Option(help="'hub', hub:DIR or a GLUE folder; default: where each run's rows are."),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="Write the files of the tasks that are there; the benchmark takes all or none.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
) -> None:
    """Predict GLUE's test rows and write them for gluebenchmark.com, all tasks in one archive."""
    from limbeck.lab.submitting import submit as write_submission

    found = write_submission(runs, out, data=data, partial=partial, overwrite=overwrite, show=True)
    for name, rows in found.rows.items():
        say(f"{rows:8,} rows  {name}")
    say(f"{found.path}: {len(found.rows)} files")
    if found.missing:
        print_line(trouble(), f"the benchmark rejects it without {', '.join(found.missing)}")


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
            help="Folder for numbers (JSON) and figures (SVG, PNG); default: a single run's own folder "
            "`analysis`, whose numbers its report.html shows."
        ),
    ] = None,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Also store each run's numbers in its folder, and show them in its report.html.",
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
    registry.load_plugins(plugin or ())
    words = arguments or []
    if not words:
        _list_analyses()
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
    """Makes a line in the bar for every task that reports progress."""

    def watch(name: str) -> Callable[[int, int], None]:
        task = bar.add_task(name, total=None)
        return lambda done, total: bar.update(task, completed=done, total=total)

    return watch


def _list_analyses() -> None:
    from limbeck.lab.analysis import ANALYSES

    table = Table(box=None, pad_edge=False)
    for heading in ("analysis", "content", "settings"):
        table.add_column(heading, no_wrap=heading == "analysis")
    for name in ANALYSES:
        one = ANALYSES.get(name)
        table.add_row(name, one.summary, ", ".join(one.settings.model_fields))
    output().print(table)
    output().print("limbeck analyze WHAT RUN; a setting as KEY=VALUE")


for _name, _one in {
    "quickstart": options.Command(
        quickstart, options.START, "limbeck quickstart", options.ManyValues
    ),
    "study": options.Command(
        study, options.STUDY, "limbeck study rail-kd-table-1 --scale small --data glue"
    ),
    "analyze": options.Command(analyze, options.STUDY, "limbeck analyze calibration runs/student"),
    "submit": options.Command(submit, options.STUDY, "limbeck submit runs/cola runs/rte"),
}.items():
    options.COMMANDS.register(_name)(_one)
