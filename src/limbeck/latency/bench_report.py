"""What a bench measured, as `bench.json` keeps it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from limbeck.support.errors import LimbeckError
from limbeck.support.files import write_whole
from limbeck.support.plain import read_json, read_text

BENCH_NAME = "bench.json"
SCHEMA = 1


class BenchCondition(BaseModel):
    """What is fed, and on how many cores."""

    batch: int
    length: int
    """Tokens of every row; images have a size of their own."""
    threads: int

    @property
    def words(self) -> str:
        """In one line."""
        plural = "s" if self.threads != 1 else ""
        return f"batch {self.batch}, {self.length} tokens, {self.threads} thread{plural}"


class Measurement(BaseModel):
    """One model on one backend under one condition; times are milliseconds of one pass."""

    model: str
    backend: str
    form: str
    condition: BenchCondition
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    spread: float | None = None
    """Distance between the quartiles."""
    cpu_p50: float | None = None
    """CPU time of a pass, all threads together: what is left when other programs take their share."""
    waited: float | None = None
    """Share of the time, 0 to 1, in which one thread's passes waited for a core."""
    passes: int = 0
    rows_per_second: float | None = None
    load_seconds: float | None = None
    cold_ms: float | None = None
    """The first pass under this condition: what is compiled, and weights that are read for the first time."""
    memory_mib: float | None = None
    """What the process took beyond the imported libraries, files it mapped left out: weights that were
    copied, and buffers."""
    mapped_mib: float | None = None
    """Pages of the model's files in memory: weights that are read in place, as far as they were read."""
    process_mib: float | None = None
    """All memory of the process that no other shares."""
    disk_mib: float = 0.0
    score: float | None = None
    """Primary dev score, where one is known."""
    rows: str | None = None
    """Fingerprint of the rows it was measured on."""
    error: str = ""

    @property
    def name(self) -> str:
        """Model, backend and form in one line."""
        return f"{self.model} · {self.backend} · {self.form}"

    def with_times(self, times: Sequence[float], cpu: Sequence[float] = ()) -> Measurement:
        """The measurement with what is said of these passes: milliseconds by the clock, and of CPU."""
        p25, p50, p75, p90, p95 = np.percentile(times, [25, 50, 75, 90, 95]).tolist()
        total = sum(times) / 1000
        alone = self.condition.threads == 1 and bool(cpu) and total > 0
        return self.model_copy(
            update={
                "p50": p50,
                "p90": p90,
                "p95": p95,
                "spread": p75 - p25,
                "cpu_p50": float(np.median(cpu)) if cpu else None,
                "waited": max(0.0, 1 - sum(cpu) / sum(times)) if alone else None,
                "passes": len(times),
                "rows_per_second": self.condition.batch * len(times) / total if total else None,
            }
        )


class BenchReport(BaseModel):
    """One bench: everything in it was timed in turns, and may be compared."""

    schema_version: int = SCHEMA
    identity: str
    """Its own; a record that keeps numbers of it names it."""
    when: str
    passes: int
    measurements: list[Measurement]
    machine: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str | None] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write `bench.json` into a folder, whole or not at all."""
        write_whole(folder / BENCH_NAME, json.dumps(self.model_dump(), indent=1) + "\n")

    @property
    def conditions(self) -> list[BenchCondition]:
        """Those that were measured, each once, in their order."""
        found: dict[str, BenchCondition] = {}
        for one in self.measurements:
            found.setdefault(one.condition.words, one.condition)
        return list(found.values())

    def under(self, condition: BenchCondition) -> list[Measurement]:
        """What was measured under one condition."""
        return [one for one in self.measurements if one.condition == condition]


def load_bench(path: str | Path) -> BenchReport:
    """A bench's folder, or its `bench.json`. Raises LimbeckError for what is none."""
    file = Path(path) / BENCH_NAME if Path(path).is_dir() else Path(path)
    found = read_json(read_text(file), str(file))
    try:
        return BenchReport.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise LimbeckError(
            f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            "name what limbeck bench wrote",
        ) from None
