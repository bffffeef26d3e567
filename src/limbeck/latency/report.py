"""The measurements of a bench, as `bench.json` keeps them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field
from rich.console import Console, Group

from limbeck.latency.contenders import Contender
from limbeck.records import Record
from limbeck.records.facts import BenchFacts, BenchRow, Latency
from limbeck.runtimes.manifest import EXPORTS
from limbeck.support import files
from limbeck.support.cells import CellTable, decimal, milliseconds, shown
from limbeck.support.words import count_of

BENCH_NAME = "bench.json"
SCHEMA = 1


class BenchCondition(BaseModel):
    """The inputs, and the number of cores."""

    batch: int
    length: int
    """Tokens of every row; images have a size of their own."""
    threads: int

    @property
    def words(self) -> str:
        """In one line."""
        threads = count_of(self.threads, "thread")
        return f"batch {self.batch}, {self.length} tokens, {threads}"


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
    """CPU time of a pass, all threads together: it does not depend on other programs."""
    waited: float | None = None
    """Share of the time, 0 to 1, in which one thread's passes waited for a core."""
    passes: int = 0
    rows_per_second: float | None = None
    load_seconds: float | None = None
    cold_ms: float | None = None
    """The first pass under this condition: includes compilation, and weights that are read for the first time."""
    memory_mib: float | None = None
    """Memory of the process beyond the imported libraries, without mapped files: weights that were
    copied, and buffers."""
    mapped_mib: float | None = None
    """Pages of the model's files in memory: weights that are read in place, as far as they were read."""
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

    def with_times(self, times: Sequence[float], cpu: Sequence[float] = ()) -> "Measurement":
        """The measurement with the times of these passes: milliseconds by the clock, and of CPU."""
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
        """Write `bench.json` into a folder atomically."""
        files.write_whole(folder / BENCH_NAME, json.dumps(self.model_dump(), indent=1) + "\n")

    @property
    def conditions(self) -> list[BenchCondition]:
        """Those that were measured, each once, in their order."""
        return list({one.condition.words: one.condition for one in self.measurements}.values())

    def under(self, condition: BenchCondition) -> list[Measurement]:
        """The measurements under one condition."""
        return [one for one in self.measurements if one.condition == condition]


# A bench as a table: one row for each model and backend, one block for each condition.


_HEADINGS = (
    "model", "backend", "form", "p50 ms", "p90", "p95", "CPU ms", "× first", "rows/s", "load s", "cold ms",
    "memory MiB", "of it mapped", "disk MiB", "dev score",
)  # fmt: skip
_DISPENSABLE = ("p90", "of it mapped", "cold ms", "load s", "p95", "memory MiB", "rows/s", "CPU ms")
"""Columns that a narrow terminal leaves out, the first one first. CPU ms is last: other work delays a clock, not it.
"""


def as_markdown(report: BenchReport) -> str:
    """A heading and a table for each condition, then the machine and what to know."""
    tables = [_table(report, condition) for condition in report.conditions]
    parts = [f"## {table.title}\n\n{table.markdown()}" for table in tables]
    said = "\n".join(f"- {line}" for line in notes_of(report))
    return "# Bench\n\n" + "\n\n".join(parts) + f"\n\n{said}\n"


def as_tables(report: BenchReport, console: Console) -> tuple[list[Group], tuple[str, ...]]:
    """The same for a terminal, and the columns that it is too narrow for."""
    unbounded = console.options.update(max_width=1000)
    for number in range(len(_DISPENSABLE) + 1):
        left_out = _DISPENSABLE[:number]
        found = [_table(report, one, left_out).printed() for one in report.conditions]
        if all(
            console.measure(table, options=unbounded).maximum <= console.width for table in found
        ):
            break
    return found, left_out


def _table(
    report: BenchReport, condition: BenchCondition, left_out: Sequence[str] = ()
) -> CellTable:
    rows = [[*_HEADINGS], *_rows(report.under(condition))]
    places = [place for place, heading in enumerate(_HEADINGS) if heading not in left_out]
    return CellTable(condition.words, [[row[place] for place in places] for row in rows], (0, 1, 2))


def notes_of(report: BenchReport) -> list[str]:
    """The notes below the table."""
    machine = report.machine
    libraries = ", ".join(
        f"{name} {version}" for name, version in report.versions.items() if version
    )
    return [
        f"{report.passes} passes of each, in turns; bench {report.identity}, {report.when}.",
        f"{machine.get('processor')}, {machine.get('cores')} cores; {libraries}.",
        *report.notes,
    ]


def _rows(found: list[Measurement]) -> list[list[str]]:
    first = found[0].p50
    rows = []
    for one in found:
        # Weights may be copied or read in place (mapped): the model needs both together.
        memory = None if one.memory_mib is None else one.memory_mib + (one.mapped_mib or 0)
        numbers = [
            *map(_ms, (one.p50, one.p90, one.p95, one.cpu_p50)),
            decimal(None if first is None or one.p50 is None else first / one.p50, 2),
            decimal(one.rows_per_second, 0 if (one.rows_per_second or 0) >= 100 else 1),
            decimal(one.load_seconds, 2),
            _ms(one.cold_ms),
            decimal(memory, 0),
            decimal(one.mapped_mib, 0),
            decimal(one.disk_mib),
            decimal(one.score, 2),
        ]
        if one.error:
            numbers = ["failed", *[""] * (len(numbers) - 1)]
        rows.append([one.model, one.backend, one.form, *numbers])
    return rows


def _ms(value: float | None) -> str:
    return shown(value, lambda known: milliseconds(known)[0])


# The measurements of a bench enter the records of the runs that took part, next to each run's
# own.


def keep_in_records(report: BenchReport, who: Sequence[Contender]) -> list[Path]:
    """Write the first condition's times in torch to the records of all runs; returns their folders.

    A run whose teacher took part gets the teacher's time too.
    """
    first = report.conditions[:1]
    times = {one.name: one for one in report.measurements if [one.condition] == first}
    timed = {
        one.path: _latency(times[one.name], report.identity)
        for one in who
        if one.backend == "torch" and times[one.name].p50 is not None
    }
    kept = []
    for one in who:
        if one.run is None or one.backend != "torch" or one.path not in timed:
            continue
        record, taught = Record.load(one.run), list[Path]()
        record.student.bench_ms = timed[one.path]
        if record.teacher is not None and record.teacher.path is not None:
            folder = files.at_home(record.teacher.path).resolve()
            taught = [folder, folder / "student"]
            record.teacher.bench_ms = timed.get(taught[0], timed.get(taught[1]))
        record.bench = BenchFacts(
            identity=report.identity,
            when=report.when,
            processor=report.machine.get("processor"),
            waited=max(
                (m.waited for m in report.measurements if m.waited is not None), default=None
            ),
            rows=_rows_of(record, one.run.resolve(), taught, report, who),
        )
        record.save(one.run)
        kept.append(one.run)
    return kept


def _rows_of(
    record: Record,
    run: Path,
    teacher: Sequence[Path],
    report: BenchReport,
    who: Sequence[Contender],
) -> list[BenchRow]:
    """The bench's lines of a run's student, of its exported models, and of its teacher."""
    shared = (BenchRow.model_fields.keys() & Measurement.model_fields.keys()) - {"score"}
    dev = record.examples.fingerprints.get("dev")
    by_name = {one.name: one for one in who}
    rows = []
    for one in report.measurements:
        model = by_name[one.name]
        if one.p50 is None:
            continue
        if model.path.is_relative_to(run / EXPORTS):
            role = "export"
        elif model.run is not None and model.run.resolve() == run:
            role = "student"
        elif model.path in teacher:
            role = "teacher"
        else:
            continue
        row = one.model_dump(include=shared) | {
            "role": role,
            "export": model.checksum,
            "batch_size": one.condition.batch,
            "tokens": one.condition.length,
            "threads": one.condition.threads,
            "score": one.score if model.rows is not None and model.rows == dev else None,
        }
        rows.append(BenchRow.model_validate(row))
    return rows


def _latency(one: Measurement, bench: str) -> Latency:
    assert one.p50 is not None
    return Latency(
        median=one.p50,
        spread=one.spread or 0.0,
        batch_size=one.condition.batch,
        tokens=one.condition.length,
        repeats=one.passes,
        threads=one.condition.threads,
        device="cpu",
        bench=bench,
    )
