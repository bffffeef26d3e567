"""Which runs are teachers, and the score a student's is held against.

Part of `limbeck.tables`. A teacher is described in the record of every run it taught; its own
training run may be among the records too, and must not appear again as a student.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from limbeck.records import Record
from limbeck.records.facts import TeacherFacts
from limbeck.tables.model import place_of, teacher_values, values_of


@dataclass(frozen=True)
class TeacherRow:
    """One teacher of one task and data, however many runs it taught."""

    place: str
    facts: TeacherFacts
    scores: Mapping[str, float]
    """Column key → score."""
    rows: str | None
    """Which dev rows these scores come from, by the record of a run that it taught."""


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
    """With later scores of its own run, such as out of domain, which no student's record contains."""
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
