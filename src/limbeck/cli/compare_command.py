"""`limbeck compare`: two runs over the rows that both predicted, with tests over these rows.

It calls `limbeck.scoring.compare`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.classification_view import show_row_tests
from limbeck.cli.console import say, show_scores
from limbeck.cli.scored_options import Plugins
from limbeck.support.registry import load_plugins


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
    load_plugins(plugin or ())

    from limbeck.scoring.compare import compare_runs

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
    show_row_tests(found.tests, *names)
    say(
        f"tests over {found.tests.unit}: what another seed would give, `limbeck table` tests over runs"
    )


def _names(first: Path, second: Path) -> tuple[str, str]:
    """The folders' own names, or their paths where these are the same."""
    names = first.resolve().name, second.resolve().name
    return names if names[0] != names[1] else (str(first), str(second))
