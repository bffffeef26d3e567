"""Test rows, which choose nothing, and the splits that a trained run is scored on. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from datasets import Dataset, DatasetDict

from limbeck.data import rows_fingerprint
from limbeck.run.rows import EncodedRows
from limbeck.tasks import Processor, Task

TEST = "test"


class ChosenRun(Protocol):
    """A run in which nothing is left to choose (`limbeck.run.train.Trained`)."""

    @property
    def spent(self) -> tuple[Any, ...]:
        """The cost of each stage that was trained."""
        ...

    @property
    def trainer(self) -> Any:
        """The last stage's trainer, with its best epoch loaded."""
        ...


@dataclass(frozen=True)
class FinalRows:
    """Labelled test rows that wait until a run is trained.

    They are no dataset and no encoded rows. What selects an epoch, thresholds, teachers or settings takes those, so
    nobody can hand it these: only a trained run opens them.
    """

    _rows: EncodedRows
    fingerprint: str

    @classmethod
    def taken_from(
        cls,
        splits: DatasetDict,
        task: Task,
        tokenizer: Processor,
        max_length: int,
        *,
        progress: bool,
    ) -> FinalRows | None:
        """Take the test split out of `splits`, whether or not it has labels; None where it has none."""
        rows = splits.pop(TEST, None)
        if rows is None or task.label_column not in rows.column_names:
            return None
        encoded = EncodedRows.of(rows, task, tokenizer, max_length, progress=progress)
        return cls(encoded, rows_fingerprint(task, rows))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._rows.raw)

    @property
    def truncated(self) -> int:
        """How many the length limit cut."""
        return self._rows.truncated or 0

    def to_check(self) -> dict[str, Dataset]:
        """The rows as they were loaded, by their name, for checks of rows before a run starts."""
        return {TEST: self._rows.raw}

    def when_trained(self, trained: ChosenRun) -> EncodedRows:
        """The rows, for a run in which nothing is left to choose."""
        return self._rows


@dataclass(frozen=True)
class SplitsToScore:
    """Splits to score by name, with the fingerprint of each one's rows."""

    rows: Mapping[str, EncodedRows]
    fingerprints: Mapping[str, str]
