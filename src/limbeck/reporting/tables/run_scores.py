"""What one run puts into a table: its score in each column, under a named profile.

Part of `limbeck.reporting.tables`: the only place there that knows tasks and profiles. A *place* is one task
on one source of data; a profile may show several columns of it (accuracy and F1, MNLI's two sets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.records import Numbers, Record
from limbeck.reporting.tables.model import OutOfDomain, TableColumn
from limbeck.support.errors import LimbeckError, unknown
from limbeck.tasks import TASKS
from limbeck.tasks.score_profiles import PROFILES, get_profile, profile_columns

# Splits that a profile reads; every other key of a record's scores is a column of its own.
_PROFILE_SPLITS = ("dev", "dev_mismatched")


def check_profile(profile: str) -> None:
    """Raises LimbeckError for a profile that does not exist."""
    if profile not in PROFILES:
        raise LimbeckError(unknown("profile", profile, list(PROFILES)))


def profile_note(profile: str) -> str:
    """What the profile's numbers are, in a sentence."""
    return f"Profile {profile}: {get_profile(profile).summary}."


def knows(task: str) -> bool:
    """Whether profiles say what a task's scores are; others have their primary score."""
    return task in get_profile("glue").columns


def place_of(record: Record) -> str:
    """The task and data of a run; runs are compared only where this agrees."""
    return f"{record.task}|{_data_name(record)}"


def place_title(record: Record, several_sources: bool) -> str:
    """A place's printed name; the data are named only where there are several."""
    return task_title(record.task) + (f" ({_data_name(record)})" if several_sources else "")


def several_sources(records: Sequence[Record]) -> bool:
    """Whether the runs read more than one source of data."""
    return len({_data_name(record) for record in records}) > 1


def on_split(records: Sequence[Record], split: str) -> list[Record]:
    """The runs with the scores of one split where those of dev stand, of teacher and floor too; no other splits.

    Failed and unfinished runs stay as they are.

    Raises:
        LimbeckError: a finished run that was not scored on it.
    """
    without = [one for one in records if one.status == "finished" and split not in one.scores]
    if without:
        raise LimbeckError(
            f"split {split}: {len(without)} of {len(records)} runs have no scores there, the first of them "
            f"{without[0].path or without[0].method}",
            f"score them: limbeck evaluate RUN --split {split}; or leave them out",
        )
    return [_on_split(record, split) if split in record.scores else record for record in records]


def _on_split(record: Record, split: str) -> Record:
    rows = record.examples.fingerprints.get(split)
    changes: dict[str, Any] = {
        "scores": {"dev": record.scores[split]},
        "examples": record.examples.model_copy(
            update={
                "dev": record.examples.test if split == "test" else record.examples.dev,
                "fingerprints": {} if rows is None else {"dev": rows},
            }
        ),
    }
    for side in ("teacher", "floor"):
        facts = getattr(record, side)
        if facts is not None:
            known = {"dev": facts.scores[split]} if split in facts.scores else {}
            changes[side] = facts.model_copy(update={"scores": known})
    moved = record.model_copy(update=changes)
    moved._path = record.path
    return moved


def split_note(records: Sequence[Record], split: str | None) -> str:
    """What the rows of the scores did: chose, or nothing. Empty where no run has test rows."""
    if split is not None:
        chose = ", which chose nothing" if split == "test" else ""
        return f"Scores are of the {split} rows{chose}."
    if not any("test" in record.scores for record in records):
        return ""
    return (
        "A task's own column is of its dev rows: the best epoch's score on the rows that selected it. The column "
        "'test' is of rows that chose nothing; --split test makes the whole table of them."
    )


def columns_of(
    records: Sequence[Record], profile: str, out_of_domain: OutOfDomain
) -> list[TableColumn]:
    """All columns of these records in GLUE's order, out-of-domain sets after the tasks."""
    alone = out_of_domain == "alone"
    many = several_sources(records)
    order = {name: number for number, name in enumerate(TASKS)}
    found: dict[tuple[bool, int, str], TableColumn] = {}
    for record in records:
        place = place_of(record)
        source = f" ({_data_name(record)})" if many else ""
        source += " agreement" if record.examples.labels == "teacher" else ""
        number = order.get(record.task, len(order))
        for title, weight in ({} if alone else _weights(profile, record.task)).items():
            key = f"{place}|{title}"
            found.setdefault((False, number, key), TableColumn(key, title + source, place, weight))
        for split in () if out_of_domain == "left out" else _extra_splits(record.scores):
            key = f"{place}|{split}"
            arrow = " " if split == "test" else " → "
            title = f"{task_title(record.task)}{arrow}{task_title(split)}{source}"
            found.setdefault((True, number, key), TableColumn(key, title, place, int(alone)))
    # Stable: the columns of one task stay in their profile's order.
    return [found[key] for key in sorted(found, key=lambda key: (key[0], key[1], found[key].place))]


def values_of(record: Record, profile: str) -> dict[str, float]:
    """Column key → score, of one finished run."""
    place = place_of(record)
    values = {
        f"{place}|{title}": value
        for title, value in _values(profile, record.task, record.scores).items()
    }
    for split in _extra_splits(record.scores):
        values[f"{place}|{split}"] = record.primary_score(split)
    return {key: value for key, value in values.items() if value is not None}


def teacher_values(record: Record, profile: str) -> dict[str, float]:
    """Column key → the score of the run's teacher; empty where the run has none."""
    return {} if record.teacher is None else _values_at(record, record.teacher.scores, profile)


def floor_values(record: Record, profile: str) -> dict[str, float]:
    """Column key → the score of the run's floor; empty where the run has none."""
    return {} if record.floor is None else _values_at(record, record.floor.scores, profile)


def _values_at(record: Record, scores: Mapping[str, Numbers], profile: str) -> dict[str, float]:
    place = place_of(record)
    values = dict(_values(profile, record.task, scores))
    values |= {split: scores[split].get("primary") for split in _extra_splits(scores)}
    return {f"{place}|{title}": value for title, value in values.items() if value is not None}


def task_title(name: str) -> str:
    """A known task's printed name; any other name as it is."""
    return TASKS[name].title if name in TASKS else name


def _values(profile: str, task: str, scores: Mapping[str, Numbers]) -> Mapping[str, float | None]:
    """Column title → number; a task outside GLUE has its primary dev score."""
    if not knows(task):
        return {task_title(task): scores.get("dev", {}).get("primary")}
    # A record keeps a score that was not finite as None; for a profile it is a missing one.
    known = {
        split: {name: value for name, value in metrics.items() if value is not None}
        for split, metrics in scores.items()
    }
    return profile_columns(profile, task, known)


def _weights(profile: str, task: str) -> Mapping[str, int]:
    """Column title → how often it counts in the average."""
    if not knows(task):
        return {task_title(task): 1}
    columns = get_profile(profile).columns.get(task, ())
    return {column.title: column.weight for column in columns}


def _extra_splits(scores: Mapping[str, Numbers]) -> list[str]:
    return [split for split in scores if split not in _PROFILE_SPLITS]


def _data_name(record: Record) -> str:
    # A folder's last part: the same data lie elsewhere on another machine.
    return Path(record.data).name or record.data
