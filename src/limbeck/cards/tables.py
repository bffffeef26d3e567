"""The tables of a card: scores, classes, speed, exports, training. Part of `limbeck.cards`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from limbeck.cards.card_settings import METRICS
from limbeck.cards.facts import StudentFacts, public_name, teacher_names
from limbeck.records import Record
from limbeck.records.facts import Latency, ModelFacts
from limbeck.records.words import rows_said, teacher_scores
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.words import count_of
from limbeck.tables import build_table, collect, render
from limbeck.tables.cells import decimal, duration, magnitude, milliseconds, one_line
from limbeck.tables.model import place_of
from limbeck.tasks import TASKS

Cells = list[list[str]]
"""Headings, then rows."""

_MB = 1e6


def as_markdown(cells: Cells, words: int = 1) -> str:
    """A table whose first columns are text and whose others are numbers."""
    heading, *rows = [[in_markdown(cell) for cell in row] for row in cells]
    rule = [":---"] * words + ["---:"] * (len(heading) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in (heading, rule, *rows))


def in_markdown(text: str) -> str:
    """The text in one line without markup: names of classes come from files, and must not end a row or open a tag."""
    return re.sub(r"[|`*\[\]]", r"\\\g<0>", one_line(text)).replace("<", "&lt;")


def score_table(record: Record, splits: Sequence[str]) -> Cells:
    """Every metric of every split, the teacher's beside it where it is known, and what words alone reach."""
    theirs = teacher_scores(record)
    floor = {} if record.floor is None else record.floor.scores
    taught = any(theirs.get(split) for split in splits)
    beneath = any(floor.get(split) for split in splits)
    heading = ["split", "metric", *(["words alone"] if beneath else [])]
    heading += [*(["teacher"] if taught else []), "student"]
    cells = [[*heading, *(["share kept"] if taught else [])]]
    for split in splits:
        for metric, value in record.scores[split].items():
            if metric == "primary" and _is_single(record):
                continue
            row = [split, _metric(record, metric)]
            row += [decimal(floor.get(split, {}).get(metric))] if beneath else []
            other = theirs.get(split, {}).get(metric)
            row += [decimal(other)] if taught else []
            row.append(decimal(value))
            if taught:
                known = other is not None and value is not None and other > 0
                row.append(f"{100 * value / other:.1f} %" if known else "–")  # type: ignore[operator]  # `known` says that both are numbers
            cells.append(row)
    return cells


def _is_single(record: Record) -> bool:
    task = TASKS.get(record.task)
    return task is not None and "+" not in task.primary


def _metric(record: Record, metric: str) -> str:
    if metric != "primary":
        return METRICS.get(metric, metric.replace("_", " "))
    task = TASKS.get(record.task)
    if task is None:
        return "primary"
    return "mean of " + " and ".join(METRICS.get(name, name) for name in task.primary.split("+"))


def size_table(student: StudentFacts) -> Cells:
    """Teacher and student: layers, width, parameters, FLOPs, bytes."""
    record = student.record
    models: list[tuple[str, ModelFacts, str]] = []
    if record.teacher is not None:
        models.append(("teacher", record.teacher, _megabytes(4 * (record.teacher.parameters or 0))))
    models.append(("this model", record.student, _megabytes(student.bytes)))
    cells = [["", "layers", "hidden size", "parameters", "MB (fp32)", "FLOPs / example"]]
    for name, facts, size in models:
        counts = [facts.layers, facts.hidden_size]
        cells.append(
            [
                name,
                *("–" if count is None else str(count) for count in counts),
                "–" if facts.parameters is None else magnitude(facts.parameters),
                size,
                "–" if facts.flops_per_example is None else magnitude(facts.flops_per_example),
            ]
        )
    return cells


def latency_table(record: Record) -> Cells | None:
    """The last bench's lines, else what the run timed itself; None where nothing was timed."""
    if record.bench is not None and record.bench.rows:
        heading = ["model", "backend", "form", "batch", "tokens", "threads", "p50 ms", "p95 ms"]
        cells = [[*heading, "rows/s", "memory MiB"]]
        for row in record.bench.rows:
            cells.append(
                [
                    "this model" if row.role != "teacher" else "teacher",
                    row.backend,
                    row.form,
                    str(row.batch_size),
                    str(row.tokens),
                    str(row.threads),
                    milliseconds(row.p50)[0],
                    "–" if row.p95 is None else milliseconds(row.p95)[0],
                    "–" if row.rows_per_second is None else f"{row.rows_per_second:.0f}",
                    # Weights may be read in place or copied: together they are what it needs.
                    "–"
                    if row.memory_mib is None
                    else f"{row.memory_mib + (row.mapped_mib or 0):.0f}",
                ]
            )
        return cells
    timed = [("teacher", record.teacher.latency_ms)] if record.teacher is not None else []
    timed.append(("this model", record.student.latency_ms))
    known = [(name, time) for name, time in timed if time is not None]
    if not known:
        return None
    cells = [["model", "backend", "batch", "tokens", "threads", "device", "median ms", "quartiles"]]
    return cells + [[name, "torch", *_timed(time)] for name, time in known]


def _timed(time: Latency) -> list[str]:
    median, spread = milliseconds(time.median, time.spread)
    counts = [time.batch_size, time.tokens, time.threads]
    shown = ["–" if count is None else str(count) for count in counts]
    return [*shown, time.device or "–", median, f"± {spread}"]


def export_table(student: StudentFacts) -> Cells:
    """What was exported, and how it did at its gate."""
    heading = ["folder", "form", "MB", "score in torch", "exported", "lost", "same predictions"]
    unchosen = any(one.unchosen is not None for one in student.exports)
    added = ["on rows that did not choose it"] if unchosen else []
    cells = [[*heading, *added, "gate"]]
    for one in student.exports:
        before = one.measured.torch_scores.get("primary")
        agreement = one.measured.agreement
        cells.append(
            [
                one.folder.name,
                one.conversion.name,
                f"{one.bytes / _MB:.1f}",
                decimal(before),
                decimal(one.measured.scores.get("primary")),
                f"{one.measured.drop:+.2f}",
                "–" if agreement is None else f"{100 * agreement:.1f} %",
                *([decimal(one.unchosen)] if unchosen else []),
                f"at most {one.max_drop:g}: passed",
            ]
        )
    return cells


def training_table(student: StudentFacts) -> Cells:
    """What it was trained by and on."""
    record = student.record
    recipe, examples = record.recipe, record.examples
    names = ", ".join(teacher_names(record))
    rows = rows_said(examples) or ("–" if examples.train is None else f"{examples.train:,}")
    steps = sum(stage.steps or 0 for stage in record.stages)
    best = "–" if record.best is None else f"{record.best.epoch} of {_epochs(record)}"
    accelerator = record.hardware.get("accelerator")
    where = " on ".join(
        str(part) for part in (accelerator, record.hardware.get("processor")) if part
    )
    pairs = [
        ("method", record.method),
        ("teachers" if record.team is not None else "teacher", names),
        ("student's start", _start(record)),
        ("training rows", rows),
        ("dev rows", "–" if examples.dev is None else f"{examples.dev:,}"),
        ("best epoch", best),
        ("optimisation steps", f"{steps:,}" if steps else ""),
        ("batch size", _said(recipe.get("batch_size"))),
        ("processes", record.execution.processes_said),
        ("learning rate", _said(recipe.get("lr"))),
        ("longest input", f"{student.max_length} tokens" if student.kind.reads.in_columns else ""),
        ("seed", str(record.seed)),
        ("precision", record.execution.precision or ""),
        ("training time", _time(record)),
        ("hardware", where),
        ("versions", ", ".join(f"{name} {v}" for name, v in record.versions.items() if v)),
    ]
    return [["setting", "value"], *([name, value] for name, value in pairs if value)]


def _start(record: Record) -> str:
    """Where the weights came from before training."""
    student = record.recipe.get("student") or {}
    start, layers = student.get("init"), student.get("layers")
    if not start:
        return ""
    said = "the teacher's weights" if start == "teacher" else public_name(str(start))
    if isinstance(layers, int):
        return f"{said}, {student.get('pick') or 'first'} {count_of(layers, 'layer')}"
    return f"{said}, layers {', '.join(map(str, layers))}" if isinstance(layers, list) else said


def _epochs(record: Record) -> int:
    last = max((epoch.stage for epoch in record.epochs), default=1)
    return sum(epoch.stage == last for epoch in record.epochs)


def _time(record: Record) -> str:
    seconds = record.cost.total_seconds
    return "" if seconds is None else duration(seconds)


def _said(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _megabytes(count: float) -> str:
    return f"{count / _MB:.1f}" if count else "–"


# Scores over several runs of a model: mean, standard deviation, paired tests.


def spread_of(
    student: StudentFacts, seeds: Sequence[str], baseline: str | None = None
) -> str | None:
    """A Markdown table of the run and of those beside it; None where none is named.

    Where methods differ, they are tested against `baseline`, by default `finetune` if it is one of
    them.

    Raises:
        LimbeckError: folders without runs, runs of other rows, a baseline that is not among them.
    """
    if not seeds:
        return None
    own = student.record
    found = [one for one in collect(seeds) if not _same_run(one, own)]
    records = [own, *found]
    _refuse_others(own, found)
    methods = {record.method for record in records}
    if baseline is None and len(methods) > 1 and "finetune" in methods:
        baseline = "finetune"
    table = build_table(records, baseline=baseline, facts=("layers", "parameters", "kept"))
    # The card's own heading says what it is.
    return render(replace(table, title=""), "markdown").rstrip()


def _same_run(one: Record, own: Record) -> bool:
    return (
        one.path is not None and own.path is not None and one.path.resolve() == own.path.resolve()
    )


def _refuse_others(own: Record, found: Sequence[Record]) -> None:
    problems = []
    for one in found:
        rows = one.examples.fingerprints.get("dev"), own.examples.fingerprints.get("dev")
        if place_of(one).split("|")[0] != place_of(own).split("|")[0] or rows[0] != rows[1]:
            where = one.path.parent if one.path is not None else one.method
            problems.append(
                Problem(
                    f"seeds: {where} was scored on other dev rows than the card's run",
                    "name runs of the same task and data",
                )
            )
    if problems:
        raise LimbeckError(problems)
