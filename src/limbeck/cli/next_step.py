"""The command that a finished one names as the next: it has to run as it is printed. Part of `limbeck.cli`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.cli.options import SETTINGS
from limbeck.support.given import PREFIX

if TYPE_CHECKING:
    from limbeck.outputs import OutputStore
    from limbeck.records import Record

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
    if len(teachers) != 1 or not says or not kind.labels_examples:
        return None
    run = at_home(teachers[0])
    if data is None or kind.classes_as_text or not (run / RECORD_NAME).is_file():
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
