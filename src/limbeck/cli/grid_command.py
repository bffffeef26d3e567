"""`limbeck finetune --grid …`: a whole team, each member a run of its own.

It hands the grid to `limbeck.run.train_grid`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.cli.console import output, say
from limbeck.cli.options import is_setting, parse_axes
from limbeck.support.errors import LimbeckError
from limbeck.support.files import file_name


def run_grid(
    words: Sequence[str], settings: Mapping[str, Any], out: Path | None, overwrite: bool
) -> None:
    """Train all cells, print a table of them, and end with what went wrong with any.

    Raises:
        LimbeckError: what is wrong with the grid; or, after the table, why some cells failed.
    """
    models = [word for word in words if not is_setting(word)]
    axes = parse_axes([word for word in words if is_setting(word)])

    from limbeck.run import train_grid
    from limbeck.tables.team import members_table

    folder = out or Path("runs") / file_name(f"{settings.get('task') or 'own'}-team")
    members = train_grid(
        "finetune",
        out=folder,
        models=models,
        axes=axes,
        overwrite=overwrite,
        show=True,
        **settings,
    )
    output().print(members_table({member.name: member.record for member in members}))
    say(f"written to {folder}")
    problems = [problem for member in members for problem in member.problems]
    if problems:
        raise LimbeckError(problems)
