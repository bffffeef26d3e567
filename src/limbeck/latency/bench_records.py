"""What a bench measured enters the records of the runs that took part, beside what each run measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from limbeck.latency.bench_report import BenchReport, Measurement
from limbeck.latency.contenders import Contender
from limbeck.records import BenchFacts, BenchRow, Latency, Record
from limbeck.runtimes import EXPORTS
from limbeck.support.files import at_home


def keep_in_records(report: BenchReport, who: Sequence[Contender]) -> list[Path]:
    """Write the first condition's times in torch to the records of all runs; returns their folders.

    A run whose teacher took part gets the teacher's time too.
    """
    if not report.conditions:
        return []
    times = {
        (one.model, one.backend): one
        for one in report.under(report.conditions[0])
        if one.p50 is not None
    }
    timed = {
        one.path.resolve(): _latency(times[one.model, one.backend], report.identity)
        for one in who
        if one.backend == "torch" and (one.model, one.backend) in times
    }
    kept = []
    for one in who:
        if one.run is None or one.backend != "torch" or one.path.resolve() not in timed:
            continue
        record = Record.load(one.run)
        record.student.bench_ms = timed[one.path.resolve()]
        if record.teacher is not None and record.teacher.path is not None:
            record.teacher.bench_ms = _of_teacher(record.teacher.path, timed)
        record.bench = _facts(report, one, who)
        record.save(one.run)
        kept.append(one.run)
    return kept


def _facts(report: BenchReport, run: Contender, who: Sequence[Contender]) -> BenchFacts:
    """The bench's lines of a run's student, of what was exported of it, and of its teacher."""
    assert run.run is not None
    folder, record = run.run.resolve(), Record.load(run.run)
    teacher = record.teacher.path if record.teacher is not None else None
    taught = at_home(teacher).resolve() if teacher is not None else None
    roles: dict[
        tuple[str, str, str], tuple[Literal["student", "export", "teacher"], Contender]
    ] = {}
    for one in who:
        place = one.path.resolve()
        if place.is_relative_to(folder / EXPORTS):
            roles[one.model, one.backend, one.form] = "export", one
        elif one.run is not None and one.run.resolve() == folder:
            roles[one.model, one.backend, one.form] = "student", one
        elif taught is not None and place in (taught, taught / "student"):
            roles[one.model, one.backend, one.form] = "teacher", one
    rows = record.examples.fingerprints.get("dev")
    return BenchFacts(
        identity=report.identity,
        when=report.when,
        processor=report.machine.get("processor"),
        waited=max(
            (one.waited for one in report.measurements if one.waited is not None), default=None
        ),
        rows=[
            _row(one, *roles[one.model, one.backend, one.form], dev=rows)
            for one in report.measurements
            if one.p50 is not None and (one.model, one.backend, one.form) in roles
        ],
    )


def _row(
    one: Measurement,
    role: Literal["student", "export", "teacher"],
    who: Contender,
    *,
    dev: str | None,
) -> BenchRow:
    assert one.p50 is not None
    return BenchRow(
        model=one.model,
        role=role,
        backend=one.backend,
        form=one.form,
        export=who.checksum if role == "export" else None,
        batch_size=one.condition.batch,
        tokens=one.condition.length,
        threads=one.condition.threads,
        p50=one.p50,
        p95=one.p95,
        rows_per_second=one.rows_per_second,
        memory_mib=one.memory_mib,
        mapped_mib=one.mapped_mib,
        disk_mib=one.disk_mib,
        score=one.score if who.rows is not None and who.rows == dev else None,
    )


def _of_teacher(path: str, timed: dict[Path, Latency]) -> Latency | None:
    folder = at_home(path).resolve()
    return timed.get(folder, timed.get(folder / "student"))


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
