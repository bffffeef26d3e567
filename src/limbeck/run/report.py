"""The page of one run. Part of `limbeck.run`."""

from __future__ import annotations

from limbeck.records import Record
from limbeck.run.assemble import Assembly
from limbeck.run.folder import RunFolder


def report_run(assembly: Assembly, record: Record, folder: RunFolder) -> None:
    """Write `report.html`, with the similarity of teacher and student layers where there is a teacher."""
