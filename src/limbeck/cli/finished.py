"""What a finished command says last: how good, small and fast its model is, where it lies, and what to do next.

Part of `limbeck.cli`. Each line has a label; a further fact of a run is a further entry of `last_lines`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.cli.console import say, say_command, scores_said
from limbeck.cli.options import SETTINGS
from limbeck.support.given import PREFIX

if TYPE_CHECKING:
    from limbeck.outputs import OutputStore
    from limbeck.records import Record
    from limbeck.records.facts import Latency
    from limbeck.run import Result

_MB = 1e6
_LABEL = 9
"""Columns of a label."""


def show_result(result: Result) -> None:
    """Print what the run came to, and the command that brings it further."""
    for label, line in last_lines(result.record, result.path):
        say(f"{label + ':':{_LABEL}}{line}", hang=_LABEL)
    if (command := next_step(result.record, result.path)) is not None:
        say_command(f"{'Next:':{_LABEL}}", command)


def last_lines(record: Record, path: Path) -> list[tuple[str, str]]:
    """Label and text of each line, in the order in which they are printed."""
    from limbeck.records.words import rows_said

    rows = rows_said(record.examples)
    lines = [("Score", _score(record, split)) for split in record.scores]
    lines += [("Floor", floor) for floor in _floor(record)]
    lines += [("Size", size) for size in _size(record, path)]
    lines += [("Speed", speed) for speed in _speed(record)]
    lines += [("Rows", f"{rows}, in training")] if rows is not None else []
    if processes := record.execution.processes_said:
        lines += [("Ran in", f"{processes} processes")]
    lines += [("Files", _files(record, path))]
    return lines + [("Warning", constant) for constant in _constant(record)]


def model_name(record: Record) -> str:
    """What the run's model is called: only what has a teacher is a student."""
    return "student" if record.kind == "distill" else "model"


def _score(record: Record, split: str) -> str:
    """Every score of a split; of the one that selects also the epochs it was chosen from, and the share kept."""
    from limbeck.records.words import agreement_said

    own, theirs = record.scores[split], _teachers_score(record, split)
    if (agreement := agreement_said(record.examples, split)) is not None:
        return _agreement(record, split, agreement)
    said = f"{split} {scores_said(own)}"
    if split == "dev":
        said += _chosen_from(record)
    primary = own.get("primary")
    if theirs is None or primary is None:
        return said
    said += f"; {_teacher_name(record)} {theirs:.1f}"
    if theirs <= 0:
        return said
    said += f": {100 * primary / theirs:.1f} % kept"
    kept = record.kept
    if kept is None or split != "dev":
        return said
    how = "" if kept.paired else ", the teacher's score taken as exact"
    return (
        f"{said} ({100 * kept.level:.0f} % interval {100 * kept.low:.1f} to {100 * kept.high:.1f}, "
        f"bootstrap over {kept.rows:,} dev {kept.unit}{how})"
    )


def _agreement(record: Record, split: str, said: str) -> str:
    """Scores against the teacher's own predictions, which are no labels."""
    scores = {name.replace("_", " "): value for name, value in record.scores[split].items()}
    classes = record.classification.get(split)
    found = f"{split} {scores_said(scores)}"
    if classes is not None and classes.divergence is not None:
        found += f", Jensen-Shannon divergence {classes.divergence:.3f} bits"
    chosen = _chosen_from(record) if split == "dev" else ""
    return f"{found}: {said}{chosen}"


def _chosen_from(record: Record) -> str:
    """The dev rows chose the epoch that they score."""
    best, last = record.best, record.last
    if best is None or last is None or best.primary is None or last.primary is None:
        return ""
    if last.epoch == best.epoch == 1:
        return ""
    return f" (best epoch, {best.epoch} of {last.epoch}; the last has {last.primary:.1f})"


def _teachers_score(record: Record, split: str) -> float | None:
    known = [record.teacher] if record.teacher is not None else record.outputs[:1]
    return next((one.scores.get(split, {}).get("primary") for one in known), None)


def _floor(record: Record) -> list[str]:
    """What words alone reach, on the splits that the student is scored on."""
    known = {} if record.floor is None else record.floor.scores
    scores = [
        f"{split} {own:.1f}"
        for split in record.scores
        if (own := known.get(split, {}).get("primary")) is not None
    ]
    return [f"{', '.join(scores)} by words alone (TF-IDF and a linear model)"] if scores else []


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
    return [f"{theirs.median / own.median:.1f} × the teacher's ({_measured(own)})"]


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


def _files(record: Record, run: Path) -> str:
    said = f"{run / 'student'} (the {model_name(record)})"
    report = run / "report.html"
    return f"{said}, {report} (the report)" if report.is_file() else said


def _constant(record: Record) -> list[str]:
    from limbeck.records.words import one_answer

    only = one_answer(record)
    if only is None:
        return []
    return [
        f"the {model_name(record)} predicts {only!r} for every dev row, which needs no model; train it "
        "longer, at another rate or on more rows"
    ]


_USUAL_RATE = 1e-4
_OF_ROWS = (
    *(
        "task",
        "data",
        "dev",
        "test",
        "dev_share",
        "test_share",
        "group_column",
        "kind",
        "text_columns",
        "label_column",
        "classes",
        "labels",
    ),
    *("label_separator", "thresholds", "unlabelled", "unlabelled_duplicates", "max_rows"),
    *("train_rows", "train_rows_seed", "stratified", "max_length", "batch_size", "candidates"),
    *("images", "embedding", "plugins"),
)
"""Settings of a run that say which rows there are and how they are read: a student of its model needs them too."""


def next_step(record: Record, path: Path) -> str | None:
    """A command that brings a run further; None where there is none to advise."""
    from limbeck.records.words import one_answer

    if one_answer(record) is not None:
        return _trained_differently(record, path)
    if record.kind == "distill":
        return f"limbeck export {shlex.quote(str(path))} --format onnx-int8"
    return _distilled(record, str(path))


def after_export(export: Path, run: Path) -> str | None:
    """Predict the rows that a run was made from, by what was exported of it; None where no file holds them."""
    from limbeck.data.own import is_own
    from limbeck.records import RECORD_NAME, Record
    from limbeck.records.words import one_answer
    from limbeck.support.files import at_home

    if not (run / RECORD_NAME).is_file():
        return None
    record = Record.load(run)
    data = at_home(record.data)
    if not data.is_file() or not is_own(data) or one_answer(record) is not None:
        return None
    words = ["limbeck", "predict", str(export), record.data, "--to", f"{data.stem}-predictions.csv"]
    return shlex.join(words)


def after_labelling(store: OutputStore, teachers: Sequence[str], data: str | None) -> str:
    """What to do with a store of outputs.

    A student is taught by it, where its rows are those that the run of its only teacher was trained on, so that all
    that training needs is known; else it is looked at.
    """
    url = store.files.url
    return _taught_by(store, teachers, data) or shlex.join(["limbeck", "outputs", "show", url])


def _taught_by(store: OutputStore, teachers: Sequence[str], data: str | None) -> str | None:
    from limbeck.outputs.shards import DECIDING
    from limbeck.records import RECORD_NAME, Record
    from limbeck.support.files import at_home
    from limbeck.tasks import get_task_type

    kind = get_task_type(store.kind)
    says = {column.name for column in store.columns} & {*DECIDING}
    if len(teachers) != 1 or not says or kind.problem_of(False) is None:
        return None
    run = at_home(teachers[0])
    if data is None or not (run / RECORD_NAME).is_file():
        return None
    record = Record.load(run)
    same = at_home(data).resolve() == at_home(record.data).resolve()
    named = record.recipe.get("text_columns")
    columns = named is None or tuple(named) == store.manifest.rows.columns
    known = same and columns and _holds_unlabelled(store, record)
    return _distilled(record, teachers[0], store.files.url) if known else None


def _holds_unlabelled(store: OutputStore, record: Record) -> bool:
    """Whether the rows without labels that a run was trained on were labelled too."""
    from limbeck.data.stream import matching
    from limbeck.support.files import at_home

    files = [
        file
        for given in record.recipe.get("unlabelled") or ()
        for file in (matching(given) or [given])
    ]
    if not files:
        return True
    labelled = {at_home(source).resolve() for source in store.manifest.rows.source}
    return {at_home(file).resolve() for file in files} <= labelled


def _distilled(record: Record, model: str, store: str | None = None) -> str | None:
    """A student of half the model's layers, taught by the model or by what it said."""
    layers = record.student.layers
    if layers is None or layers < 2 or record.data.startswith(PREFIX):
        return None
    from limbeck.recipe.load import as_divided_then

    words = ["limbeck", "distill", "--method", _method(record), "--teacher", model]
    words += ["--outputs", store] if store is not None else []
    words += ["--layers", str((layers + 1) // 2)]
    given = {**as_divided_then(record.recipe), "task": record.task, "data": record.data}
    for name in _OF_ROWS:
        words += _typed(name, given.get(name))
    return shlex.join(words)


def _method(record: Record) -> str:
    from limbeck.tasks import TASKS, get_task_type

    kind = record.recipe.get("kind")
    if kind is not None:
        return get_task_type(kind).distilled_by
    return TASKS[record.task].kind.distilled_by if record.task in TASKS else "kd"


def _typed(name: str, value: Any) -> Iterator[str]:
    """A setting as it is typed, unless it is the usual one."""
    from limbeck.recipe import Recipe

    usual = Recipe.model_fields[name].get_default(call_default_factory=True)
    if value is None or value == usual or (value in ([], {}, "") and not usual):
        return
    if isinstance(value, dict):
        value = {key: one for key, one in value.items() if one is not None}
    flag = f"--{name.replace('_', '-')}"
    if name == "plugins":
        yield from ("--plugin", *value)
    elif name in SETTINGS and isinstance(value, list):
        yield from (flag, *map(str, value))
    elif name in SETTINGS and isinstance(value, str | int):
        yield from (flag, str(value))
    else:
        yield f"{name}={json.dumps(value)}"


def _trained_differently(record: Record, path: Path) -> str | None:
    """The run for twice as long, at a rate on the other side of what students mostly learn at."""
    recipe = record.recipe
    if (
        PREFIX in f"{record.data} {recipe}"
    ):  # rows or models from Python, which no command line names
        return None
    words = ["limbeck", "distill", str(path / "recipe.yaml")]
    if steps := recipe.get("max_steps"):
        words += ["--max-steps", str(2 * steps)]
    else:
        words += ["--epochs", f"{2 * (recipe.get('epochs') or 3):g}"]
    rate = recipe.get("lr") or _USUAL_RATE
    words += ["--lr", f"{rate * (2 if rate <= _USUAL_RATE else 0.5):g}"]
    return shlex.join([*words, "--out", f"{path}-longer"])
