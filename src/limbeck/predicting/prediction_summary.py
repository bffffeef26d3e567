"""What came of predicting. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Predictions:
    """What came of `predict`; iterating gives `rows`.

    Attributes:
        count: rows that were predicted, those of earlier starts included.
        blank: of these without text, whose predictions are None.
        cut: texts of which the model did not read the end.
        new: rows that this start predicted.
        seconds: that it took, without loading the model.
        path: the file they were written to.
        rows: the rows themselves, where they were written nowhere.
    """

    count: int
    blank: int
    cut: int
    new: int = 0
    seconds: float = 0.0
    path: Path | None = None
    rows: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return self.count

    def __str__(self) -> str:
        """`rows.jsonl: 872 rows, 2 of them without text (no prediction), 431 rows/s`."""
        said = f"{self.count:,} row{'' if self.count == 1 else 's'}"
        if self.blank:
            said += f", {self.blank:,} of them without text (no prediction)"
        if self.cut:
            said += f"; {self.cut:,} {'text was' if self.cut == 1 else 'texts were'} longer than the model reads"
        if self.new:
            said += f"; {self.new / max(self.seconds, 1e-9):,.0f} rows/s"
        return said if self.path is None else f"{self.path}: {said}"
