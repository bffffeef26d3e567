"""The tables of a card: scores, classes, speed, exports, training. Part of `limbeck.cards`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from limbeck.cards.facts import StudentFacts, public_name, teacher_names
from limbeck.cards.metadata import METRICS
from limbeck.records import Record
from limbeck.records.facts import ModelFacts
from limbeck.records.words import primary_name, rows_said, teacher_scores
from limbeck.students.build import PICKS, default_pick, pick_layers
from limbeck.support.cells import (
    CellTable,
    decimal,
    duration,
    magnitude,
    milliseconds,
    percent,
    shown,
)
from limbeck.support.errors import Problem, problem_list, raise_problems
from limbeck.support.words import count_of
from limbeck.tables import build_table, collect, render
from limbeck.tables.model import place_of
from limbeck.tasks import LOWER_IS_BETTER, TASKS

_MB = 1e6


def score_table(record: Record, splits: Sequence[str]) -> CellTable:
    """Every metric of every split, with the teacher's if it is known, and the scores of a linear model on words."""
    theirs = teacher_scores(record)
    floor = {} if record.floor is None else record.floor.scores
    taught = any(theirs.get(split) for split in splits)
    beneath = any(floor.get(split) for split in splits)
    heading = ["split", "metric", *["words alone"] * beneath, *["teacher"] * taught, "student"]
    cells = [[*heading, *["share kept"] * taught]]
    for split in splits:
        for metric, value in record.scores[split].items():
            if metric == "primary" and primary_name(record.scores[split]) != "score":
                continue
            other = theirs.get(split, {}).get(metric)
            row = [split, _metric(record, metric)]
            row += [decimal(floor.get(split, {}).get(metric))] * beneath
            row += [decimal(other)] * taught
            comparable = metric not in LOWER_IS_BETTER
            kept = (
                value / other if comparable and value is not None and other and other > 0 else None
            )
            row += [decimal(value), *[shown(kept, percent)] * taught]
            cells.append(row)
    return CellTable("", cells, (0, 1))


def _metric(record: Record, metric: str) -> str:
    if metric != "primary":
        return METRICS.get(metric, metric.replace("_", " "))
    task = TASKS.get(record.task)
    if task is None:
        return "primary"
    return "mean of " + " and ".join(METRICS.get(name, name) for name in task.primary.split("+"))


def size_table(student: StudentFacts) -> CellTable:
    """Teacher and student: layers, width, parameters, FLOPs, bytes."""
    record = student.record
    models: list[tuple[str, ModelFacts, float]] = []
    if record.teacher is not None:
        models.append(("teacher", record.teacher, 4 * (record.teacher.parameters or 0)))
    models.append(("this model", record.student, student.bytes))
    cells = [["model", "layers", "hidden size", "parameters", "MB (fp32)", "FLOPs / example"]]
    for name, facts, size in models:
        counts = [shown(facts.layers), shown(facts.hidden_size), shown(facts.parameters, magnitude)]
        megabytes = decimal(size / _MB if size else None)
        cells.append([name, *counts, megabytes, shown(facts.flops_per_example, magnitude)])
    return CellTable("", cells)


def latency_table(record: Record) -> CellTable | None:
    """The last bench's lines, otherwise the run's own times; None if nothing was timed."""
    if record.bench is not None and record.bench.rows:
        heading = ["model", "backend", "form", "batch", "tokens", "threads", "p50 ms", "p95 ms"]
        cells = [[*heading, "rows/s", "memory MiB"]]
        for row in record.bench.rows:
            model = "this model" if row.role != "teacher" else "teacher"
            condition = map(str, (row.batch_size, row.tokens, row.threads))
            times = [milliseconds(row.p50)[0], shown(row.p95, lambda p95: milliseconds(p95)[0])]
            # Weights may be read in place or copied: the model needs both together.
            memory = None if row.memory_mib is None else row.memory_mib + (row.mapped_mib or 0)
            speed = [*times, decimal(row.rows_per_second, 0), decimal(memory, 0)]
            cells.append([model, row.backend, row.form, *condition, *speed])
        return CellTable("", cells, (0, 1, 2))
    timed = [("teacher", record.teacher.latency_ms)] if record.teacher is not None else []
    timed.append(("this model", record.student.latency_ms))
    cells = [["model", "backend", "batch", "tokens", "threads", "device", "median ms", "quartiles"]]
    for name, time in timed:
        if time is not None:
            median, spread = milliseconds(time.median, time.spread)
            condition = map(shown, (time.batch_size, time.tokens, time.threads, time.device))
            cells.append([name, "torch", *condition, median, f"± {spread}"])
    return CellTable("", cells, (0, 1)) if len(cells) > 1 else None


def export_table(student: StudentFacts) -> CellTable:
    """The exported models, and their results at the gate."""
    heading = ["folder", "form", "MB", "score in torch", "exported", "change", "same predictions"]
    unchosen = any(one.unchosen is not None for one in student.exports)
    tested = any(one.test is not None for one in student.exports)
    others = ["on rows that did not choose it"] * unchosen + ["on test"] * tested
    cells = [[*heading, *others, "gate"]]
    for one in student.exports:
        found = one.measured
        before, after = (scores.get("primary") for scores in (found.torch_scores, found.scores))
        row = [one.folder.name, one.conversion.name, decimal(one.bytes / _MB), decimal(before)]
        row += [decimal(after), f"{0 - found.drop:+.2f}", shown(found.agreement, percent)]
        row += [decimal(one.unchosen)] * unchosen
        row += [decimal(None if one.test is None else one.test.scores.get("primary"))] * tested
        cells.append([*row, f"at most {one.max_drop:g}: passed"])
    return CellTable("", cells, (0, 1))


def training_table(student: StudentFacts) -> CellTable:
    """The student's teachers, method and data."""
    record = student.record
    recipe, examples = record.recipe, record.examples
    rows = rows_said(examples) or shown(examples.train, "{:,}".format)
    steps = sum(stage.steps or 0 for stage in record.stages)
    last = max((epoch.stage for epoch in record.epochs), default=1)
    epochs = sum(epoch.stage == last for epoch in record.epochs)
    best = shown(record.best and record.best.epoch, lambda epoch: f"{epoch} of {epochs}")
    machine = [record.hardware.get(part) for part in ("accelerator", "processor")]
    time, rate = record.cost.total_seconds, recipe.get("lr")
    pairs = {
        "method": record.method,
        "teachers" if record.team is not None else "teacher": ", ".join(teacher_names(record)),
        "student's start": _start(student),
        "vocabulary": None if record.vocabulary is None else record.vocabulary.said,
        "training rows": rows,
        "dev rows": shown(examples.dev, "{:,}".format),
        "best epoch": best,
        "optimization steps": f"{steps:,}" if steps else "",
        "batch size": recipe.get("batch_size"),
        "processes": record.execution.processes_said,
        "learning rate": None if rate is None else f"{rate:g}",
        "longest input": f"{student.max_length} tokens" if student.kind.reads.in_columns else "",
        "seed": record.seed,
        "precision": record.execution.precision,
        "training time": None if time is None else duration(time),
        "hardware": " on ".join(str(part) for part in machine if part),
        "versions": ", ".join(f"{name} {v}" for name, v in record.versions.items() if v),
    }
    known = [[name, str(value)] for name, value in pairs.items() if value not in (None, "")]
    return CellTable("", [["setting", "value"], *known], (0, 1))


def _start(student: StudentFacts) -> str:
    """Where the weights came from before training, and which layers."""
    record, asked = student.record, student.record.recipe.get("student") or {}
    start, layers = asked.get("init"), asked.get("layers")
    if not start:
        return ""
    taught = (
        "the teacher's vectors of each token" if asked.get("static") else "the teacher's weights"
    )
    known_starts = {"teacher": taught, "fresh": "random weights"}
    said = known_starts.get(start) or public_name(str(start))
    if isinstance(layers, int):
        rule = asked.get("pick") or default_pick(student.kind)
        said += f", {count_of(layers, 'layer')} picked by {rule}"
        total = record.teacher.layers if record.teacher and start == "teacher" else None
        known = (record.picked_layers or {}).get("main")
        if known is None and total and rule in PICKS:
            known = pick_layers(rule, layers, total)
        return f"{said} ({', '.join(map(str, known))})" if known else said
    return f"{said}, layers {', '.join(map(str, layers))}" if isinstance(layers, list) else said


# Scores over several runs of a model: mean, standard deviation, paired tests.


def spread_of(
    student: StudentFacts, seeds: Sequence[str], baseline: str | None = None
) -> str | None:
    """A Markdown table of the run and of the given other ones; None without other runs.

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
    raise_problems(_of_other_rows(own, found))
    methods = {record.method for record in records}
    if baseline is None and len(methods) > 1 and "finetune" in methods:
        baseline = "finetune"
    table = build_table(records, baseline=baseline, facts=("layers", "parameters", "kept"))
    # The card's own heading is the metric's name.
    return render(replace(table, title=""), "markdown").rstrip()


def _same_run(one: Record, own: Record) -> bool:
    return (
        one.path is not None and own.path is not None and one.path.resolve() == own.path.resolve()
    )


@problem_list
def _of_other_rows(own: Record, found: Sequence[Record]) -> Iterator[Problem]:
    for one in found:
        rows = one.examples.fingerprints.get("dev"), own.examples.fingerprints.get("dev")
        if place_of(one).split("|")[0] != place_of(own).split("|")[0] or rows[0] != rows[1]:
            where = one.path.parent if one.path is not None else one.method
            yield Problem(
                f"seeds: {where} was scored on other dev rows than the card's run",
                "name runs of the same task and data",
            )
