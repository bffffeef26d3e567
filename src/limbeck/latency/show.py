"""A bench as a table: one row for each model and backend, one block for each condition."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from rich.console import Console
from rich.table import Table

from limbeck.latency.report import BenchCondition, BenchReport, Measurement
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


# Two drawings of a bench: latency against length, and score against latency with its Pareto front.


# Okabe and Ito's, which the colour-blind distinguish; shapes differ as well.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222")
_MARKERS = "osD^vPX*"
_LEGEND_LINE = 0.2
"""Inches of a figure's height that a model's name below it takes."""
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "limbeck",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def draw_plots(report: BenchReport) -> dict[str, bytes]:
    """File name → SVG. Scores are drawn only where all were measured on the same rows."""
    with mpl.rc_context(_STYLE):
        found = {}
        if _timed(report.measurements):
            found["latency.svg"] = _latency(report)
        scored = [one for one in _timed(report.measurements) if one.score is not None]
        if scored and len({one.rows for one in scored}) == 1:
            found["score.svg"] = _score(report, scored)
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


def _timed(found: Sequence[Measurement]) -> list[Measurement]:
    return [one for one in found if one.p50 is not None]


def _latency(report: BenchReport) -> bytes:
    """A panel for each batch size and number of threads: p50 with a band to p95."""
    panels = list(dict.fromkeys((c.batch, c.threads) for c in report.conditions))
    names = list(dict.fromkeys(one.name for one in report.measurements))
    figure = Figure(
        figsize=(1.2 + 4.2 * len(panels), 3.4 + _LEGEND_LINE * len(names)), layout="constrained"
    )
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (batch, threads) in zip(grid, panels, strict=True):
        for style, name in enumerate(names):
            own = [
                one
                for one in _timed(report.measurements)
                if one.name == name
                and (one.condition.batch, one.condition.threads) == (batch, threads)
            ]
            own.sort(key=lambda one: one.condition.length)
            if own:
                _line(axes, style, name, own)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        lengths = sorted({c.length for c in report.conditions})
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.xaxis.set_minor_locator(NullLocator())
        _plain_log(axes.yaxis)
        axes.set_xlabel("tokens")
        axes.set_title(BenchCondition(batch=batch, length=1, threads=threads).words.replace(
            "1 tokens, ", ""
        ), loc="left")  # fmt: skip
    grid[0].set_ylabel("ms a pass (p50, band to p95)")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", fontsize=8)
    return _svg(figure)


def _line(axes: Axes, style: int, name: str, own: Sequence[Measurement]) -> None:
    colour = _COLOURS[style % len(_COLOURS)]
    lengths = [one.condition.length for one in own]
    middle = [one.p50 or 0.0 for one in own]
    axes.fill_between(
        lengths, middle, [one.p95 or 0.0 for one in own], color=colour, alpha=0.15, lw=0
    )
    axes.plot(
        lengths,
        middle,
        color=colour,
        marker=_MARKERS[style % len(_MARKERS)],
        label=name,
        markersize=5,
    )


def _score(report: BenchReport, scored: Sequence[Measurement]) -> bytes:
    """Under the first condition, where every model has its point; the front is a line of steps."""
    condition = report.conditions[0]
    own = [one for one in scored if one.condition == condition]
    figure = Figure(figsize=(6.4, 3.8 + _LEGEND_LINE * len(own)), layout="constrained")
    axes = figure.subplots()
    points = [(one.p50 or 0.0, one.score or 0.0) for one in own]
    front = pareto(points)
    axes.plot(
        [points[at][0] for at in front], [points[at][1] for at in front],
        drawstyle="steps-post", color="#888888", linestyle=(0, (4, 3)), linewidth=1.2,
        label="Pareto front", zorder=1,
    )  # fmt: skip
    for style, (one, (x, y)) in enumerate(zip(own, points, strict=True)):
        colour = _COLOURS[style % len(_COLOURS)]
        axes.plot(
            x, y, linestyle="none", marker=_MARKERS[style % len(_MARKERS)], color=colour,
            markersize=7, label=f"{one.name} ({one.disk_mib:.1f} MiB)", zorder=2,
        )  # fmt: skip
    axes.set_xscale("log")
    _plain_log(axes.xaxis)
    low, high = axes.get_ylim()
    if high - low < 5:  # a small step shall not look like a cliff
        middle = (low + high) / 2
        axes.set_ylim(middle - 2.5, middle + 2.5)
    axes.set(xlabel=f"ms a pass, p50 ({condition.words})", ylabel="primary dev score")
    figure.legend(loc="outside lower left", fontsize=8)
    return _svg(figure)


def _plain_log(axis: Any) -> None:
    """1, 2 and 5 of every power, as one reads them."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))


def _svg(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
