"""`limbeck evaluate`: score a finished run's student on a task, its own or one out of its domain.

It calls `limbeck.scoring.evaluation`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import say, show_classification, show_scores, trouble
from limbeck.cli.options import takes_groups, typed
from limbeck.cli.scored_options import Plugins, ScoredRows
from limbeck.support.registry import load_plugins
from limbeck.support.terminal import print_line


@dataclass(frozen=True)
class HowScored:
    """As `limbeck.scoring.evaluation_of` takes them."""

    backend: Annotated[
        str | None,
        typer.Option(
            help="What computes: torch, onnxruntime, openvino or numpy (of an exported folder, or a run "
            "that holds one); default: what the folder is for."
        ),
    ] = None
    teacher: Annotated[
        str | None,
        typer.Option(
            help="A run folder, a checkpoint's folder or Hub name to hold the predictions against on the same rows; "
            "default: what a run recorded of its own teacher."
        ),
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
            help="A run folder, an exported folder; or any checkpoint's folder or Hub name, with "
            "--task, --data.",
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
    load_plugins(plugin or ())

    from limbeck.data import RowsAsked
    from limbeck.scoring import evaluation_of

    asked = RowsAsked(**typed(rows))
    if predictions is not None:
        from limbeck.predicting.predict_rows import write_predictions

        written, labelled = write_predictions(
            run, predictions, asked, backend=how.backend, overwrite=overwrite, show=True
        )
        print_line(trouble(), str(written))
        if not labelled:
            print_line(trouble(), "these rows have no labels, so there are no scores")
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
