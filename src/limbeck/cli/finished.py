"""The last lines of a finished command: its model's scores, size, speed and folder, and the next command.

Part of `limbeck.cli`. Each line has a label; a further fact of a run is a further entry of `last_lines`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.cli import console, options
from limbeck.records import RECORD_NAME, Record
from limbeck.records.words import agreement_said, one_answer, rows_said, teacher_scores
from limbeck.support import files, words
from limbeck.support.given import PREFIX

if TYPE_CHECKING:
    from limbeck.outputs.store import OutputStore
    from limbeck.run import Result

_MB = 1e6
_LABEL = 9
"""Columns of a label."""


def show_result(result: Result) -> None:
    """Print the run's results, and the next command."""
    for label, line in last_lines(result.record, result.path):
        console.say(f"{label + ':':{_LABEL}}{line}", hang=_LABEL)
    if (command := next_step(result.record, result.path)) is not None:
        console.say_command(f"{'Next:':{_LABEL}}", command)


def last_lines(record: Record, path: Path) -> Iterator[tuple[str, str]]:
    """Label and text of each line, in the order in which they are printed."""
    from limbeck.tables.facts import speedup

    for split in record.scores:
        yield "Score", _score(record, split)
    floor = {} if record.floor is None else record.floor.scores
    known = {split: floor.get(split, {}).get("primary") for split in record.scores}
    if words := [f"{split} {score:.1f}" for split, score in known.items() if score is not None]:
        yield "Floor", f"{', '.join(words)} by words alone (TF-IDF and a linear model)"
    if files := list((path / "student").glob("*.safetensors")):
        yield "Size", _size(record, sum(file.stat().st_size for file in files))
    if record.vocabulary is not None:
        yield "Kept", record.vocabulary.said
    for stack, layers in (record.picked_layers or {}).items():
        of = "" if stack == "main" else f" of the {stack}"
        yield "Layers", f"{', '.join(map(str, layers))}{of}, picked by importance"
    if (ratio := speedup(record)) is not None:
        yield "Speed", f"{ratio:.1f} × the teacher's ({_how_timed(record)})"
    if (rows := rows_said(record.examples)) is not None:
        yield "Rows", f"{rows}, in training"
    if processes := record.execution.processes_said:
        yield "Ran in", f"{processes} processes"
    model = "student" if record.kind == "distill" else "model"
    report = path / "report.html"
    shown = f", {report} (the report)" if report.is_file() else ""
    yield "Files", f"{path / 'student'} (the {model}){shown}"
    if (only := one_answer(record)) is not None:
        yield (
            "Warning",
            f"the {model} predicts {only!r} for every dev row, which needs no model; train it longer, at another "
            "rate or on more rows",
        )


def _score(record: Record, split: str) -> str:
    """Every score of a split; of the one that selects also the epochs it was chosen from, and the share kept."""
    own, last, chosen = record.scores[split], record.last, ""
    if split == "dev" and record.best and last and last.primary is not None and last.epoch > 1:
        epochs = f"{record.best.epoch} of {last.epoch}"
        chosen = f" (best epoch, {epochs}; the last has {last.primary:.1f})"
    if (agreement := agreement_said(record.examples, split)) is not None:
        classes = record.classification.get(split)
        found = (
            f"{split} {console.scores_said({name.replace('_', ' '): v for name, v in own.items()})}"
        )
        if classes is not None and classes.divergence is not None:
            found += f", Jensen-Shannon divergence {classes.divergence:.3f} bits"
        return f"{found}: {agreement}{chosen}"
    said = f"{split} {console.scores_said(own)}{chosen}"
    primary, theirs = own.get("primary"), teacher_scores(record).get(split, {}).get("primary")
    if theirs is None or primary is None:
        return said
    said += f"; {_teacher_name(record)} {theirs:.1f}"
    if theirs <= 0:
        return said
    said += f": {100 * primary / theirs:.1f} % kept"
    return said if record.kept is None or split != "dev" else f"{said} ({record.kept.interval})"


def _teacher_name(record: Record) -> str:
    """The name of the teacher that the student is compared with."""
    if record.team is None:
        return "teacher"
    path = record.teacher.path if record.teacher is not None else None
    name = next((f" ({one.name})" for one in record.team.members if one.path == path), "")
    return f"best teacher of {len(record.team.members)}{name}"


def _size(record: Record, size: float) -> str:
    said, own = f"{size / _MB:.1f} MB", record.student.parameters
    theirs = record.teacher.parameters if record.teacher is not None else None
    # By parameters: the teacher's file may be of another precision.
    return f"{said}, {100 * own / theirs:.0f} % of the teacher's" if own and theirs else said


def _how_timed(record: Record) -> str:
    """How a latency was measured: it means nothing without it."""
    time = record.student.latency_ms
    assert time is not None
    parts = ["torch", f"batch {time.batch_size}"]
    parts += [f"{time.tokens} tokens"] if time.tokens is not None else []
    if time.device not in (None, "cpu"):
        parts.append(str(time.device))
    elif time.threads:
        parts.append(words.count_of(time.threads, "thread"))
    return ", ".join([*parts, "timed in turns"])


_USUAL_RATE = 1e-4
_OF_ROWS = (
    *options.ROWS, "label_separator", "thresholds", "unlabelled", "unlabelled_duplicates", "train_rows",
    "train_rows_seed", "stratified", "batch_size", "candidates", "images", "embedding", "plugins",
)  # fmt: skip
"""Settings of a run that define its rows and how they are read: a student of its model needs them too."""


def _generates(kind: str) -> bool:
    from limbeck.tasks import TASK_TYPES

    return kind in TASK_TYPES and TASK_TYPES.get(kind).generates


def next_step(record: Record, path: Path) -> str | None:
    """The command to run after this one, or None."""
    if one_answer(record) is not None:
        return _trained_differently(record, path)
    if record.kind == "distill":
        if _generates(str(record.recipe.get("kind"))):  # nothing to export
            return None
        return f"limbeck export {shlex.quote(str(path))} --format onnx-int8"
    return _distilled(record, str(path))


def after_export(export: Path, run: Path) -> str | None:
    """A command that predicts a run's rows with its exported model; None if no file contains the rows."""
    from limbeck.data.own import is_own

    if not (run / RECORD_NAME).is_file():
        return None
    record = Record.load(run)
    data = files.at_home(record.data)
    if not data.is_file() or not is_own(data) or one_answer(record) is not None:
        return None
    words = ["limbeck", "predict", str(export), record.data, "--to", f"{data.stem}-predictions.csv"]
    return shlex.join(words)


def after_labelling(
    store: OutputStore, teachers: Sequence[str], data: str | None, to: str | None = None
) -> str:
    """What to do with a store of outputs.

    The command trains a student on the store if its rows are the training rows of its only teacher, so that all
    settings are known, or on a written table of classes; otherwise it shows the store.
    """
    url = store.files.url
    if found := _taught_by(store, teachers, data):
        return found
    if to is None or not store.classes:
        return shlex.join(["limbeck", "outputs", "show", url])
    from limbeck.outputs.shards import LABEL

    words = ["limbeck", "distill", "--method", "kd-soft", "--data", to, "--text-columns"]
    words += [*store.manifest.rows.columns, "--label-column", LABEL, "--outputs", url]
    return shlex.join([*words, "--student", "ENCODER", "--layers", "3"])


def _taught_by(store: OutputStore, teachers: Sequence[str], data: str | None) -> str | None:
    from limbeck.outputs.shards import DECIDING
    from limbeck.tasks import get_task_type

    decides = {column.name for column in store.columns} & {*DECIDING}
    if len(teachers) != 1 or not decides or get_task_type(store.kind).problem_of(False) is None:
        return None
    run = files.at_home(teachers[0])
    if data is None or not (run / RECORD_NAME).is_file():
        return None
    record = Record.load(run)
    columns = record.recipe.get("text_columns")
    same = files.at_home(data).resolve() == files.at_home(record.data).resolve()
    # A run with files of unlabelled rows may have more rows than the store.
    if not same or record.recipe.get("unlabelled"):
        return None
    if columns is not None and tuple(columns) != store.manifest.rows.columns:
        return None
    return _distilled(record, teachers[0], store.files.url)


def _distilled(record: Record, model: str, store: str | None = None) -> str | None:
    """A command that trains a student with half the model's layers, on the model or its stored outputs."""
    layers = record.student.layers
    if layers is None or layers < 2 or record.data.startswith(PREFIX):
        return None
    from limbeck.recipe.load import as_written_then

    words = ["limbeck", "distill", "--method", _method(record), "--teacher", model]
    words += ["--outputs", store] if store is not None else []
    words += ["--layers", str((layers + 1) // 2)]
    given = {**as_written_then(record.recipe), "task": record.task, "data": record.data}
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
    elif name in options.SETTINGS and isinstance(value, list):
        yield from (flag, *map(str, value))
    elif name in options.SETTINGS and isinstance(value, str | int):
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
