"""The last lines of a run: how good, small and fast the student is, where it lies, and what to do next.

Part of `limbeck.cli`. At most eight lines: two of scores, and six.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from limbeck.cli.console import output, show_scores
from limbeck.cli.next_step import next_step

if TYPE_CHECKING:
    from limbeck.reporting.records import Latency, Record
    from limbeck.run import Result

_MB = 1e6


def show_result(result: Result) -> None:
    """Print the final scores by split, what the student came to, and the folder that holds it."""
    from limbeck.reporting.records.one_answer import one_answer
    from limbeck.reporting.records.rows_said import rows_said

    record, path = result.record, result.path
    for split, scores in result.scores.items():
        show_scores(scores, title=f"{split}:")
    _say(_against_teacher(record))
    if facts := [*_size(record, path), *_speed(record)]:
        _say("; ".join(facts))
    rows = rows_said(record.examples)
    if course := [*_course(record), *([f"training rows: {rows}"] if rows is not None else [])]:
        _say("; ".join(course))
    _say(f"written to {path}")
    if (path / "report.html").is_file():
        _say(f"report: {path / 'report.html'}")
    only = one_answer(record)
    said = [_constant(record, only)] if only is not None else []
    if (step := next_step(record, path)) is not None:
        said.append(step)
    if said:
        _say(f"next: {': '.join(said)}")


def _constant(record: Record, only: str) -> str:
    model = "student" if record.kind == "distill" else "model"
    return (
        f"the {model} predicts {only!r} for every dev row, which needs no model; train it longer, at "
        "another rate or on more rows"
    )


def _course(record: Record) -> list[str]:
    best, last = record.best, record.last
    if best is None or last is None or best.primary is None or last.primary is None:
        return []
    return [
        f"dev by epoch: best {best.primary:.2f} (epoch {best.epoch}), "
        f"last {last.primary:.2f} (epoch {last.epoch})"
    ]


def _against_teacher(record: Record) -> str:
    """Both primary dev scores, and the share that the student keeps."""
    own = record.scores.get("dev", {}).get("primary")
    model = "student" if record.kind == "distill" else "model"
    known = [record.teacher] if record.teacher is not None else record.outputs[:1]
    theirs = next((one.scores.get("dev", {}).get("primary") for one in known), None)
    if own is None:
        return f"{model}: no dev score"
    if theirs is None:
        return f"{model} {own:.1f}"
    said = f"{_teacher_name(record)} {theirs:.1f}, {model} {own:.1f}"
    if theirs <= 0:
        return said
    said += f": {100 * own / theirs:.1f} % kept"
    if record.kept is None:
        return said
    kept = record.kept
    how = "" if kept.paired else ", the teacher's score taken as exact"
    return (
        f"{said} ({100 * kept.level:.0f} % interval {100 * kept.low:.1f} to {100 * kept.high:.1f}, "
        f"bootstrap over {kept.rows:,} dev {kept.unit}{how})"
    )


def _teacher_name(record: Record) -> str:
    """Of several teachers which one the student is held against."""
    if record.team is None:
        return "teacher"
    path = record.teacher.path if record.teacher is not None else None
    name = next((one.name for one in record.team.members if one.path == path), None)
    of = f" of {len(record.team.members)}"
    return f"best teacher{of} ({name})" if name is not None else f"best teacher{of}"


def _size(record: Record, run: Path) -> list[str]:
    files = list((run / "student").glob("*.safetensors"))
    if not files:
        return []
    size = f"{sum(file.stat().st_size for file in files) / _MB:.1f} MB"
    own = record.student.parameters
    theirs = record.teacher.parameters if record.teacher is not None else None
    # By parameters: the teacher's file may be of another precision.
    return [f"{size}, {100 * own / theirs:.0f} % of the teacher's" if own and theirs else size]


def _speed(record: Record) -> list[str]:
    """Only against the run's own teacher: the two were measured in turns."""
    if record.teacher is None or not (record.teacher.latency_ms and record.student.latency_ms):
        return []
    own, theirs = record.student.latency_ms, record.teacher.latency_ms
    if not own.median:
        return []
    return [f"{theirs.median / own.median:.1f} × the teacher's speed ({_measured(own)})"]


def _measured(time: Latency) -> str:
    """How a latency was taken: it says nothing without it."""
    parts = ["torch", f"batch {time.batch_size}"]
    parts += [f"{time.tokens} tokens"] if time.tokens is not None else []
    if time.device in (None, "cpu"):
        parts += (
            [f"{time.threads} thread{'s' if time.threads != 1 else ''}"] if time.threads else []
        )
    else:
        parts.append(str(time.device))
    return ", ".join([*parts, "timed in turns"])


def _say(line: str) -> None:
    output().print(line, markup=False, soft_wrap=True)
