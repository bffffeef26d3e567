"""The page of one run or of several: the content of each section, and the template. Part of `limbeck.report`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from limbeck.records import Record
from limbeck.records.facts import Epoch
from limbeck.records.words import (
    agreement_said,
    grouped,
    learned_nothing,
    primary_name,
    repeated_said,
    rows_said,
)
from limbeck.report import plots
from limbeck.report.plots import Level, Series, layer_map
from limbeck.report.sections import (
    Section,
    bench_section,
    classification_sections,
    export_cards,
    legend_entry,
    row_tests_section,
    team_section,
)
from limbeck.runtimes.manifest import ExportManifest
from limbeck.support import cells, files, plain, words
from limbeck.support.templates import templates_of
from limbeck.tables import ResultsTable, build_table, facts, model, teachers
from limbeck.tables.model import place_title
from limbeck.tables.render import grid

GroupKey = tuple[str, int | None]
"""Method and student layers: one line or bar of the report."""


def _group(run: Record) -> GroupKey:
    return run.method, run.student.layers


def curve(
    name: str, style: int, runs: Sequence[Record], value: Callable[[Epoch], float | None]
) -> Series | None:
    """Mean, lowest and highest over runs at each epoch; None where nothing was recorded."""
    found: dict[int, list[float]] = {}
    for run in runs:
        # Stages follow each other.
        for place, epoch in enumerate(run.epochs, start=1):
            if (number := value(epoch)) is not None:
                found.setdefault(place, []).append(number)
    if not found:
        return None
    values = [found[epoch] for epoch in sorted(found)]
    mean = tuple(map(fmean, values))
    low, high = tuple(map(min, values)), tuple(map(max, values))
    return Series(name, style, tuple(map(float, sorted(found))), mean, low, high)


SECONDS = ("student", "teacher", "evaluation", "preparation", "team")
"""Parts of a run's time; the rest, saving and measuring, is small."""


def seconds_split(runs: Sequence[Record]) -> dict[str, float]:
    """Mean seconds of a run by cause; the rest is "other". Empty if no run has them."""
    totals = [r.cost.total_seconds for r in runs if r.cost.total_seconds is not None]
    if not totals:
        return {}
    parts = {part: _mean_cost(runs, f"{part}_seconds") for part in SECONDS}
    return parts | {"other": max(0.0, fmean(totals) - sum(parts.values()))}


def flops_split(runs: Sequence[Record]) -> dict[str, float]:
    """Mean FLOPs of a run, student and teacher, in units of 10¹². Empty if no run has them."""
    if not any(run.cost.student_flops for run in runs):
        return {}
    return {side: _mean_cost(runs, f"{side}_flops") / 1e12 for side in ("student", "teacher")}


def _mean_cost(runs: Sequence[Record], field: str) -> float:
    return fmean(getattr(run.cost, field) or 0.0 for run in runs)


class Content:
    """All sections of one report; a method keeps its colour and marker throughout."""

    def __init__(
        self, records: Sequence[Record], students: Sequence[Record], table: model.ResultsTable
    ) -> None:
        self.records, self.table = records, table
        self.finished = [run for run in students if run.status == "finished"]
        self.many_sources = model.several_sources(records)
        # In the order of the table's rows, so that legend, dots and table agree.
        found = grouped(students, _group)
        order = [(row.label, row.layers) for row in table.rows if row.role == "student"]
        self.groups = {key: found[key] for key in dict.fromkeys([*order, *found]) if key in found}
        methods = list(dict.fromkeys(method for method, _ in self.groups))
        self.styles = {method: index for index, method in enumerate(methods)}
        self.many_depths = len({layers for _, layers in self.groups}) > 1

    def name(self, key: GroupKey) -> str:
        """A group's printed name; the depth only where depths differ."""
        method, layers = key
        return (
            f"{method}, {words.count_of(layers, 'layer')}"
            if self.many_depths and layers
            else method
        )

    def sections(self, similarity: Mapping[str, np.ndarray] | None) -> list[Section]:
        """The sections that have something to show, in reading order."""
        candidates = [
            self.score_section(),
            self.curve_section(),
            self.term_section(),
            similarity_section(similarity or {}),
            *classification_sections(self.finished),
            row_tests_section(self.finished),
            team_section(self.finished),
            bench_section(self.finished),
            self.cost_section(),
        ]
        return [section for section in candidates if section.drawings or section.tables]

    def cards(self) -> list[dict[str, str]]:
        """Each student depth and the teacher at a glance: score, share kept, size and speed.

        Students of one depth share a card. Where several methods made them, it shows the depth and no score:
        the table below compares methods.
        """
        teachers = [row for row in self.table.rows if row.role == "teacher"]
        teacher = teachers[0] if len(teachers) == 1 else None
        cards = []
        students = [row for row in self.table.rows if row.role == "student"]
        for depth, rows in grouped(students, lambda row: row.layers).items():
            runs = [run for run in self.finished if run.student.layers == depth]
            lines = _score_lines(runs[0]) if len(rows) == len(runs) == 1 else []
            # The facts of all methods of this depth.
            row = replace(rows[0], facts=facts.facts_of([run.student for run in runs], runs, None))
            cards.append(_card("Student", row, teacher, self._score(rows), lines))
        return cards + [_card("Teacher", row, None, self._score([row]), []) for row in teachers]

    def alerts(self) -> list[str]:
        """Facts that a reader must know before any number: scores without labels, students that predict one class."""
        found = []
        for run in self.finished:
            if (agreement := agreement_said(run.examples)) is not None:
                found.append(f"Scores of the {_titled(run)} are {agreement}: no labels were read.")
        for run in self.finished:
            if (said := learned_nothing(run)) is not None:
                found.append(f"The {_titled(run)} {said}.")
        return found

    def _score(self, rows: Sequence[model.Row]) -> str | None:
        """The one score of a card: the average, or the only column; None of several rows."""
        columns = [column for column in self.table.columns if column.in_average]
        if len(rows) != 1 or not columns:
            return None
        cell = rows[0].average if self.table.has_average else rows[0].cells.get(columns[0].key)
        return None if cell is None or cell.mean is None else f"{cell.mean:.1f}"

    def score_section(self) -> Section:
        """Every run as a dot."""
        drawings = []
        profile = self.table.profile
        # A single dot shows no more than the table.
        for column in self.table.columns if len(self.finished) > 1 else ():
            rows = []
            for key, runs in self.groups.items():
                ended = (run for run in runs if run.status == "finished")
                values = [model.values_of(run, profile).get(column.key) for run in ended]
                if known := [value for value in values if value is not None]:
                    rows.append((self.name(key), self.styles[key[0]], known))
            if rows:
                theirs = {
                    model.teacher_values(run, profile).get(column.key) for run in self.records
                }
                drawings.append(
                    plots.dots(
                        column.title,
                        rows,
                        x_label="dev score" if column.in_average else "score",
                        reference=_teacher(theirs),
                        least_span=plots.SCORE_SPAN,
                    )
                )
        lead = "One dot is one run; the bar is the mean over seeds; dashed, the teacher."
        return Section("scores", "Scores, run by run", lead, drawings)

    def curve_section(self) -> Section:
        """Dev score by epoch."""
        drawings = []
        for title, runs in self._panels():
            if found := self._series(runs, lambda epoch: epoch.dev.get("primary")):
                scores = [run.teacher.scores.get("dev", {}) for run in runs if run.teacher]
                drawings.append(
                    plots.line_panel(
                        title,
                        found,
                        x_label="epoch",
                        y_label="primary dev score",
                        reference=_teacher({one.get("primary") for one in scores}),
                        least_span=plots.SCORE_SPAN,
                    )
                )
        lead = "Mean over seeds; the band reaches from the lowest to the highest seed."
        return Section("curves", "Learning curves", lead, drawings, self.legend())

    def term_section(self) -> Section:
        """Each named training term by epoch, the total loss first."""
        drawings = []
        for title, runs in self._panels():
            names = {term: None for run in runs for epoch in run.epochs for term in epoch.train}
            for term in sorted(names, key=lambda term: term != "loss"):
                if found := self._series(
                    runs, partial(lambda term, epoch: epoch.train.get(term), term)
                ):
                    name = "total loss" if term == "loss" else term
                    drawings.append(
                        plots.line_panel(f"{title}: {name}", found, x_label="epoch", y_label=name)
                    )
        lead = "Mean training loss of each epoch, and every named term of it, over seeds."
        title = "Training loss, term by term"
        return Section("terms", title, lead, drawings, self.legend(), "small")

    def cost_section(self) -> Section:
        """Seconds and FLOPs by cause."""
        finished = grouped(self.finished, _group)
        named = {self.name(key): finished[key] for key in self.groups if key in finished}
        drawings = []
        for title, label, unit, split in (
            ("Time of one run", "seconds, mean over runs", "s", seconds_split),
            ("Work of one run", "10¹² FLOPs, mean over runs", "TFLOP", flops_split),
        ):
            if bars := {name: parts for name, runs in named.items() if (parts := split(runs))}:
                drawings.append(plots.stacks(title, bars, x_label=label, unit=unit))
        shown = (*SECONDS, "other")
        legend = [legend_entry(part, index, patch=True) for index, part in enumerate(shown)]
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

    def recipes(self) -> list[dict[str, str]]:
        """Each method's recipe as YAML, from its first run; the seed is the only thing left out."""
        shown: dict[str, dict[str, str]] = {}
        for run in self.records:
            recipe = {key: value for key, value in run.recipe.items() if key != "seed"}
            text = plain.write_yaml(recipe, width=88)
            if recipe and text not in shown:
                layers = run.student.layers
                depth = f", {words.count_of(layers, 'layer')}" if layers else ""
                name = f"{run.method}, {model.place_title(run, self.many_sources)}{depth}"
                shown[text] = {"name": name, "text": text}
        return list(shown.values())

    def surroundings(self) -> list[tuple[str, str]]:
        """Versions and hardware, and facts about the rows; if runs differ, every value."""
        found: dict[str, dict[str, None]] = {}
        for run in self.records:
            said = [
                (key.replace("_", " "), one) for key, one in (run.versions | run.hardware).items()
            ]
            said.append(("training rows", rows_said(run.examples)))
            said += [("scored rows", one.rstrip(".")) for one in repeated_said(run.examples)]
            for key, value in said:
                if value is not None:
                    found.setdefault(key, {})[str(value)] = None
        return [(key, "; ".join(values)) for key, values in found.items()]

    def _panels(self) -> Iterator[tuple[str, list[Record]]]:
        """Finished runs by task, data and depth, in the order of the table's columns, titled."""
        found = grouped(self.finished, model.place_of)
        order = dict.fromkeys(column.place for column in self.table.columns)
        depths = sorted({layers for _, layers in self.groups}, key=lambda layers: -(layers or 0))
        for place in (*order, *(found.keys() - order)):
            for depth in depths:
                own = [run for run in found.get(place, []) if run.student.layers == depth]
                if own:
                    shown = (
                        f", {words.count_of(depth, 'layer')}" if self.many_depths and depth else ""
                    )
                    yield model.place_title(own[0], self.many_sources) + shown, own

    def _series(
        self, runs: Sequence[Record], value: Callable[[Epoch], float | None]
    ) -> list[Series]:
        found = [
            curve(method, style, [run for run in runs if run.method == method], value)
            for method, style in self.styles.items()
        ]
        return [series for series in found if series is not None]


def similarity_section(similarity: Mapping[str, np.ndarray]) -> Section:
    """One heat map a student."""
    lead = (
        "How alike each student layer (rows) and each teacher layer (columns) represent the same "
        "examples; the nearer to 1, the more alike."
    )
    return Section(
        "similarity",
        "Layer similarity",
        lead,
        [layer_map(label, matrix) for label, matrix in similarity.items()],
        layout="wide" if any(matrix.shape[1] > 12 for matrix in similarity.values()) else "",
    )


def _teacher(scores: Iterable[float | None]) -> Level:
    """The teacher's score, where all runs share one."""
    known = {score for score in scores if score is not None}
    return ("teacher", known.pop()) if len(known) == 1 else None


def _titled(run: Record) -> str:
    layers = f" of {words.count_of(run.student.layers, 'layer')}" if run.student.layers else ""
    if run.kind == "distill":
        return f"student{layers} by {run.method}, seed {run.seed}"
    return f"model{layers}"


def _score_lines(run: Record) -> list[str]:
    """What the score in large type is, the share kept, and the scores of rows that did not select the student."""
    lines = (
        [f"{primary_name(run.scores['dev']).replace('_', ' ')} on dev"]
        if "dev" in run.scores
        else []
    )
    if run.kept is not None:
        lines.append(f"{100 * run.kept.share:.1f} % of the teacher's score ({run.kept.interval})")
    if (test := run.scores.get("test", {}).get("primary")) is not None:
        lines.append(f"{test:.1f} on test")
    return lines


def _card(
    title: str, row: model.Row, teacher: model.Row | None, score: str | None, lines: list[str]
) -> dict[str, str]:
    """Title, the score in large type (the depth where there is no single score), and a line for each fact."""
    depth = words.count_of(row.layers, "layer") if row.layers else None
    for name, noun in (("parameters", "parameters"), ("flops", "FLOPs per example")):
        value, other = (
            None if one is None or name not in one.facts else one.facts[name].value
            for one in (row, teacher)
        )
        if value is not None:
            share = f" ({100 * value / other:.0f} %)" if other else ""
            size = f", {4 * value / 1e6:.1f} MB in float32" if name == "parameters" else ""
            lines = [*lines, f"{facts.FACTS[name].text(value)} {noun}{size}{share}"]
    if (latency := row.facts.get("latency")) is not None and latency.value is not None:
        ratio = row.facts["speedup"].value if teacher is not None else None
        said = f" ({ratio:.1f} × the teacher's speed)" if ratio else ""
        lines = [*lines, f"{facts.FACTS['latency'].text(latency.value)} ms{said}"]
    if score is None:
        return {"title": title, "big": depth or title, "lines": "\n".join(lines)}
    head = f"{title}, {depth}" if depth else title
    return {"title": head, "big": score, "lines": "\n".join(lines)}


_FACTS = ("layers", "parameters", "flops", "latency", "speedup", "kept")
_PROFILE = "glue"
REPORT_NAME = "report.html"


def write_report(
    records: Sequence[Record],
    out_path: str | Path,
    *,
    title: str = "Distillation report",
    similarity: Mapping[str, np.ndarray] | None = None,
    exports: Sequence[ExportManifest] = (),
    table: ResultsTable | None = None,
    about: Sequence[tuple[str, Sequence[str]]] = (),
    more: Sequence[Section] = (),
) -> Path:
    """Write the report of one run or of several and return its path.

    The page holds its style and drawings and asks the network for nothing, so it can be mailed and archived.
    `out_path` is a file, or a folder that gets `report.html`. `similarity` maps a label (a student)
    to a matrix of student layers by teacher layers, as `limbeck.evaluation.similarity_matrix` gives.
    `exports` belong to a run's student. A `table` of the same runs (`build_table`, with any profile and baseline)
    replaces the page's own, which tests against `finetune` if it is among several methods. `about`:
    headings with their lines, below the table. `more`: sections after the page's own.
    Raises LimbeckError for runs without anything to show, and for a place that cannot be written.
    """
    # One bench's times wherever it timed all the runs: cards and table then agree.
    records, _ = facts.with_bench(records)
    table = table or _own_table(records)
    _, students = teachers.split_teachers(records, table.profile)
    content = Content(records, students, table)
    sections = [*content.sections(similarity), *more]
    templates = templates_of("limbeck.report", html=True)
    templates.filters["said"] = lambda value, form="%s": "–" if value is None else form % value
    templates.filters["duration"] = lambda value: "–" if value is None else cells.duration(value)
    page = templates.get_template("report.html.j2").render(
        title=title,
        subtitle=_subtitle(records, table.profile if table.follows_profile else None),
        alerts=content.alerts(),
        cards=[*content.cards(), *export_cards(exports)],
        table=table,
        grid=grid(table),
        about=about,
        sections=sections,
        runs=records,
        where=lambda run: place_title(run, content.many_sources),
        recipes=content.recipes(),
        surroundings=content.surroundings(),
    )
    path = Path(out_path)
    if path.is_dir() or not path.suffix:
        path /= REPORT_NAME
    files.write_whole(path, page)
    return path


def write_sections(
    path: Path, sections: Sequence[Section], *, title: str, subtitle: str, footer: str
) -> None:
    """Write a page of sections alone, without any run's records."""
    template = templates_of("limbeck.report", html=True).get_template("sections.html.j2")
    said = {"title": title, "subtitle": subtitle, "footer": footer}
    files.write_whole(path, template.render(sections=sections, **said))


def _own_table(records: Sequence[Record]) -> ResultsTable:
    """The page's own: against plain training, where it is one of several methods."""
    methods = {record.method for record in teachers.split_teachers(records, _PROFILE)[1]}
    baseline = "finetune" if "finetune" in methods and len(methods) > 1 else None
    table = build_table(records, profile=_PROFILE, baseline=baseline, facts=_FACTS)
    return replace(table, title="Results")


def _subtitle(records: Sequence[Record], profile: str | None) -> str:
    counts = {
        status: sum(record.status == status for record in records)
        for status in ("finished", "failed", "running")
    }
    said = [f"{n} {status}" for status, n in counts.items() if n]
    runs = "1 run" if len(records) == 1 else f"{len(records)} runs"
    sources = sorted({record.data for record in records})
    follows = f" · profile {profile}" if profile is not None else ""
    return f"{runs} ({', '.join(said)}) · data: {', '.join(sources)}{follows}"
