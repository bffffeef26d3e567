"""`limbeck team`: how the members of a team differ, which of them add anything, how sure they are.

It calls `limbeck.scoring.look_at_team` and shows what it found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.console import output, say
from limbeck.cli.option_groups import takes_groups, typed
from limbeck.cli.scored_options import ScoredRows


@takes_groups
def team(
    *,
    members: Annotated[
        list[str],
        typer.Argument(help="Run folders, folders of runs, checkpoints' folders or Hub names."),
    ],
    rows: ScoredRows,
    out: Annotated[
        Path | None,
        typer.Option(help="The page, or its folder; by default team.html beside the members."),
    ] = None,
) -> None:
    """Show how the members of a team differ, and which of them add anything to it."""
    from limbeck.report import write_team_page
    from limbeck.scoring import look_at_team
    from limbeck.tables.team import team_tables

    look = look_at_team(
        members,
        **typed(rows),
    )
    output().print(team_tables(look.team, look.models))
    count = len(look.models)
    page = write_team_page(
        look.team,
        look.models,
        out or beside(members),
        title=f"Team of {count} on {look.task.title}",
        subtitle=f"{look.team.diversity.examples} examples of {look.split} · data: {look.data}",
    )
    say(f"page: {page.resolve().as_uri()}")


def beside(members: list[str]) -> Path:
    """The folder of the page: the one folder of runs, or the folder that holds all members."""
    folders = [Path(member) for member in members if Path(member).is_dir()]
    if len(members) == 1 and folders and not (folders[0] / "config.json").is_file():
        alone = (folders[0] / "record.json").is_file()
        return folders[0].parent if alone else folders[0]
    parents = {folder.resolve().parent for folder in folders}
    return parents.pop() if len(parents) == 1 and len(folders) == len(members) else Path()
