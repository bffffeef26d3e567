"""What is wrong with a study beyond the types of its keys. Part of `limbeck.study`."""

from __future__ import annotations

from limbeck.errors import Problem, unknown
from limbeck.reporting.tables.against import CORRECTIONS
from limbeck.reporting.tables.measured_columns import FACTS
from limbeck.reporting.tables.printed_numbers import AVERAGE, TEACHER
from limbeck.study.study_fields import Study
from limbeck.tasks.score_profiles import PROFILES


def study_problems(study: Study) -> list[Problem]:
    """Everything that is wrong, each with its fix; empty where nothing is."""
    labels, found = list(study.methods), []
    if study.data is None:
        found.append(
            Problem(
                "data: the study names none", "give it: --data FOLDER (GLUE's files), hub or pocket"
            )
        )
    at = study.teachers is not None and study.teachers.at is not None
    made = study.teachers is not None and not at
    if made and study.model is None and "student.init" not in study.teachers.settings:  # type: ignore[union-attr]
        found.append(
            Problem(
                "model: teachers are made from none",
                "give it: --model FOLDER, a Hub name or pocket",
            )
        )
    if at and "{task}" not in str(study.teachers.at) and len(study.tasks) > 1:  # type: ignore[union-attr]
        found.append(
            Problem(
                f"teachers.at: {study.teachers.at!r} is one place for {len(study.tasks)} tasks",
                "write {task} where its name stands",
            )
        )  # type: ignore[union-attr]
    for key, values in (("tasks", study.tasks), ("seeds", study.seeds)):
        twice = sorted({str(one) for one in values if values.count(one) > 1})
        if twice:
            found.append(
                Problem(f"{key}: {', '.join(twice)} stands there twice", "leave one of them out")
            )
    found += [
        unknown(f"task in {key}:", task, study.tasks)
        for key, task in (("per_task", one) for one in study.per_task)
        if task not in study.tasks
    ]
    if TEACHER in study.methods:
        found.append(
            Problem(
                "methods: a row is called teacher, as the teacher's own is", "call it otherwise"
            )
        )
    if study.select.seeds > len(study.seeds):
        found.append(
            Problem(
                f"select.seeds: {study.select.seeds}, and the study has {len(study.seeds)}",
                "choose on fewer",
            )
        )
    for place, grid in (
        ("select.grid", study.select.grid),
        *((f"methods.{one}.grid", study.method_of(one).grid or {}) for one in labels),
        ("axes", study.axes),
    ):
        for key in grid:
            if key in ("seed", "task", "method", "data", "teacher"):
                found.append(
                    Problem(
                        f"{place}: {key} has its own place in a study",
                        "take it out; see tasks, seeds, methods, data and teachers",
                    )
                )
    found += _table_problems(study, labels)
    return found


def _table_problems(study: Study, labels: list[str]) -> list[Problem]:
    found = []
    if study.table.profile not in PROFILES:
        found.append(unknown("table.profile", study.table.profile, list(PROFILES)))
    if study.table.baseline is not None and study.table.baseline not in labels:
        found.append(unknown("table.baseline", study.table.baseline, labels))
    if study.table.correction not in CORRECTIONS:
        found.append(unknown("table.correction", study.table.correction, list(CORRECTIONS)))
    found += [
        unknown("column in table.columns:", one, list(FACTS))
        for one in study.table.columns
        if one not in FACTS
    ]
    if study.printed is not None:
        count = len(study.printed.columns)
        for row, values in study.printed.rows.items():
            if row != "teacher" and row not in labels:
                found.append(unknown("row in printed.rows:", row, ["teacher", *labels]))
            if len(values) != count:
                found.append(
                    Problem(
                        f"printed.rows.{row}: {len(values)} numbers for {count} columns",
                        f"give one for each of {', '.join(study.printed.columns)}",
                    )
                )
        known = (
            {
                column.title
                for columns in PROFILES[study.table.profile].columns.values()
                for column in columns
            }
            if study.table.profile in PROFILES
            else set()
        )
        found += [
            unknown("column in printed.columns:", one, sorted(known | {AVERAGE}))
            for one in study.printed.columns
            if known and one not in known | {AVERAGE}
        ]
    return found
