"""A model's facts before its weights are read: task type, classes, columns. Part of `limbeck.predicting`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import PretrainedConfig

from limbeck.data.glue import LAYOUTS
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.scoring import ScoredModel
from limbeck.students import generic_labels, labels_of
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.tasks import TASKS, Task, TaskType, get_task, get_task_type
from limbeck.tasks.text import PROMPT

_MULTI_LABEL = "multi_label_classification"


@dataclass(frozen=True)
class AboutModel:
    """A model that was named.

    Attributes:
        model: where it is, and what computes.
        kind: its task type.
        classes: names in id order; none of a number, a span or a text.
        multi_label: whether a row may be of several classes.
        max_length: tokens that it was trained or exported with; None if unknown.
        task: the known task that it is of; None of the user's own.
        task_name: as the run that trained it calls its task, or as the user did; a text-to-text model reads it with
            every row.
        answers: of a text-to-text model, the class names that it was trained to write, as far as they are known.
        columns: the sets of text columns that it may read, in the order in which they are looked for.
        texts: number of texts in a row; None if unknown.
        prompt: a text-to-text model's prompt, with a place for each text, if its folder contains it.
    """

    model: ScoredModel
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

    @property
    def regression(self) -> bool:
        """Whether it answers with a number."""
        return not self.classes and self.kind.is_number(1)

    @property
    def name(self) -> str:
        """As it was named."""
        return self.model.name

    @property
    def exported(self) -> bool:
        """Whether it is an exported folder, which its runtime computes."""
        return self.model.manifest is not None


def facts_of(model: str | Path, backend: str | None = None, task: str | None = None) -> AboutModel:
    """The facts in the folder of a run, a checkpoint or an exported model.

    Args:
        model: a run folder, a checkpoint's folder or Hub name, an exported folder.
        backend: torch, onnxruntime, openvino or numpy; by default the folder's.
        task: a known task: its columns, and its classes' names if the model has no names.

    Raises:
        LimbeckError: no model there, a run that has not finished, or a backend that does not read it.
    """
    if task is not None:
        get_task(task)
    opened = ScoredModel.open(model, backend)
    found = _of_checkpoint(opened) if opened.manifest is None else _of_export(opened)
    return found if task is None else _as_task(found, TASKS[task])


def _of_export(model: ScoredModel) -> AboutModel:
    manifest = model.manifest
    assert manifest is not None
    kind, gate = get_task_type(manifest.kind), manifest.gate
    return AboutModel(
        model=model,
        kind=kind,
        classes=tuple(manifest.labels),
        multi_label=kind.problem_type is not None,
        max_length=manifest.max_length,
        task=TASKS.get(gate.task),
        columns=_columns(gate.text_columns, TASKS.get(gate.task)),
        texts=manifest.texts,
        task_name=gate.task,
    )


def _of_checkpoint(model: ScoredModel) -> AboutModel:
    record, recipe = model.record, model.recipe
    if record is None and Path(model.place).name == "student":
        run = at_home(model.place).resolve().parent
        if (run / RECORD_NAME).is_file():  # finished or not, its student is there
            record = Record.load(run)
            recipe = Recipe.recorded(record.recipe, model.name)
    config, kind = model.config, model.kind
    own: tuple[str, ...] = ()
    task, texts = None, None
    if recipe is not None:
        own = tuple(recipe.text_columns or ())
        task = TASKS.get(str(recipe.task))
        if recipe.kind is not None:
            kind = get_task_type(recipe.kind)
        elif task is not None:
            kind = task.kind
        own = own[:1] if kind.continues_texts else own  # answers are written
        texts = len(task.text_columns) if task is not None else len(own) or None
    multi_label = _MULTI_LABEL in (kind.problem_type, getattr(config, "problem_type", None))
    return AboutModel(
        model=model,
        kind=kind,
        classes=_classes(config, kind, multi_label=multi_label),
        multi_label=multi_label,
        max_length=None
        if recipe is None
        else kind.of_model(config).scored_length(recipe.max_length),
        task=task,
        columns=_columns(own, task),
        texts=texts,
        task_name=None if recipe is None else recipe.task,
        answers=() if record is None else tuple(one.name for one in record.classes),
        prompt=getattr(config, PROMPT, None),
    )


def _classes(config: PretrainedConfig, kind: TaskType, *, multi_label: bool) -> tuple[str, ...]:
    names = labels_of(config)
    return names if multi_label else kind.class_names(names)


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
    if not facts.kind.answers(task.kind):
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
