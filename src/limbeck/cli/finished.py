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
from limbeck.records.words import headline, learned_nothing, model_word, rows_said
from limbeck.support import files
from limbeck.support.given import PREFIX

if TYPE_CHECKING:
    from limbeck.outputs.store import OutputStore
    from limbeck.run import Result
    from limbeck.tasks import TaskType

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
    weights = (path / "student").glob("*.safetensors")
    yield from headline(record, sum(file.stat().st_size for file in weights))
    if (rows := rows_said(record.examples)) is not None:
        yield "Rows", f"{rows}, in training"
    if processes := record.execution.processes_said:
        yield "Ran in", f"{processes} processes"
    model = model_word(record)
    report = path / "report.html"
    shown = f", {report} (the report)" if report.is_file() else ""
    yield "Files", f"{path / 'student'} (the {model}){shown}"
    if (warning := learned_nothing(record)) is not None:
        yield "Warning", f"the {model} {warning}"


_USUAL_RATE = 1e-4
_FEW = 10_000
"""Rows that are trained on for three times the usual epochs."""
_OF_ROWS = (
    *options.ROWS, "label_separator", "thresholds", "unlabelled", "unlabelled_duplicates", "train_rows",
    "train_rows_seed", "stratified", "batch_size", "candidates", "images", "embedding", "plugins",
)  # fmt: skip
"""Settings of a run that define its rows and how they are read: a student of its model needs them too."""


def _kind_of(record: Record) -> TaskType | None:
    from limbeck.tasks import TASK_TYPES

    name = str(record.recipe.get("kind"))
    return TASK_TYPES.get(name) if name in TASK_TYPES else None


def next_step(record: Record, path: Path) -> str | None:
    """The command to run after this one, or None."""
    if learned_nothing(record) is not None:
        return _trained_differently(record, path)
    # A model with some of an encoder's layers is a student too: the one to compare others with.
    student = record.recipe.get("student") or {}
    if record.kind == "distill" or student.get("layers"):
        if (kind := _kind_of(record)) is not None and kind.generates:  # nothing to export
            return None
        form = "numpy" if student.get("static") else "onnx-int8"
        return f"limbeck export {shlex.quote(str(path))} --format {form}"
    return _distilled(record, str(path))


def after_export(export: Path, run: Path) -> str | None:
    """A command that predicts a run's rows with its exported model; None if no file contains the rows."""
    from limbeck.data.own import is_own

    if not (run / RECORD_NAME).is_file():
        return None
    record = Record.load(run)
    data = files.at_home(record.data)
    if not data.is_file() or not is_own(data) or learned_nothing(record) is not None:
        return None
    if record.recipe.get("parallel"):  # its rows are in a file that the run made
        return None
    # CSV holds no vectors.
    form = "parquet" if (kind := _kind_of(record)) is not None and kind.embeds else "csv"
    target = f"{data.stem}-predictions.{form}"
    return shlex.join(["limbeck", "predict", str(export), record.data, "--to", target])


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
    words += ["--student", "ENCODER", "--layers", "3"]
    # On few rows more epochs help more than another method (`benchmarks/which_method.py`).
    return shlex.join([*words, *["--quality", "best"] * (len(store) <= _FEW)])


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
    # A run with files of unlabeled rows may have more rows than the store.
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
    # Rows or models from Python, which no command line names.
    if PREFIX in f"{record.data} {recipe}":
        return None
    words = ["limbeck", "distill", str(path / "recipe.yaml")]
    if steps := recipe.get("max_steps"):
        words += ["--max-steps", str(2 * steps)]
    else:
        words += ["--epochs", f"{2 * (recipe.get('epochs') or 3):g}"]
    rate = recipe.get("lr") or _USUAL_RATE
    most = 1 if recipe.get("optimizer") == "sgd" else 10 * _USUAL_RATE
    words += ["--lr", f"{2 * rate if rate <= _USUAL_RATE else min(rate / 2, most):g}"]
    return shlex.join([*words, "--out", f"{path}-longer"])
