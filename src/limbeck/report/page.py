"""The page of one run or of several. Part of `limbeck.report`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from limbeck.records import Record
from limbeck.report.content import Content
from limbeck.report.sections import Section, export_cards
from limbeck.runtimes.manifest import ExportManifest
from limbeck.support.cells import duration
from limbeck.support.files import write_whole
from limbeck.support.templates import templates_of
from limbeck.tables import ResultsTable, build_table
from limbeck.tables.facts import with_bench
from limbeck.tables.model import place_title
from limbeck.tables.render import grid
from limbeck.tables.teachers import split_teachers

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
    `exports` are those of a run's student. A `table` of the same runs (`build_table`, with any profile and baseline)
    takes the place of the page's own, which tests against `finetune` where it is among several methods. `about`:
    headings with their lines, below the table. `more`: sections after the page's own.
    Raises LimbeckError for runs without anything to show, and for a place that cannot be written.
    """
    # One bench's times wherever it timed all the runs: cards and table then say the same.
    records, _ = with_bench(records)
    table = table or _own_table(records)
    _, students = split_teachers(records, table.profile)
    content = Content(records, students, table)
    sections = [*content.sections(similarity), *more]
    templates = templates_of("limbeck.report", html=True)
    templates.filters["said"] = lambda value, form="%s": "–" if value is None else form % value
    templates.filters["duration"] = lambda value: "–" if value is None else duration(value)
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
    write_whole(path, page)
    return path


def _own_table(records: Sequence[Record]) -> ResultsTable:
    """The page's own: against plain training, where it is one of several methods."""
    methods = {record.method for record in split_teachers(records, _PROFILE)[1]}
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
