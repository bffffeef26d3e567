"""A run whose student is another run's: the best of several that were made for it.

Part of `limbeck.run`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from limbeck.cards import CARD_NAME
from limbeck.records import Cost, Record
from limbeck.run.run_folder import RunFolder


def promote(record: Record, folder: RunFolder) -> None:
    """Take over what the chosen run came to, at the cost of all that were tried."""
    assert record.team is not None and record.team.chosen is not None
    chosen = RunFolder(Path(record.team.chosen))
    theirs = Record.load(chosen.path)
    for part in (
        "epochs", "stages", "best", "last", "scores", "kept", "classification",
        "row_tests", "floor", "student", "teacher",
    ):  # fmt: skip
        setattr(record, part, getattr(theirs, part))
    # What this run read, which is more than the chosen one did.
    mine = record.execution.model_dump(include={"read", "files"})
    record.execution = theirs.execution.model_copy(update=mine)
    record.cost = _sum([Record.load(run).cost for run in record.team.runs])
    shutil.copyfile(chosen.predictions, folder.predictions)
    for source, ship in (
        (chosen.first_stage, folder.ship_first_stage),
        (chosen.student, folder.ship),
    ):
        if source.is_dir():
            shutil.rmtree(folder.unshipped, ignore_errors=True)
            # This run has a card of its own, which no manifest holds.
            shutil.copytree(source, folder.unshipped, ignore=shutil.ignore_patterns(CARD_NAME))
            ship()
    record.status = "finished"


def _sum(costs: Sequence[Cost]) -> Cost:
    """Each number added up over the runs that have it."""
    found = {}
    for name in Cost.model_fields:
        known = [value for cost in costs if (value := getattr(cost, name)) is not None]
        found[name] = sum(known) if known else None
    return Cost(**found)
