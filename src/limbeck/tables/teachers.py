"""Which runs are teachers, the score a student's is compared with, and what each member of a team adds.

Part of `limbeck.tables`. A teacher is described in the record of every run it taught; its own
training run may be among the records too, and must not appear again as a student.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from limbeck.evaluation.team import TeamScores
from limbeck.records import Record
from limbeck.records.facts import ModelFacts, TeacherFacts
from limbeck.support.cells import CellTable, decimal, duration, magnitude, shown, signed
from limbeck.support.words import count_of
from limbeck.tables import profiles
from limbeck.tables.model import columns_of, place_of, teacher_values, values_of


@dataclass(frozen=True)
class TeacherRow:
    """One teacher of one task and data, however many runs it taught."""

    place: str
    facts: TeacherFacts
    scores: Mapping[str, float]
    """Column key → score."""
    rows: str | None
    """Which dev rows these are of, as the record of a run that it taught says."""


def split_teachers(
    records: Sequence[Record], profile: str
) -> tuple[list[TeacherRow], list[Record]]:
    """The distinct teachers of all runs, and the runs that are not a listed teacher's own."""
    teachers: dict[tuple[Any, ...], TeacherRow] = {}
    for record in records:
        if record.teacher is None:
            continue
        scores = teacher_values(record, profile)
        place = place_of(record)
        rows = _dev_rows(record)
        key = (place, record.teacher.path, tuple(scores.items()), rows)
        known = teachers.get(key)
        # Several records describe one teacher; keep the one whose latency was measured.
        if known is None or known.facts.latency_ms is None:
            teachers[key] = TeacherRow(place, record.teacher, scores, rows)
    found = [_with_own_scores(teacher, records, profile) for teacher in teachers.values()]
    return found, [record for record in records if not _is_teachers_own(record, found)]


def _with_own_scores(teacher: TeacherRow, records: Sequence[Record], profile: str) -> TeacherRow:
    """With what its own run was scored on afterwards, as out of its domain, which no student's record says."""
    scores = dict(teacher.scores)
    for record in records:
        if _is_teachers_own(record, [teacher]):
            scores = values_of(record, profile) | scores
    return replace(teacher, scores=scores)


def share_kept(
    runs: Sequence[Record], columns: Sequence[str], teachers: Sequence[TeacherRow], profile: str
) -> float | None:
    """Mean over columns of the mean over runs of 100 · score / its teacher's score.

    A run that names no teacher is held against its column's, if there is only one on the same dev
    rows. None as soon as
    a column has no run, or a run no known teacher with a positive score: the share of part of a row
    would pass for the row's.
    """
    shares: list[float] = []
    for column in columns:
        ratios: list[float] = []
        for run in runs:
            value = values_of(run, profile).get(column)
            if value is None:
                continue
            against = _teacher_score(run, column, teachers, profile)
            if against is None or against <= 0:
                return None
            ratios.append(100 * value / against)
        if not ratios:
            return None
        shares.append(fmean(ratios))
    return fmean(shares) if shares else None


def _teacher_score(
    run: Record, column: str, teachers: Sequence[TeacherRow], profile: str
) -> float | None:
    if run.teacher is not None:
        return teacher_values(run, profile).get(column)
    rows = _dev_rows(run)
    known = {t.scores[column] for t in teachers if column in t.scores and t.rows == rows}
    return known.pop() if len(known) == 1 else None


def _dev_rows(record: Record) -> str | None:
    return record.examples.fingerprints.get("dev")


def _is_teachers_own(record: Record, teachers: Sequence[TeacherRow]) -> bool:
    if record.kind != "finetune":
        return False
    for teacher in teachers:
        if teacher.place != place_of(record):
            continue
        if _same_folder(record, teacher.facts.path):
            return True
        # Records that were moved have lost the folder; size and every dev score together name it.
        if (
            record.student.parameters is not None
            and record.student.parameters == teacher.facts.parameters
            and record.student.layers == teacher.facts.layers
            and bool(record.scores.get("dev"))
            and record.scores.get("dev") == teacher.facts.scores.get("dev")
        ):
            return True
    return False


def _same_folder(record: Record, path: str | None) -> bool:
    if record.path is None or path is None:
        return False
    folder = record.path.parent.resolve()
    return Path(path).resolve() in (folder, folder / "student")


def team_table(team: TeamScores, models: Mapping[str, ModelFacts]) -> CellTable:
    """One row a member, and one of their ensemble; scores and shares are percentages."""
    cells = [["member", "layers", "width", "parameters", "score", "team without it", "adds"]]
    worth = zip(team.names, team.scores, team.without, team.adds, strict=True)
    for number, (name, score, without, adds) in enumerate(worth, start=1):
        model = models[name]
        size = [shown(model.layers), shown(model.hidden_size), shown(model.parameters, magnitude)]
        gain = shown(adds if np.isfinite(adds) else None, signed)
        cells.append([f"{number} {name}", *size, _score(score), _score(without), gain])
    cells.append(["ensemble", "", "", "", _score(team.ensemble), "", ""])
    return CellTable(f"{count_of(len(team.names), 'member')} and their ensemble", cells)


def pairs_table(team: TeamScores) -> CellTable:
    """The members' disagreement in pairs."""
    numbers = team.oracle is None
    said = "100 · (1 − correlation)" if numbers else "% of examples predicted differently"
    names = team.names
    cells = [["", *(str(number) for number in range(1, len(names) + 1))]]
    for row, values in enumerate(100 * team.disagreement):
        shares = ["·" if row == column else _score(value) for column, value in enumerate(values)]
        cells.append([f"{row + 1} {names[row]}", *shares])
    return CellTable(f"Disagreement: {said}", cells)


def team_notes(team: TeamScores) -> list[str]:
    """What the numbers are, in sentences."""
    best = int(np.argmax(team.scores))
    said = f"Best alone: {team.names[best]}, {team.scores[best]:.1f}; ensemble {team.ensemble:.1f}"
    count = f"{team.examples} examples"
    if team.oracle is not None:
        said += f"; at least one is right on {team.oracle:.1f} %"
        count += f": one of them is {100 / team.examples:.2f} points of accuracy"
    return [
        f"{said}.",
        f"{count}.",
        "Ensemble: the mean of all logits. Adds: what the team scores more with the member than "
        "without it.",
    ]


def _score(value: float) -> str:
    return decimal(value if np.isfinite(value) else None)


# The members of a team in a table: size and scores of each run, in the order given. Other than
# `build_table` it shows single runs: nothing is averaged.


TEAM_PROFILE = "skd-dev"
"""SKD weighs its teachers by these scores."""


def members_table(members: Mapping[str, Record | None], profile: str = TEAM_PROFILE) -> CellTable:
    """Name, layers, width, heads, parameters, dev scores and training time of each run.

    A task that the profile leaves out has its benchmark's own score. A run without a record, or one
    that failed, is a row without numbers. Raises LimbeckError for an unknown profile.
    """
    records = [record for record in members.values() if record is not None]
    known = profiles.get_profile(profile).columns
    profile = profile if all(record.task in known for record in records) else "glue"
    columns = columns_of(records, profile, out_of_domain="left out")
    follows = any(profiles.knows(record.task) for record in records)
    said = f"Dev scores of profile {profile}" if follows else "Primary dev scores"
    titles = [column.title for column in columns]
    cells = [["name", "layers", "width", "heads", "parameters", *titles, "time"]]
    for name, record in members.items():
        if record is None or record.status != "finished":
            status = "failed" if record is None else record.status
            cells.append([name, *[""] * 4, *[status] * len(columns), ""])
            continue
        model, scores = record.student, values_of(record, profile)
        shape = map(shown, (model.layers, model.hidden_size, model.heads))
        reached = (decimal(scores.get(column.key)) for column in columns)
        time = shown(record.cost.total_seconds, duration)
        cells.append([name, *shape, shown(model.parameters, magnitude), *reached, time])
    return CellTable(said, cells)
