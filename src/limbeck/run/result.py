"""What a run gives back. Part of `limbeck.run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.records import Numbers, Record
from limbeck.run.run_folder import RunFolder
from limbeck.students import load_model


@dataclass
class Result:
    """What a run gives back.

    Attributes:
        path: the run folder.
        scores: split → metric → score, 0 to 100.
        record: everything known about the run.
    """

    path: Path
    record: Record

    @property
    def scores(self) -> dict[str, Numbers]:
        """Split → metric → score, 0 to 100."""
        return self.record.scores

    @property
    def student(self) -> Any:
        """The shipped student, loaded from the run folder."""
        return load_model(RunFolder(self.path).student)
