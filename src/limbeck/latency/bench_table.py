"""A bench as a table: one row for each model and backend, one block for each condition."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from limbeck.latency.bench_report import BenchCondition, BenchReport, Measurement
from limbeck.tables.cells import milliseconds

_HEADINGS = (
    "model", "backend", "form", "p50 ms", "p90", "p95", "CPU ms", "× first", "rows/s", "load s", "cold ms",
    "memory MiB", "of it mapped", "disk MiB", "score",
)  # fmt: skip
_WORDS = 3
"""Columns of text; the others are numbers."""
_FORM = 14
"""Characters a line that a form is given at least."""
_DISPENSABLE = ("p90", "of it mapped", "cold ms", "load s", "p95", "memory MiB", "rows/s", "CPU ms")
"""What a narrow terminal does without, the first one first. CPU ms is last: other work delays a clock, not it.
"""


def as_markdown(report: BenchReport) -> str:
    """A heading and a table for each condition, then the machine and what to know."""
    parts = []
    for condition in report.conditions:
        rows = _rows(report.under(condition))
        rule = ["---"] * _WORDS + ["---:"] * (len(_HEADINGS) - _WORDS)
        table = [_HEADINGS, rule, *rows]
        lines = ["| " + " | ".join(row) + " |" for row in table]
        parts.append(f"## {condition.words}\n\n" + "\n".join(lines))
    said = "\n".join(f"- {line}" for line in _said(report))
    return "# Bench\n\n" + "\n\n".join(parts) + f"\n\n{said}\n"


def as_tables(report: BenchReport, console: Console) -> tuple[list[Table], tuple[str, ...]]:
    """The same for a terminal, and the columns that it is too narrow for."""
    for number in range(len(_DISPENSABLE) + 1):
        left_out = _DISPENSABLE[:number]
        found = [_table(report, condition, left_out) for condition in report.conditions]
        if all(_width(table) <= console.width for table in found):
            break
    return found, left_out


def _width(table: Table) -> int:
    """Characters that it needs for every cell to be whole; a form may take several lines."""
    needed = 1
    for column in table.columns:
        cells = [str(column.header), *map(str, column.cells)]
        most = max(map(len, cells))
        needed += 3 + (most if column.no_wrap else min(most, _FORM))
    return needed


def _table(report: BenchReport, condition: BenchCondition, left_out: Sequence[str]) -> Table:
    table = Table(title=condition.words, title_justify="left")
    shown = [place for place, heading in enumerate(_HEADINGS) if heading not in left_out]
    for place in shown:
        table.add_column(
            _HEADINGS[place],
            justify="left" if place < _WORDS else "right",
            # A form is several words, and may take several lines.
            no_wrap=_HEADINGS[place] != "form",
        )
    for row in _rows(report.under(condition)):
        table.add_row(*(row[place] for place in shown))
    return table


def _said(report: BenchReport) -> list[str]:
    machine = report.machine
    libraries = ", ".join(
        f"{name} {version}" for name, version in report.versions.items() if version
    )
    return [
        f"{report.passes} passes of each, in turns; bench {report.identity}, {report.when}.",
        f"{machine.get('processor')}, {machine.get('cores')} cores; {libraries}.",
        *report.notes,
    ]


def notes_of(report: BenchReport) -> list[str]:
    """What stands below the table."""
    return _said(report)


def _rows(found: list[Measurement]) -> list[list[str]]:
    first = found[0].p50 if found else None
    rows = []
    for one in found:
        names = [one.model, one.backend, one.form]
        if one.p50 is None:
            rows.append(
                [*names, "failed" if one.error else "–", *[""] * (len(_HEADINGS) - _WORDS - 1)]
            )
            continue
        rows.append(
            [
                *names,
                *(_ms(value) for value in (one.p50, one.p90, one.p95)),
                _ms(one.cpu_p50),
                "–" if not first else f"{first / one.p50:.2f}",
                _number(one.rows_per_second, 0 if (one.rows_per_second or 0) >= 100 else 1),
                _number(one.load_seconds, 2),
                _ms(one.cold_ms),
                # Weights may be copied or read in place (mapped): together they are what the model needs.
                _number(
                    None if one.memory_mib is None else one.memory_mib + (one.mapped_mib or 0), 0
                ),
                _number(one.mapped_mib, 0),
                _number(one.disk_mib, 1),
                _number(one.score, 2),
            ]
        )
    return rows


def _ms(value: float | None) -> str:
    return "–" if value is None else milliseconds(value)[0]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
