"""A bench as a table: one row for each model and backend, one block for each condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from rich.console import Console, Group

from limbeck.latency.report import BenchCondition, BenchReport, Measurement
from limbeck.report.plots import SCORE_SPAN, widened
from limbeck.report.svg import INK, MUTED, Panel, series_colour, series_marker, standalone
from limbeck.tables.cells import CellTable, decimal, milliseconds, shown

_HEADINGS = (
    "model", "backend", "form", "p50 ms", "p90", "p95", "CPU ms", "× first", "rows/s", "load s", "cold ms",
    "memory MiB", "of it mapped", "disk MiB", "score",
)  # fmt: skip
_DISPENSABLE = ("p90", "of it mapped", "cold ms", "load s", "p95", "memory MiB", "rows/s", "CPU ms")
"""What a narrow terminal does without, the first one first. CPU ms is last: other work delays a clock, not it.
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
    """What stands below the table."""
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
        # Weights may be copied or read in place (mapped): together they are what the model needs.
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


# Two drawings of a bench: latency against length, and score against latency with its Pareto front.


def draw_plots(report: BenchReport) -> dict[str, bytes]:
    """File name → SVG. Scores are drawn only where all were measured on the same rows."""
    timed = [one for one in report.measurements if one.p50 is not None]
    found = {"latency.svg": standalone(_latency(report, timed).svg)} if timed else {}
    scored = [one for one in timed if one.score is not None]
    if scored and len({one.rows for one in scored}) == 1:
        found["score.svg"] = standalone(_score(report.conditions[0], scored).svg)
    return found


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of those that no other beats: none is as fast and better, or faster and as good.

    `points`: (latency, score). In order of latency.
    """
    order = sorted(range(len(points)), key=lambda at: (points[at][0], -points[at][1]))
    best, kept = float("-inf"), []
    for at in order:
        if points[at][1] > best:
            best = points[at][1]
            kept.append(at)
    return kept


def _latency(report: BenchReport, timed: Sequence[Measurement]) -> Panel:
    """Axes for each batch size and number of threads: p50 with a band to p95."""
    sides = list(dict.fromkeys((c.batch, c.threads) for c in report.conditions))
    names = list(dict.fromkeys(one.name for one in report.measurements))
    lengths = sorted({c.length for c in report.conditions})
    panel = Panel(
        "", "Latency by length", 1.2 + 4.2 * len(sides), 3.4 + 0.2 * len(names), beside=len(sides)
    )
    with panel as first:
        for axes, (batch, threads) in zip(panel.axes, sides, strict=True):
            for style, name in enumerate(names):
                own = [
                    (one.condition.length, one.p50 or 0.0, one.p95 or 0.0)
                    for one in timed
                    if (one.name, one.condition.batch, one.condition.threads)
                    == (name, batch, threads)
                ]
                if own:
                    x, middle, high = zip(*sorted(own), strict=True)
                    colour = series_colour(style)
                    axes.fill_between(x, middle, high, color=colour, alpha=0.15, lw=0)
                    axes.plot(x, middle, color=colour, marker=series_marker(style), label=name)
            if axes is not first:
                axes.sharey(first)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(lengths, [str(length) for length in lengths])
            axes.xaxis.set_minor_locator(NullLocator())
            _plain_log(axes.yaxis)
            axes.set_xlabel("tokens")
            axes.set_title(f"batch {batch}, {threads} thread{'s' if threads != 1 else ''}")
        first.set_ylabel("ms a pass (p50, band to p95)")
        _named_below(first)
    return panel


def _score(condition: BenchCondition, scored: Sequence[Measurement]) -> Panel:
    """Under the first condition, where every model has its point; the front is a line of steps."""
    own = [one for one in scored if one.condition == condition]
    points = [(one.p50 or 0.0, one.score or 0.0) for one in own]
    front = [points[at] for at in pareto(points)]
    panel = Panel("", "Score by latency", 6.4, 3.8 + 0.2 * len(own))
    with panel as axes:
        axes.plot(
            *zip(*front, strict=True), drawstyle="steps-post", color=MUTED,
            linestyle=(0, (4, 3)), linewidth=1.2, label="Pareto front", zorder=1,
        )  # fmt: skip
        for style, (one, (x, y)) in enumerate(zip(own, points, strict=True)):
            axes.plot(
                x, y, linestyle="none", marker=series_marker(style), color=series_colour(style),
                markersize=7, label=f"{one.name} ({one.disk_mib:.1f} MiB)", zorder=2,
            )  # fmt: skip
        axes.set_xscale("log")
        _plain_log(axes.xaxis)
        # A small step shall not look like a cliff.
        axes.set_ylim(widened(axes.get_ylim(), SCORE_SPAN))
        axes.set(xlabel=f"ms a pass, p50 ({condition.words})", ylabel="primary dev score")
        _named_below(axes)
    return panel


def _named_below(axes: Axes) -> None:
    axes.legend(
        loc="upper left", bbox_to_anchor=(0, -0.2), fontsize=8, frameon=False, labelcolor=INK
    )


def _plain_log(axis: Any) -> None:
    """1, 2 and 5 of every power, as one reads them."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
