"""What a run's page shows of predictions of classes: scores, confusion, calibration, disagreements.

Part of `limbeck.report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from limbeck.evaluation.calibration import Bin
from limbeck.records import ClassificationScores, ModelScores, Record, TeamFacts
from limbeck.report import plots
from limbeck.report.own_sections import Section, SectionTable, legend_entry
from limbeck.report.plots import confusion_map, reliability
from limbeck.runtimes import ExportManifest
from limbeck.tables import classes as cells
from limbeck.tables.classes import row_test_cells, row_test_words

_LEAD = (
    "The student beside its teacher, class by class. Reliability: bars are the share of right predictions among those "
    "made with a probability in that range, the fuller the range, the darker; marks are the mean probability, and "
    "dashed is what would be exact. Confusion: rows by label and prediction, coloured by the share of the label's rows."
)
_BY_TEACHER = (
    "Class by class, where a class is the one that the teacher predicts. Confusion: rows by the teacher's prediction "
    "and the student's, coloured by the share of the rows of a teacher's prediction."
)
_ALONE = _LEAD.replace("The student beside its teacher, class by class.", "Class by class.")


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
    tests = run.row_tests.get(split)
    tables = [
        SectionTable(f"All classes, {found.rows:,} rows", cells.whole_cells(found)),
        SectionTable("By class", cells.class_cells(found)),
    ]
    counted = cells.count_cells(found)
    if counted is not None:
        tables.append(SectionTable("Answers by class", counted))
    if found.disagreements:
        shown = cells.disagreement_cells(found)
        words = tuple(range(1, len(shown[0])))
        tables.append(SectionTable("Where student and teacher disagree most", shown, words))
    models = [("Student", found.student)]
    if found.teacher is not None:
        models.append(("Teacher", found.teacher))
    drawings = [drawing for name, model in models for drawing in _reliability(name, model)]
    drawings += [drawing for name, model in models for drawing in _confusion(name, found, model)]
    agreement = cells.agreement_words(found)
    notes = [agreement] if agreement is not None else []
    notes += cells.row_test_words(tests, "student", "teacher") if tests is not None else []
    notes += cells.tie_words(found) + cells.threshold_words(run.thresholds)
    if found.student.calibration_error is not None:
        notes.append(
            f"Expected calibration error: over {len(found.student.reliability)} equally wide bins of the predictions' "
            "probabilities, the mean distance of accuracy and mean probability, weighted by rows."
        )
    lead = _LEAD if found.teacher is not None else _ALONE
    if found.labels == "teacher":
        lead = _BY_TEACHER
    if found.student.micro_f1 is not None:
        lead = lead.partition(" Confusion:")[0]
    return Section(key, f"Classes on {split}", lead, drawings, tables=tables, notes=notes)


def _reliability(name: str, model: ModelScores) -> list[str]:
    if model.calibration_error is None:
        return []
    bins = [
        Bin(
            point.low,
            point.high,
            point.rows,
            np.nan if point.confidence is None else point.confidence,
            np.nan if point.accuracy is None else point.accuracy,
        )
        for point in model.reliability
    ]
    return [reliability(f"{name}: reliability", bins, model.calibration_error / 100)]


def _confusion(name: str, found: ClassificationScores, model: ModelScores) -> list[str]:
    if model.confusion is None or len(model.confusion) > cells.MOST_SHOWN:
        return []
    columns = cells.predicted_names(found, model)
    return [
        confusion_map(
            f"{name}: confusion",
            found.names,
            columns,
            np.array(model.confusion),
            down="label" if found.labels is None else "teacher",
        )
    ]


# What a bench and the exports add to a run's page.


_MB = 1e6
_STYLES = {"teacher": 0, "student": 1, "export": 2}


def bench_section(runs: Sequence[Record]) -> Section:
    """The last bench's times, one drawing a condition; of several runs only where one bench timed them all."""
    benches = {run.bench.identity: run.bench for run in runs if run.bench is not None}
    drawings: list[str] = []
    lead = ""
    if len(benches) == 1 and all(run.bench is not None for run in runs):
        (bench,) = benches.values()
        conditions: dict[tuple[int, int, int], dict[str, tuple[str, int, list[float]]]] = {}
        for run in runs:
            assert run.bench is not None
            for row in run.bench.rows:
                found = conditions.setdefault((row.batch_size, row.tokens, row.threads), {})
                # On two lines: a form is long, and labels take their width from the drawing.
                name = f"{row.model} · {row.backend}\n{row.form}"
                found.setdefault(name, (name, _STYLES[row.role], [row.p50]))
        for (batch, tokens, threads), rows in conditions.items():
            plural = "s" if threads > 1 else ""
            title = f"batch {batch}, {tokens} tokens, {threads} thread{plural}"
            drawings.append(plots.dots(title, [*rows.values()], x_label="ms of a pass (p50)"))
        lead = f"Timed in turns by one bench ({bench.identity}, {bench.when}) on {bench.processor}."
        lead += bench.caution
    return Section("latency", "Latency", lead, drawings)


def export_cards(exports: Sequence[ExportManifest]) -> list[dict[str, str]]:
    """Each export at a glance: its size, and its score beside that in torch."""
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


# What a run's page shows of student and teacher over the same pairs, queries or rows, where they
# have no classes.


_ROW_TESTS_LEAD = (
    "The student less its teacher by the primary score, on the same samples of the split: how far the choice of "
    "pairs, queries or rows explains the difference."
)


def row_tests_section(runs: Sequence[Record]) -> Section:
    """The splits of a single run whose classes, where it has any, no other section shows."""
    tests = runs[0].row_tests_alone if len(runs) == 1 else {}
    if not any(one.difference is not None for one in tests.values()):
        return Section("row-tests", "", "", [])
    notes = [
        f"{split}: {words}."
        for split, one in tests.items()
        for words in row_test_words(one, "student", "teacher")
    ]
    table = SectionTable("Student less teacher", row_test_cells(tests))
    return Section(
        "row-tests",
        "Student and teacher compared",
        _ROW_TESTS_LEAD,
        [],
        tables=[table],
        notes=notes,
    )


# Several teachers on a run's page: how good each is, how often it was asked, what was learned.
# SKDBERT shows the distributions in its Figures 2 and 5 to 19.


# More drawings than this are for the runs' own pages.
_MOST_RUNS = 4


def team_section(runs: Sequence[Record]) -> Section:
    """Scores, shares and, where they were learned, the course of the shares."""
    drawings: list[str] = []
    names: dict[str, int] = {}
    shown = [run for run in runs if run.team is not None][:_MOST_RUNS]
    for run in shown:
        assert run.team is not None  # chosen for it
        for member in run.team.members:
            names.setdefault(member.name, len(names))
        said = f"{run.method}, seed {run.seed}"
        drawings += [*_scores(said, run.team, names), *_shares(said, run.team)]
        if run.team.by == "adaptive":
            drawings.append(_course(said, run, names))
    learned = any(run.team and run.team.by == "adaptive" for run in shown)
    legend: list[dict[str, Any]] = []
    if learned:
        legend = [legend_entry(name, style) for name, style in names.items()]
    lead = (
        "Each teacher's dev score, with that of a student distilled from it alone where there is "
        "one (the second dot), and its part in the run: its sampling probability or its weight."
    )
    return Section("team", "Teachers", lead, drawings, legend)


def _scores(said: str, team: TeamFacts, names: dict[str, int]) -> list[str]:
    rows = []
    for member in team.members:
        known = [value for value in (member.score, member.student_score) if value is not None]
        if known:
            rows.append((member.name, names[member.name], known))
    return (
        [plots.dots(f"{said}: scores", rows, x_label="dev score", least_span=plots.SCORE_SPAN)]
        if rows
        else []
    )


def _shares(said: str, team: TeamFacts) -> list[str]:
    known = [member for member in team.members if member.share is not None]
    bars = [
        plots.StackedBars(member.name, (("share", float(member.share or 0)),)) for member in known
    ]
    if not bars:
        return []
    label = "probability of being sampled" if team.use == "sample" else "weight in the mean"
    label += ", at the start" if team.by == "adaptive" else ""
    return [plots.stacks(f"{said}: {team.by}", bars, x_label=label, unit="share")]


def _course(said: str, run: Record, names: dict[str, int]) -> str:
    epochs = [epoch for epoch in run.epochs if epoch.sampling_probabilities]
    series = []
    for name in epochs[0].sampling_probabilities if epochs else ():
        x = tuple(float(epoch.epoch) for epoch in epochs)
        y = tuple(float(epoch.sampling_probabilities[name] or 0) for epoch in epochs)
        series.append(plots.Series(name, names[name], x, y, y, y))
    return plots.lines(
        f"{said}: probabilities", series, x_label="epoch", y_label="probability of being sampled"
    )
