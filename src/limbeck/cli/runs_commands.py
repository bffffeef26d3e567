"""`limbeck evaluate`, `table`, `compare` and `team`: how good one run is, many in a table, two row by row, a team."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import output, say, show_classification, show_scores, trouble
from limbeck.cli.options import Plugins, ScoredRows, takes_groups, typed
from limbeck.support import registry, terminal
from limbeck.support.settings import DEVICE_MAPS

# The formats of file names, if --format is not given.
BY_SUFFIX = {".md": "markdown", ".tex": "latex", ".csv": "csv"}


@dataclass(frozen=True)
class TestOptions:
    """Which method every other one is tested against, and how."""

    baseline: Annotated[
        str | None, typer.Option(help="Test every other method against this one.")
    ] = None
    correction: Annotated[
        str, typer.Option(help="Tests that Holm's correction takes together: table, or column.")
    ] = "table"
    variance: Annotated[
        str,
        typer.Option(
            help="Spread over seeds by which differences are judged: own (of the two methods) or pooled (over all "
            "methods of the same depth, for few seeds)."
        ),
    ] = "own"


@dataclass(frozen=True)
class TableFile:
    """Where a table is written, and in which format."""

    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="terminal, markdown, latex or csv; default: by the name of --out."
        ),
    ] = None
    out: Annotated[Path | None, typer.Option(help="Write to this file instead.")] = None


@takes_groups
def table(
    *,
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold runs.")],
    profile: Annotated[
        str, typer.Option(help="Which scores make a task's number: glue, or a paper's own.")
    ] = "glue",
    tests: TestOptions,
    shown: TableFile,
    columns: Annotated[
        list[str] | None,
        typer.Option(help="Columns next to the scores, for example: layers latency kept."),
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
    from limbeck import tables
    from limbeck.support.files import write_whole

    records = tables.collect(runs)
    tables.check_by(records, by or ())
    built = tables.build_table(
        records,
        profile=profile,
        baseline=tables.Baseline(tests.baseline, tests.correction, tests.variance),
        facts=columns or tables.DEFAULT_FACTS,
        by=by or (),
        split=split,
    )
    built = replace(built, title=title)
    out = shown.out
    form = shown.form or (BY_SUFFIX.get(out.suffix, "terminal") if out else "terminal")
    if out is not None:
        write_whole(out, tables.render(built, form))
    elif form == "terminal":
        output().print(tables.terminal(built))
    else:
        # As it is: a console would wrap it.
        sys.stdout.write(tables.render(built, form))


def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder.")],
    second: Annotated[
        Path, typer.Argument(metavar="OTHER", help="Another's, scored on the same rows.")
    ],
    split: Annotated[
        str | None, typer.Option(help="The split; default: the one that selects, dev.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON, and nothing else.")
    ] = False,
    plugin: Plugins = None,
) -> None:
    """Compare two runs row by row: McNemar's exact test and a paired bootstrap over the rows that both predicted."""
    registry.load_plugins(plugin or ())

    from limbeck.scoring.evaluation import compare_runs
    from limbeck.tables.classes import row_test_words

    found = compare_runs(first, second, split)
    if as_json:
        sys.stdout.write(json.dumps(found.as_json(), indent=1, ensure_ascii=False) + "\n")
        return
    names = _names(first, second)
    for name, scores in zip(names, found.scores, strict=True):
        show_scores(scores, title=f"{name}, {found.split}:")
    if found.agreement is not None:
        alike = f"both predict {found.agreement:.1f} % of {found.tests.rows:,} rows alike"
        say(alike)
    for line in row_test_words(found.tests, *names):
        say(line)
    say(
        f"tests over {found.tests.unit}: what another seed would give, `limbeck table` tests over runs"
    )


def _names(first: Path, second: Path) -> tuple[str, str]:
    """The folders' own names, or their paths where these are the same."""
    names = first.resolve().name, second.resolve().name
    return names if names[0] != names[1] else (str(first), str(second))


@takes_groups
def team(
    *,
    members: Annotated[
        list[str],
        typer.Argument(help="Run folders, folders of runs, checkpoints' folders or Hub names."),
    ],
    rows: ScoredRows,
) -> None:
    """Show how the members of a team differ, and which of them add anything to it."""
    from limbeck.scoring import look_at_team
    from limbeck.tables.team import pairs_table, team_notes, team_table

    look = look_at_team(members, **typed(rows))
    say(f"{look.task.title}: {look.team.examples} examples of {look.split} · data: {look.data}")
    output().print(team_table(look.team, look.models).printed())
    for note in team_notes(look.team):
        say(note)
    if len(look.models) > 1:
        output().print(pairs_table(look.team).printed())


@dataclass(frozen=True)
class HowScored:
    """As `limbeck.scoring.evaluation_of` takes them."""

    backend: Annotated[
        str | None,
        typer.Option(
            help="Runtime: torch, onnxruntime, openvino or numpy (for an exported folder, or a run "
            "that contains one); default: the folder's own."
        ),
    ] = None
    teacher: Annotated[
        str | None,
        typer.Option(
            help="A run folder, a checkpoint's folder or Hub name to compare the predictions with, on the same rows; "
            "default: the outputs of its own teacher that a run recorded."
        ),
    ] = None
    device_map: Annotated[
        str | None,
        typer.Option(help=f"Place a large model's parts on several devices: {DEVICE_MAPS}."),
    ] = None
    texts: Annotated[
        bool | None,
        typer.Option(
            help="Whether examples of disagreement are shown with their texts; default: as the run's keep_texts."
        ),
    ] = None


@takes_groups
def evaluate(
    *,
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A run folder, an exported folder; or any checkpoint's folder or Hub name, with --task, --data.",
        ),
    ],
    rows: ScoredRows,
    how: HowScored,
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="Also write each row's prediction and probabilities here (.jsonl, .csv, .parquet); a split "
            "without labels is predicted alone."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file of predictions.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON, and nothing else.")
    ] = False,
    plugin: Plugins = None,
) -> None:
    """Score a run's student (and record it), on its own task or out of its domain; or any checkpoint."""
    registry.load_plugins(plugin or ())

    from limbeck.data import RowsAsked
    from limbeck.scoring import evaluation_of

    asked = RowsAsked(**typed(rows))
    if predictions is not None:
        from limbeck.predicting.predict_rows import write_predictions

        written, labelled = write_predictions(
            run,
            predictions,
            asked,
            overwrite=overwrite,
            show=True,
            backend=how.backend,
            device_map=how.device_map,
        )
        terminal.print_line(trouble(), str(written))
        if not labelled:
            terminal.print_line(trouble(), "these rows have no labels, so there are no scores")
            return
    found = evaluation_of(run, asked, **typed(how))
    if as_json:
        sys.stdout.write(json.dumps(found.as_json(), indent=1, ensure_ascii=False) + "\n")
        return
    show_scores(found.scores)
    if found.classification is not None:
        show_classification(found.classification, found.row_tests)
    elif found.row_tests is not None:
        from limbeck.tables.classes import row_test_words

        for line in row_test_words(found.row_tests, "student", "teacher"):
            say(line)
