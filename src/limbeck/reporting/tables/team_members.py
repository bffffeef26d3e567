"""The members of a team in a table: size and scores of each run, in the order given.

Part of `limbeck.reporting.tables`. Other than `build_table` it shows single runs: nothing is averaged.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table as Grid
from rich.text import Text

from limbeck.records import Record
from limbeck.reporting.tables.measured_columns import duration, magnitude
from limbeck.reporting.tables.run_scores import columns_of, knows, values_of
from limbeck.tasks.score_profiles import get_profile

TEAM_PROFILE = "skd-dev"
"""SKD weighs its teachers by these scores."""


def members_table(members: Mapping[str, Record | None], profile: str = TEAM_PROFILE) -> Grid:
    """Name, layers, width, heads, parameters, dev scores and training time of each run.

    A task that the profile leaves out has its benchmark's own score. A run without a record, or one
    that failed, is a row without numbers. Raises LimbeckError for an unknown profile.
    """
    records = [record for record in members.values() if record is not None]
    known = get_profile(profile).columns
    profile = profile if all(record.task in known for record in records) else "glue"
    columns = columns_of(records, profile, out_of_domain="left out")
    follows = any(knows(record.task) for record in records)
    caption = f"dev scores of profile {profile}" if follows else "primary dev scores"
    table = Grid(header_style="bold", caption=caption, caption_justify="left")
    table.add_column("name", no_wrap=True)
    titles = [column.title for column in columns]
    for heading in ("layers", "width", "heads", "parameters", *titles, "time"):
        table.add_column(heading, justify="right")
    for name, record in members.items():
        if record is None or record.status != "finished":
            said = "failed" if record is None else record.status
            table.add_row(name, *[""] * 4, *[Text(said, style="red")] * len(columns), "")
            continue
        model, scores = record.student, values_of(record, profile)
        table.add_row(
            name,
            *(_whole(value) for value in (model.layers, model.hidden_size, model.heads)),
            "–" if model.parameters is None else magnitude(model.parameters),
            *(_score(scores.get(column.key)) for column in columns),
            "–" if record.cost.total_seconds is None else duration(record.cost.total_seconds),
        )
    return table


def _whole(value: int | None) -> str:
    return "–" if value is None else str(value)


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
