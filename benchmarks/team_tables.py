"""The records of `team_study.py` as SKDBERT prints its own: by team (Tables 4 and 5), and who was sampled (Figure 2).

python benchmarks/team_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import mean, stdev

from rich.console import Console
from rich.table import Table

from limbeck.records import Record, read_collection
from study import records_of
from team_study import SKD, TEAM, TEAMS, TOGETHER

Found = Mapping[str, list[Record]]


def by_team(found: Found) -> Table:
    """Methods by teams."""
    teams = [*TEAMS, "all", "longer"]
    table = Table("method", *teams, title="Dev score by team: mean ± deviation (seeds)")
    for method in ("finetune", *SKD, *TOGETHER, "takd"):
        runs = [found.get(f"{method} {team}", []) for team in teams]
        table.add_row(method, *map(_scores, runs))
    return table


def alone(found: Found) -> Table:
    """Students without a teacher, and of one."""
    table = Table("method", "score", title="One teacher, or none")
    for method in ("finetune", *(f"kd-soft {name}" for name in TEAM)):
        table.add_row(method, _scores(found.get(method, [])))
    return table


def _scores(runs: list[Record]) -> str:
    scores = [score for run in runs if (score := run.scores["dev"]["primary"]) is not None]
    if len(scores) < 2:
        return f"{scores[0]:.1f} (1)" if scores else "–"
    return f"{mean(scores):.1f} ± {stdev(scores):.1f} ({len(scores)})"


def by_teacher(found: Found) -> Table:
    """The team of all eight: sizes, scores, and shares in per cent; adaptive's are those at its end."""
    columns = {"teacher-rank": _shares(found["skd-teacher-rank all"][0])}
    for method in ("student-rank", "adaptive"):
        for run in found[f"skd-{method} all"]:
            columns[f"{method} s{run.seed}"] = _shares(run)
    table = Table("teacher", "parameters", "dev", *columns, title="Shares in per cent")
    team = found["skd-uniform all"][0].team
    assert team is not None
    for one in team.members:
        size, score = (one.parameters or 0) / 1e6, one.score or 0.0
        shares = [f"{100 * column[one.name]:.0f}" for column in columns.values()]
        name = one.name.removeprefix("teacher-")
        table.add_row(name, f"{size:.1f}M", f"{score:.1f}", *shares)
    return table


def _shares(run: Record) -> dict[str, float]:
    """Whom a run drew how often; a distribution that is learned, as its last epoch left it."""
    assert run.team is not None
    given = {one.name: one.share or 0.0 for one in run.team.members}
    learned = run.epochs[-1].sampling_probabilities or {}
    return given | {name: share for name, share in learned.items() if share is not None}


def main() -> None:
    """Print all three."""
    found: dict[str, list[Record]] = {}
    for name, record in read_collection(records_of("team_study")).items():
        if re.search(r"-s[0-9]", name):
            found.setdefault(record.method, []).append(record)
    for table in (alone(found), by_team(found), by_teacher(found)):
        Console(width=150).print(table)


if __name__ == "__main__":
    main()
