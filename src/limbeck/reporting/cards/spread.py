"""Scores over several runs of a model: mean, standard deviation, paired tests. Part of `limbeck.reporting.cards`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from limbeck.records import Record
from limbeck.reporting.cards.student_facts import StudentFacts
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tables import build_table, collect, render
from limbeck.tables.model import place_of


def spread_of(
    student: StudentFacts, seeds: Sequence[str], baseline: str | None = None
) -> str | None:
    """A Markdown table of the run and of those beside it; None where none is named.

    Where methods differ, they are tested against `baseline`, by default `finetune` if it is one of
    them.

    Raises:
        LimbeckError: folders without runs, runs of other rows, a baseline that is not among them.
    """
    if not seeds:
        return None
    own = student.record
    found = [one for one in collect(seeds) if not _same_run(one, own)]
    records = [own, *found]
    _refuse_others(own, found)
    methods = {record.method for record in records}
    if baseline is None and len(methods) > 1 and "finetune" in methods:
        baseline = "finetune"
    table = build_table(records, baseline=baseline, facts=("layers", "parameters", "kept"))
    # The card's own heading says what it is.
    return render(replace(table, title=""), "markdown").rstrip()


def _same_run(one: Record, own: Record) -> bool:
    return (
        one.path is not None and own.path is not None and one.path.resolve() == own.path.resolve()
    )


def _refuse_others(own: Record, found: Sequence[Record]) -> None:
    problems = []
    for one in found:
        rows = one.examples.fingerprints.get("dev"), own.examples.fingerprints.get("dev")
        if place_of(one).split("|")[0] != place_of(own).split("|")[0] or rows[0] != rows[1]:
            where = one.path.parent if one.path is not None else one.method
            problems.append(
                Problem(
                    f"seeds: {where} was scored on other dev rows than the card's run",
                    "name runs of the same task and data",
                )
            )
    if problems:
        raise LimbeckError(problems)
