"""What is known of a model before its weights are read: task type, classes, columns. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import AutoConfig, PretrainedConfig

from limbeck.data.glue import LAYOUTS
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.runtimes import RUNTIMES, ExportManifest, is_export, read_export
from limbeck.scoring.exported_scores import find_export
from limbeck.students import generic_labels, labels_of, read_config, resolve_checkpoint
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.files import at_home
from limbeck.tasks import TASKS, Task, TaskType, get_task, get_task_type, kind_of_config
from limbeck.tasks.rules import thresholds_of
from limbeck.tasks.text import PROMPT

TORCH = "torch"
BACKENDS = (TORCH, *RUNTIMES)
_MULTI_LABEL = "multi_label_classification"


@dataclass(frozen=True)
class AboutModel:
    """A model that was named.

    Attributes:
        name: as it was named.
        place: the checkpoint's folder or Hub name, or the exported folder.
        backend: what computes: torch, onnxruntime or openvino.
        kind: its task type.
        classes: names in id order; none of a number, a span or a text.
        multi_label: whether a row may be of several classes.
        thresholds: then the least probability of each class, in id order; None where nobody says.
        max_length: tokens that it was trained or exported with; None where nobody says.
        task: the known task that it is of; None of the user's own.
        task_name: as the run that trained it calls its task, or as the user did; a text-to-text model reads it with
            every row.
        answers: of a text-to-text model, the class names that it was trained to write, as far as they are known.
        columns: the sets of text columns that it may read, in the order in which they are looked for.
        texts: how many texts a row holds; None where nobody says.
        prompt: what a text-to-text model is given, with a place for each text, where its folder says so.
    """

    name: str
    place: str
    backend: str
    kind: TaskType
    classes: tuple[str, ...]
    multi_label: bool
    max_length: int | None
    task: Task | None
    columns: tuple[tuple[str, ...], ...]
    texts: int | None
    task_name: str | None = None
    answers: tuple[str, ...] = ()
    prompt: str | None = None
    thresholds: tuple[float, ...] | None = None

    @property
    def regression(self) -> bool:
        """Whether it answers with a number."""
        return self.kind.has_classes and not self.kind.classes_as_text and not self.classes

    def config(self) -> PretrainedConfig:
        """The model's configuration; an exported folder has one and no weights of torch's."""
        if self.backend == TORCH:
            return read_config(self.place)
        return AutoConfig.from_pretrained(self.place, trust_remote_code=False)


def facts_of(model: str | Path, backend: str | None = None, task: str | None = None) -> AboutModel:
    """What a run, a checkpoint or an exported folder says of itself.

    Args:
        model: a run folder, a checkpoint's folder or Hub name, an exported folder.
        backend: torch, onnxruntime or openvino; by default what the folder is for.
        task: a known task: its columns, and its classes' names where the model has none of its own.

    Raises:
        LimbeckError: no model there, a run that has not finished, or a backend that does not read it.
    """
    name = str(model)
    if backend is not None and backend not in BACKENDS:
        raise LimbeckError(unknown("backend", backend, BACKENDS))
    if task is not None:
        get_task(task)
    if backend in RUNTIMES or is_export(name):
        if backend == TORCH:
            raise LimbeckError(
                f"backend torch: {name} holds an exported model, not torch's",
                f"leave it out, or choose {' or '.join(RUNTIMES)}",
            )
        found = _of_export(name, read_export(find_export(name)), backend)
    else:
        found = _of_checkpoint(name)
    return found if task is None else _as_task(found, TASKS[task])


def _of_export(name: str, manifest: ExportManifest, backend: str | None) -> AboutModel:
    kind = get_task_type(manifest.kind)
    several = kind.several_classes
    return AboutModel(
        name=name,
        place=str(manifest.folder),
        backend=backend or manifest.runtime,
        kind=kind,
        classes=tuple(manifest.labels),
        multi_label=several,
        thresholds=_thresholds_at(manifest.folder) if several else None,
        max_length=manifest.max_length,
        task=TASKS.get(manifest.gate.task),
        columns=_columns(manifest.gate.text_columns, TASKS.get(manifest.gate.task)),
        texts=manifest.texts,
        task_name=manifest.gate.task,
        prompt=manifest.prompt,
    )


def _thresholds_at(folder: Path) -> tuple[float, ...] | None:
    """Of an exported folder, which has a configuration and no weights of torch's."""
    return thresholds_of(AutoConfig.from_pretrained(folder, trust_remote_code=False))


def _of_checkpoint(name: str) -> AboutModel:
    record = _record(name)
    recipe = None if record is None else Recipe.recorded(record.recipe, name)
    config = read_config(name)
    kind = kind_of_config(config)
    own: tuple[str, ...] = ()
    task, texts = None, None
    if recipe is not None:
        own = tuple(recipe.text_columns or ())
        task = TASKS.get(str(recipe.task))
        if recipe.kind is not None:
            kind = get_task_type(recipe.kind)
        elif task is not None:
            kind = task.kind
        texts = len(task.text_columns) if task is not None else len(own) or None
    multi_label = kind.several_classes or getattr(config, "problem_type", None) == _MULTI_LABEL
    return AboutModel(
        name=name,
        place=resolve_checkpoint(name),
        backend=TORCH,
        kind=kind,
        classes=_classes(config, kind, multi_label=multi_label),
        multi_label=multi_label,
        thresholds=thresholds_of(config) if multi_label else None,
        max_length=None
        if recipe is None
        else kind.of_model(config).scored_length(recipe.max_length),
        task=task,
        columns=_columns(own, task),
        texts=texts,
        task_name=None if recipe is None else recipe.task,
        answers=() if record is None else tuple(one.name for one in record.classes),
        prompt=getattr(config, PROMPT, None) if kind.classes_as_text else None,
    )


def _record(name: str) -> Record | None:
    """Of the run that a folder is, or that the folder is the student of.

    Raises:
        LimbeckError: the run has not finished.
    """
    folder = at_home(name)
    run = folder.resolve().parent if folder.name == "student" else folder
    if not (run / RECORD_NAME).is_file():
        return None
    record = Record.load(run)
    if record.status != "finished" and run == folder:
        raise LimbeckError(f"run {run} is {record.status}", "finish it first")
    return record


def _classes(config: PretrainedConfig, kind: TaskType, *, multi_label: bool) -> tuple[str, ...]:
    names = labels_of(config)
    if kind.classes_as_text or not kind.names_classes:
        return ()
    return () if len(names) == 1 and kind.has_classes and not multi_label else names


def _columns(own: Sequence[str], task: Task | None) -> tuple[tuple[str, ...], ...]:
    found = [tuple(own)] if own else []
    if task is not None:
        found.append(task.text_columns)
        if task.name in LAYOUTS:
            found.append(LAYOUTS[task.name].text)
    return tuple(dict.fromkeys(found))


def _as_task(facts: AboutModel, task: Task) -> AboutModel:
    """The same model for a known task.

    Raises:
        LimbeckError: the task is of another type, or has other classes.
    """
    words = facts.kind.classes_as_text and task.kind.has_classes
    if task.kind.name != facts.kind.name and not words:
        raise LimbeckError(
            f"task {task.name} is of type {task.kind.name}, {facts.name} of type {facts.kind.name}",
            "leave the task out, or name one of that type",
        )
    classes = facts.classes
    if facts.classes and len(task.labels) != len(facts.classes):
        raise LimbeckError(
            f"task {task.name} has {len(task.labels)} classes, {facts.name} has "
            f"{len(facts.classes)}: {', '.join(facts.classes)}",
            "leave the task out",
        )
    if facts.classes and generic_labels(facts.classes):
        classes = task.labels
    columns = dict.fromkeys((*_columns((), task), *facts.columns))
    return replace(
        facts,
        classes=classes,
        task=task,
        columns=tuple(columns),
        texts=len(task.text_columns),
        task_name=task.name,
        answers=task.labels,
    )
