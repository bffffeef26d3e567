"""What the report says, section by section, ready for the template.

Part of `limbeck.report`: records and a table in, plain strings, numbers and drawings out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from limbeck.records import Record
from limbeck.records.words import agreement_said, one_answer, repeated_said, rows_said
from limbeck.report import gather, plots
from limbeck.report.maps import heat_map
from limbeck.report.own_sections import Section, legend_entry
from limbeck.report.sections import (
    bench_section,
    classification_sections,
    row_tests_section,
    team_section,
)
from limbeck.support.plain import write_yaml
from limbeck.support.words import count_of
from limbeck.tables.cells import FACTS, duration, facts_of
from limbeck.tables.model import (
    ResultsTable,
    Row,
    place_title,
    several_sources,
    teacher_values,
    values_of,
)

# More drawings of one kind than this are for a table, not for the eye.
_MOST_DRAWS = 6


class Content:
    """All sections of one report; a method keeps its colour and marker throughout."""

    def __init__(
        self, records: Sequence[Record], students: Sequence[Record], table: ResultsTable
    ) -> None:
        self.records, self.table = records, table
        self.students = students
        self.finished = [run for run in students if run.status == "finished"]
        self.many_sources = several_sources(records)
        # In the order of the table's rows, so that legend, dots and table agree.
        self.groups: dict[gather.GroupKey, list[Record]] = {}
        found = gather.by_group(students)
        for row in table.rows:
            for key, runs in found.items():
                if row.role == "student" and key[0] == row.label and key[1] == row.layers:
                    self.groups[key] = runs
        self.groups |= {key: runs for key, runs in found.items() if key not in self.groups}
        methods = list(dict.fromkeys(method for method, _ in self.groups))
        self.styles = {method: index for index, method in enumerate(methods)}
        self.many_depths = len({layers for _, layers in self.groups}) > 1

    def name(self, key: gather.GroupKey) -> str:
        """A group's printed name; the depth only where depths differ."""
        method, layers = key
        return f"{method}, {count_of(layers, 'layer')}" if self.many_depths and layers else method

    def sections(self, similarity: Mapping[str, np.ndarray] | None) -> list[Section]:
        """The sections that have something to show, in reading order."""
        candidates = [
            self.score_section(),
            self.curve_section(),
            self.term_section(),
            similarity_section(similarity or {}),
            self.draw_section(),
            *classification_sections(self.finished),
            row_tests_section(self.finished),
            team_section(self.finished),
            bench_section(self.finished),
            self.cost_section(),
        ]
        return [section for section in candidates if section.drawings or section.tables]

    def cards(self) -> list[dict[str, str]]:
        """The teacher and each student depth at a glance: score, share kept, size and speed.

        Students of one depth share a card. Where several methods made them, it shows the depth and no score:
        the table below compares methods.
        """
        teachers = [row for row in self.table.rows if row.role == "teacher"]
        teacher = teachers[0] if len(teachers) == 1 else None
        cards = [
            _card("Teacher", row, None, self._score([row]), [_latency(row)]) for row in teachers
        ]
        depths: dict[int | None, list[Row]] = {}
        for row in self.table.rows:
            if row.role == "student":
                depths.setdefault(row.layers, []).append(row)
        cards += [
            _card(
                "Student",
                rows[0],
                teacher,
                self._score(rows),
                [self._kept(rows), self._speed(depth, teacher)],
            )
            for depth, rows in depths.items()
        ]
        return cards

    def alerts(self) -> list[str]:
        """What a reader must know before any number: students that predict one class for every row."""
        said = {_titled(run): agreement_said(run.examples) for run in self.finished}
        return [
            f"Scores of the {title} are {agreement}: no labels were read."
            for title, agreement in said.items()
            if agreement is not None
        ] + [
            f"The {_titled(run)} predicts {only!r} for every dev row: it has learned nothing. Train it longer or at a "
            "higher rate, and look at the learning curves below."
            for run in self.finished
            if (only := one_answer(run)) is not None
        ]

    def _score(self, rows: Sequence[Row]) -> str | None:
        """The one score of a card: the average, or the only column; None of several rows."""
        columns = [column for column in self.table.columns if column.in_average]
        if len(rows) != 1 or not columns:
            return None
        cell = rows[0].average if self.table.has_average else rows[0].cells.get(columns[0].key)
        return None if cell is None or cell.mean is None else f"{cell.mean:.1f}"

    def _kept(self, rows: Sequence[Row]) -> str | None:
        """The share of the teacher's score that a single run kept, with its interval."""
        runs = [run for run in self.finished if run.student.layers == rows[0].layers]
        if len(rows) != 1 or len(runs) != 1 or (kept := runs[0].kept) is None:
            return None
        return (
            f"{100 * kept.share:.1f} % of the teacher's score "
            f"({100 * kept.level:.0f} % interval {100 * kept.low:.1f} to {100 * kept.high:.1f})"
        )

    def _speed(self, depth: int | None, teacher: Row | None) -> str | None:
        """Latency over all runs of a depth, and the ratio to the teacher that each timed in turns."""
        runs = [run for run in self.finished if run.student.layers == depth]
        facts = facts_of([run.student for run in runs], runs, None)
        value, ratio = facts["latency"].value, facts["speedup"].value
        if value is None:
            return None
        said = f" ({ratio:.1f} × the teacher's speed)" if ratio and teacher else ""
        return f"{FACTS['latency'].text(value)} ms{said}"

    def score_section(self) -> Section:
        """Every run as a dot."""
        drawings = []
        # A single dot says no more than the table.
        for column in self.table.columns if len(self.finished) > 1 else ():
            rows = []
            for key, runs in self.groups.items():
                values = [
                    value
                    for run in runs
                    if run.status == "finished"
                    and (value := values_of(run, self.table.profile).get(column.key)) is not None
                ]
                if values:
                    rows.append((self.name(key), self.styles[key[0]], values))
            if rows:
                drawings.append(
                    plots.dots(
                        column.title,
                        rows,
                        x_label="dev score" if column.in_average else "score",
                        reference=self.teacher_level(column.key),
                        least_span=plots.SCORE_SPAN,
                    )
                )
        lead = "One dot is one run; the bar is the mean over seeds; dashed, the teacher."
        return Section("scores", "Scores, run by run", lead, drawings)

    def curve_section(self) -> Section:
        """Dev score by epoch."""
        drawings = []
        for title, runs in self._panels():
            found = self._series(runs, lambda epoch: epoch.dev.get("primary"))
            if found:
                drawings.append(
                    plots.lines(
                        title,
                        found,
                        x_label="epoch",
                        y_label="primary dev score",
                        reference=_primary_of_teacher(runs),
                        least_span=plots.SCORE_SPAN,
                    )
                )
        lead = "Mean over seeds; the band reaches from the lowest to the highest seed."
        return Section("curves", "Learning curves", lead, drawings, self.legend())

    def term_section(self) -> Section:
        """Each named training term by epoch."""
        drawings = []
        for title, runs in self._panels():
            for term in gather.term_names(runs):
                found = self._series(runs, lambda epoch, term=term: epoch.train.get(term))
                if found:
                    name = "total loss" if term == "loss" else term
                    drawings.append(
                        plots.lines(f"{title}: {name}", found, x_label="epoch", y_label=name)
                    )
        lead = "Mean training loss of each epoch, and every named term of it, over seeds."
        return Section(
            "terms", "Training loss, term by term", lead, drawings, self.legend(), "small"
        )

    def draw_section(self) -> Section:
        """Teacher layers of the runs whose mapping changes."""
        drawings: list[str] = []
        student_layers: set[int] = set()
        more = 0
        for run in self.finished:
            for objective, epochs in gather.draws(run).items():
                if len(drawings) >= _MOST_DRAWS:
                    more += 1
                    continue
                student_layers |= {student for _, pairs in epochs for student, _ in pairs}
                where = place_title(run, self.many_sources)
                total = run.teacher.layers if run.teacher else None
                said = f"{run.method} ({objective}), {where}, seed {run.seed}"
                drawings.append(plots.active_layers(said, epochs, total))
        lead = "Which teacher layer taught each student layer, epoch by epoch."
        if more:
            lead += f" {more} more in the runs' records."
        legend = [
            legend_entry(f"student layer {slot}", slot - 1) for slot in sorted(student_layers)
        ]
        return Section("draws", "Layers sampled at random", lead, drawings, legend, "small")

    def cost_section(self) -> Section:
        """Seconds and FLOPs by what they went into."""
        finished = gather.by_group(self.finished)
        names = {key: self.name(key) for key in self.groups if key in finished}
        drawings = []
        for title, label, unit, split in (
            ("Time of one run", "seconds, mean over runs", "s", gather.seconds_split),
            ("Work of one run", "10¹² FLOPs, mean over runs", "TFLOP", gather.flops_split),
        ):
            bars = [bar for key in names if (bar := split(names[key], finished[key])) is not None]
            if bars:
                drawings.append(plots.stacks(title, bars, x_label=label, unit=unit))
        parts = (*gather.SECONDS, "other")
        legend = [legend_entry(part, index, patch=True) for index, part in enumerate(parts)]
        lead = (
            "Where a training run's time and arithmetic went; a multiply-add counts as 2 FLOPs. "
            "Other: saving and measuring."
        )
        return Section("cost", "Cost", lead, drawings, legend)

    def legend(self) -> list[dict[str, Any]]:
        """One entry a method that finished."""
        alive = {run.method for run in self.finished}
        return [
            legend_entry(method, style) for method, style in self.styles.items() if method in alive
        ]

    def teacher_level(self, column: str) -> tuple[str, float] | None:
        """The teacher's score in a column, where all runs share one."""
        values = {
            known[column]
            for run in self.records
            if column in (known := teacher_values(run, self.table.profile))
        }
        return ("teacher", values.pop()) if len(values) == 1 else None

    def runs(self) -> list[dict[str, str]]:
        """Every run in a line, the failed ones included."""
        return [
            {
                "method": run.method,
                "where": place_title(run, self.many_sources),
                "layers": "–" if run.student.layers is None else str(run.student.layers),
                "seed": str(run.seed),
                "score": _number(run.primary_score()),
                "best": str(run.best.epoch) if run.best else "–",
                "epochs": str(len(run.epochs)),
                "time": "–" if run.cost.total_seconds is None else duration(run.cost.total_seconds),
                "status": run.status,
                "error": run.error or "",
            }
            for run in self.records
        ]

    def recipes(self) -> list[dict[str, str]]:
        """Each method's recipe as YAML, from its first run; the seed is the only thing left out."""
        shown: dict[str, dict[str, str]] = {}
        for run in self.records:
            recipe = {key: value for key, value in run.recipe.items() if key != "seed"}
            text = write_yaml(recipe, width=88)
            if recipe and text not in shown:
                depth = f", {count_of(run.student.layers, 'layer')}" if run.student.layers else ""
                name = f"{run.method}, {place_title(run, self.many_sources)}{depth}"
                shown[text] = {"name": name, "text": text}
        return list(shown.values())

    def surroundings(self) -> list[tuple[str, str]]:
        """Versions and hardware, and what is to be known of the rows; where runs differ, every value."""
        found: dict[str, dict[str, None]] = {}
        for run in self.records:
            for source in (run.versions, run.hardware):
                for key, value in source.items():
                    if value is not None:
                        found.setdefault(key.replace("_", " "), {})[str(value)] = None
            if (rows := rows_said(run.examples)) is not None:
                found.setdefault("training rows", {})[rows] = None
            for said in repeated_said(run.examples):
                found.setdefault("scored rows", {})[said.rstrip(".")] = None
        return [(key, "; ".join(values)) for key, values in found.items()]

    def _panels(self) -> list[tuple[str, list[Record]]]:
        """Finished runs by task, data and depth, in the order of the table's columns, titled."""
        found = gather.by_place(self.finished)
        order = dict.fromkeys(column.place for column in self.table.columns)
        panels = []
        for place in (*order, *(found.keys() - order)):
            runs = found.get(place, [])
            depths = {layers for (_, layers) in self.groups}
            for depth in sorted(depths, key=lambda layers: -(layers or 0)):
                own = [run for run in runs if run.student.layers == depth]
                if own:
                    title = place_title(own[0], self.many_sources)
                    shown = f", {count_of(depth, 'layer')}" if self.many_depths and depth else ""
                    panels.append((title + shown, own))
        return panels

    def _series(self, runs: Sequence[Record], value: Any) -> list[plots.Series]:
        found = [
            gather.curve(method, style, [run for run in runs if run.method == method], value)
            for method, style in self.styles.items()
        ]
        return [series for series in found if series is not None]


def similarity_section(similarity: Mapping[str, np.ndarray]) -> Section:
    """One heat map a student."""
    drawings = [heat_map(label, matrix) for label, matrix in similarity.items()]
    lead = (
        "How alike each student layer (rows) and each teacher layer (columns) represent the same "
        "examples; the nearer to 1, the more alike."
    )
    wide = any(np.asarray(matrix).shape[1] > 12 for matrix in similarity.values())
    return Section("similarity", "Layer similarity", lead, drawings, layout="wide" if wide else "")


def _latency(row: Row) -> str | None:
    fact = row.facts.get("latency")
    return None if fact is None or fact.value is None else f"{FACTS['latency'].text(fact.value)} ms"


def _titled(run: Record) -> str:
    layers = f" of {count_of(run.student.layers, 'layer')}" if run.student.layers else ""
    return (
        f"student{layers} by {run.method}, seed {run.seed}"
        if run.kind == "distill"
        else f"model{layers}"
    )


def _card(
    title: str, row: Row, teacher: Row | None, score: str | None, more: Sequence[str | None]
) -> dict[str, str]:
    """Title, the score in large type (the depth where there is no single score), and a line for each fact."""

    def fact(source: Row, name: str) -> float | None:
        known = source.facts.get(name)
        return known.value if known else None

    depth = count_of(row.layers, "layer") if row.layers else None
    lines = [line for line in more[:-1] if line is not None]
    for name, noun in (("parameters", "parameters"), ("flops", "FLOPs per example")):
        value = fact(row, name)
        if value is None:
            continue
        other = fact(teacher, name) if teacher else None
        share = f" ({100 * value / other:.0f} %)" if other else ""
        lines.append(f"{FACTS[name].text(value)} {noun}{share}")
    if more[-1] is not None:
        lines.append(more[-1])
    if score is None:
        return {"title": title, "big": depth or title, "lines": "\n".join(lines)}
    return {
        "title": f"{title}, {depth}" if depth else title,
        "big": score,
        "lines": "\n".join(lines),
    }


def _primary_of_teacher(runs: Sequence[Record]) -> tuple[str, float] | None:
    values = {
        value
        for run in runs
        if run.teacher and (value := run.teacher.scores.get("dev", {}).get("primary")) is not None
    }
    return ("teacher", values.pop()) if len(values) == 1 else None


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
