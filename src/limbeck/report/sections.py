"""The sections of a run's page: their contents, also for classes, rows, benches, exports and teachers.

Part of `limbeck.report`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from limbeck.records import Record
from limbeck.records.facts import ClassificationScores, TeamFacts
from limbeck.report import plots
from limbeck.report.svg import COLOURS, Panel, series_dash, series_marker
from limbeck.runtimes.manifest import ExportManifest
from limbeck.support.cells import CellTable
from limbeck.support.registry import Registry
from limbeck.support.words import count_of
from limbeck.tables import classes


@dataclass(frozen=True)
class Section:
    """A heading, a sentence on how to read it, its tables, drawings with the legend they share, and notes."""

    key: str
    title: str
    lead: str
    drawings: Sequence[Panel]
    legend: list[dict[str, Any]] = field(default_factory=list)
    layout: Literal["", "wide", "small"] = ""
    tables: list[CellTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def legend_entry(name: str, style: int, patch: bool = False) -> dict[str, Any]:
    """A name with the colour, marker and dash of its style."""
    dash = series_dash(style)
    return {
        "name": name,
        "colour": f"var(--series-{style % COLOURS})",
        "marker": series_marker(style),
        "dash": "" if isinstance(dash, str) else " ".join(str(2 * part) for part in dash[1]),
        "patch": patch,
    }


@dataclass(frozen=True)
class PagePart:
    """Measurements of a finished run that its record does not contain but its page shows.

    Attributes:
        files: patterns of the files that it keeps in the run's folder.
        sections: from the folder to what its page shows.
    """

    files: tuple[str, ...]
    sections: Callable[[Path], list[Section]]


PAGE_PARTS: Registry[PagePart] = Registry("part of a run's page")


def page_parts() -> list[PagePart]:
    """All that are known."""
    return [PAGE_PARTS.get(name) for name in PAGE_PARTS]


_LEAD = (
    "The student and its teacher, class by class. Reliability: bars are the share of right predictions among those "
    "made with a probability in that range, the fuller the range, the darker; marks are the mean probability, and "
    "dashed is what would be exact. Confusion: rows by label and prediction, colored by the share of the label's rows."
)
_BY_TEACHER = (
    "Class by class, where a class is the one that the teacher predicts. Confusion: rows by the teacher's prediction "
    "and the student's, colored by the share of the rows of a teacher's prediction."
)
_ALONE = _LEAD.replace("The student and its teacher, class by class.", "Class by class.")


def classification_sections(runs: Sequence[Record]) -> list[Section]:
    """One for each split that was scored of a single run; of several runs none, which their table compares."""
    if len(runs) != 1:
        return []
    (run,) = runs
    return [
        _section(f"classes-{number}", split, found, run)
        for number, (split, found) in enumerate(run.classification.items(), start=1)
    ]


def _section(key: str, split: str, found: ClassificationScores, run: Record) -> Section:
    models = [("Student", found.student), ("Teacher", found.teacher)]
    reliability: list[Panel] = []
    confusion: list[Panel] = []
    for name, model in models:
        if model is None:
            continue
        if model.calibration_error is not None:
            error = model.calibration_error / 100
            title = f"{name}: reliability"
            reliability.append(plots.reliability_panel(title, model.reliability, error))
        if model.confusion is not None and len(model.confusion) <= classes.MOST_SHOWN:
            columns, counts = classes.predicted_names(found, model), np.array(model.confusion)
            down = "label" if found.labels is None else "teacher"
            title = f"{name}: confusion"
            names = classes.shown_names(found)
            confusion.append(plots.confusion_map(title, names, columns, counts, down=down))
    lead = _LEAD if found.teacher is not None else _ALONE
    lead = _BY_TEACHER if found.labels == "teacher" else lead
    if found.student.micro_f1 is not None:
        lead = lead.partition(" Confusion:")[0]
    return Section(
        key,
        f"Classes on {split}",
        lead,
        [*reliability, *confusion],
        tables=classes.class_tables(found),
        notes=classes.class_words(found, run.row_tests.get(split), run.thresholds),
    )


# The parts of a run's page from a bench and the exports.


_MB = 1e6
_STYLES = {"teacher": 0, "student": 1, "export": 2}


def bench_section(runs: Sequence[Record]) -> Section:
    """The last bench's times, one drawing a condition; of several runs only where one bench timed them all."""
    benches = [run.bench for run in runs if run.bench is not None]
    if len({bench.identity for bench in benches}) != 1 or len(benches) < len(runs):
        return Section("latency", "", "", [])
    conditions: dict[str, dict[str, tuple[str, int, list[float]]]] = {}
    for row in (row for bench in benches for row in bench.rows):
        threads = count_of(row.threads, "thread")
        found = conditions.setdefault(f"batch {row.batch_size}, {row.tokens} tokens, {threads}", {})
        # On two lines: a form is long, and labels take their width from the drawing.
        name = f"{row.model} · {row.backend}\n{row.form}"
        found.setdefault(name, (name, _STYLES[row.role], [row.p50]))
    drawings = [
        plots.dots(title, [*rows.values()], x_label="ms of a pass (p50)")
        for title, rows in conditions.items()
    ]
    return Section("latency", "Latency", benches[0].said, drawings)


def export_cards(exports: Sequence[ExportManifest]) -> list[dict[str, str]]:
    """A summary of each export: its size, and its score next to the one in torch."""
    cards = []
    for one in exports:
        lines = [f"{one.bytes / _MB:.1f} MB ({100 * one.bytes / one.torch_bytes:.0f} % of torch's)"]
        own, before = (
            scores.get("primary") for scores in (one.measured.scores, one.measured.torch_scores)
        )
        if own is not None and before is not None:
            lines.append(f"score {own:.1f} (in torch {before:.1f})")
        lines.append(one.conversion.name)
        cards.append({"title": "Exported", "big": one.folder.name, "lines": "\n".join(lines)})
    return cards


# The comparison of student and teacher on a run's page over the same pairs, queries or rows, if they
# have no classes.


_ROW_TESTS_LEAD = (
    "The student less its teacher by the primary score, on the same samples of the split: how far the choice of "
    "pairs, queries or rows explains the difference."
)


def row_tests_section(runs: Sequence[Record]) -> Section:
    """The splits of a single run whose classes, where it has any, no other section shows."""
    tests = runs[0].row_tests_alone if len(runs) == 1 else {}
    table = classes.row_test_table(tests)
    notes = [
        f"{split}: {words}."
        for split, one in tests.items()
        for words in classes.row_test_words(one, "student", "teacher")
    ]
    return Section(
        "row-tests",
        "Student and teacher compared",
        _ROW_TESTS_LEAD,
        [],
        tables=[table] if len(table.cells) > 1 else [],
        notes=notes,
    )


# Several teachers on a run's page: their scores, how often each was sampled, and the learned shares.
# SKDBERT shows the distributions in its Figures 2 and 5 to 19.


# More drawings than this are for the runs' own pages.
_MOST_RUNS = 4


def team_section(runs: Sequence[Record]) -> Section:
    """Scores, shares and, where they were learned, the course of the shares."""
    drawings: list[Panel] = []
    names: dict[str, int] = {}
    learned = False
    for run, team in [(run, run.team) for run in runs if run.team is not None][:_MOST_RUNS]:
        for member in team.members:
            names.setdefault(member.name, len(names))
        said = f"{run.method}, seed {run.seed}"
        drawings += [*_scores(said, team, names), *_shares(said, team)]
        if team.by == "adaptive":
            learned = True
            drawings.append(_course(said, run, names))
    legend = [legend_entry(name, style) for name, style in names.items()] if learned else []
    lead = (
        "Each teacher's dev score, and the score of a student distilled from it alone if there is "
        "one (the second dot), and its part in the run: its sampling probability or its weight."
    )
    return Section("team", "Teachers", lead, drawings, legend)


def _scores(said: str, team: TeamFacts, names: dict[str, int]) -> list[Panel]:
    rows = []
    for member in team.members:
        known = [value for value in (member.score, member.student_score) if value is not None]
        if known:
            rows.append((member.name, names[member.name], known))
    span = plots.SCORE_SPAN
    drawn = plots.dots(f"{said}: scores", rows, x_label="dev score", least_span=span)
    return [drawn] if rows else []


def _shares(said: str, team: TeamFacts) -> list[Panel]:
    bars = {one.name: {"share": one.share} for one in team.members if one.share is not None}
    label = "probability of being sampled" if team.use == "sample" else "weight in the mean"
    label += ", at the start" if team.by == "adaptive" else ""
    return [plots.stacks(f"{said}: {team.by}", bars, x_label=label, unit="share")] if bars else []


def _course(said: str, run: Record, names: dict[str, int]) -> Panel:
    epochs = [epoch for epoch in run.epochs if epoch.sampling_probabilities]
    x = tuple(float(epoch.epoch) for epoch in epochs)
    series = []
    for name in epochs[0].sampling_probabilities if epochs else ():
        y = tuple(float(epoch.sampling_probabilities[name] or 0) for epoch in epochs)
        series.append(plots.Series(name, names[name], x, y, y, y))
    label = "probability of being sampled"
    return plots.line_panel(f"{said}: probabilities", series, x_label="epoch", y_label=label)
