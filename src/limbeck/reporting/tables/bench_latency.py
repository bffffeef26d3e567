"""Latencies of one bench in place of each run's own, where one bench timed all the runs of a table.

Part of `limbeck.reporting.tables`. A run times its own student and teacher; models of different runs can
be compared only where something has timed them in turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.records import ModelFacts, Record


def with_bench(records: Sequence[Record]) -> tuple[Sequence[Record], str | None]:
    """The records with the bench's latencies, and its name; as they are where not all share a bench.

    A teacher that the bench did not time has no latency then: it was timed with others.
    """
    names = {_bench_of(record.student) for record in records if record.status == "finished"}
    if len(names) != 1 or None in names:
        return records, None
    (name,) = names
    return [_benched(record, str(name)) for record in records], name


def _bench_of(facts: ModelFacts) -> str | None:
    return None if facts.bench_ms is None else facts.bench_ms.bench


def _benched(record: Record, bench: str) -> Record:
    def timed(facts: ModelFacts) -> dict:
        found = facts.bench_ms
        return {"latency_ms": found if found is not None and found.bench == bench else None}

    changed = record.model_copy()
    changed.student = record.student.model_copy(update=timed(record.student))
    if record.teacher is not None:
        changed.teacher = record.teacher.model_copy(update=timed(record.teacher))
    return changed
