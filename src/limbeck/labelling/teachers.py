"""From what `--teacher`, `--prompt` and `--endpoint` name to a labeller, and to what it is asked.

Part of `limbeck.labelling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import DatasetDict

from limbeck.data import MAX_ROWS, load_task
from limbeck.data.text_rows import TextRows, read_target_rows
from limbeck.labelling.language_models import (
    BoundPrompt,
    EndpointSettings,
    Prompt,
    bind_prompt,
    is_causal_model,
    load_causal_labeller,
    read_prompt,
    sample_examples,
)
from limbeck.labelling.language_models.answers import JOURNALS
from limbeck.labelling.model_labeller import ModelLabeller, TargetLabeller, kept_word
from limbeck.outputs import default_store
from limbeck.outputs.columns import LOGITS, PROBABILITIES
from limbeck.preflight import refuse_beyond
from limbeck.recipe import Recipe
from limbeck.records.runs_meant import members_at
from limbeck.students import load_model, read_config, read_processor
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.machine import device
from limbeck.support.words import short_name, short_names
from limbeck.tasks import TASKS, TEXT, TEXT_READING, Task, kind_of_config
from limbeck.teachers.labeller import Labeller, TeamLabeller

if TYPE_CHECKING:
    from limbeck.labelling.language_models.endpoint_labeller import EndpointLabeller

_MAX_LENGTH = Recipe.model_fields["max_length"].default
PRECISIONS = ("fp32", "bf16")

Teachers = tuple[str | Labeller, ...]


@dataclass(frozen=True)
class LabellerSource:
    """Where a labeller comes from: any process makes the same one of it.

    Attributes:
        teachers: paths and names, or labellers themselves; several are a team.
        task: a known task, whose classes name those of a model that has no names of its own.
        outputs: words of `--outputs`, for models.
        max_length: tokens of a row; by default what a run was trained with.
        precision: fp32 or bf16.
        batch_size: rows of a pass.
        prompt: what language models are asked; without it a model that is no causal one is asked as it was trained.
        written_task: the name with which the prompts of a text-to-text model begin, where rows have targets.
    """

    teachers: Teachers
    task: str | None = None
    outputs: tuple[str, ...] | None = None
    max_length: int | None = None
    precision: str = "fp32"
    batch_size: int | None = None
    prompt: BoundPrompt | None = None
    written_task: str | None = None

    def load(self) -> Labeller:
        """The labeller, on the device of this process.

        Raises:
            LimbeckError: a model that cannot be read or used, or teachers that do not agree.
        """
        found: list[Labeller] = []
        paths: list[str] = []
        for given in self.teachers:
            if not isinstance(given, str):
                found.append(given)
                paths.append(given.name)
                continue
            for path, record in members_at(given).items():
                own = None if record is None else Recipe.recorded(record.recipe, path)
                found.append(self._model(path, own))
                paths.append(path)
        if not found:
            raise LimbeckError(
                "teacher: nobody is named", "name a model, a run folder or several, or an endpoint"
            )
        return found[0] if len(found) == 1 else TeamLabeller(found, short_names(paths))

    def _model(self, path: str, recipe: Recipe | None) -> Labeller:
        shared: dict[str, Any] = {"max_length": self.max_length, "precision": self.precision}
        if self.batch_size is not None:
            shared["batch_size"] = self.batch_size
        if self.prompt is not None:
            return load_causal_labeller(path, self.prompt, **shared)
        shared["name"] = short_name(path)
        shared["max_length"] = self.max_length or (
            _MAX_LENGTH if recipe is None else recipe.max_length
        )
        if self.written_task is not None:
            keep = kept_word(self.outputs, shared["name"])
            model = load_model(path, head="required", auto=TEXT.auto)
            refuse_beyond(model, self.max_length)
            processor = read_processor(path, TEXT_READING)
            written = TargetLabeller(model, processor, task=self.written_task, keep=keep, **shared)
            return written.to(device())
        known = TASKS.get(self.task) if self.task is not None else None
        answers = not self.outputs or bool({LOGITS, PROBABILITIES} & {*self.outputs})
        model = load_model(path, head="required" if answers else "optional")
        refuse_beyond(model, self.max_length)
        labeller = ModelLabeller(
            model,
            read_processor(path, TEXT_READING),
            outputs=self.outputs,
            classes=() if known is None else known.kind.class_names(known.labels),
            **shared,
        )
        return labeller.to(device())


def named(teacher: str | Path | Labeller | Sequence[str | Path | Labeller]) -> Teachers:
    """One teacher or several as a tuple of names and labellers.

    Raises:
        LimbeckError: an object that is neither.
    """
    many = teacher if isinstance(teacher, list | tuple) else [teacher]
    found: list[str | Labeller] = []
    for one in many:
        if isinstance(one, str | Path):
            found.append(str(one))
        elif isinstance(one, Labeller):
            found.append(one)
        else:
            raise LimbeckError(
                f"teacher: a {type(one).__name__} is no labeller",
                "name a model's folder, or pass an object with the methods of limbeck.teachers.labeller.Labeller",
            )
    return tuple(found)


def _paths(teachers: Teachers) -> list[str]:
    """The models behind names."""
    return [path for one in teachers if isinstance(one, str) for path in members_at(one)]


# Teachers that are asked in words.


def speaks(teachers: Teachers) -> bool:
    """Whether a teacher is a causal language model, which labels with a prompt alone."""
    return any(is_causal_model(path) for path in _paths(teachers))


def check_speaking(
    source: LabellerSource, prompt: object, endpoint: EndpointSettings | None, engine: str
) -> None:
    """Raise LimbeckError for settings that nobody would read, all of them together."""
    problems = []
    named_models = any(isinstance(one, str) for one in source.teachers)
    if endpoint is None and prompt is not None and not named_models:
        problems.append(
            Problem(
                "prompt: the teacher is no language model that is read from a folder",
                "leave it out, or name a folder or an endpoint",
            )
        )
    if endpoint is not None:
        unread = {
            "teacher": bool(source.teachers),
            "max_length": source.max_length is not None,
            "precision": source.precision != "fp32",
            "engine ray": engine == "ray",
        }
        problems += endpoint.problems()
        problems += [
            Problem(
                f"{name}: nothing that an endpoint reads",
                "leave it out; requests at the same time are --concurrency",
            )
            for name, given in unread.items()
            if given
        ]
    if problems:
        raise LimbeckError(problems)


def endpoint_labeller(settings: EndpointSettings, bound: BoundPrompt) -> EndpointLabeller:
    """The labeller of an endpoint, whose answers are kept in the cache.

    Raises:
        LimbeckError: the package of its client is not installed, or as `EndpointLabeller`.
    """
    try:
        from limbeck.labelling.language_models.endpoint_labeller import EndpointLabeller
    except ModuleNotFoundError as error:
        raise LimbeckError(
            f"labels from an endpoint need the package {error.name}, which is not installed",
            "pip install 'limbeck[endpoint]'",
        ) from error
    return EndpointLabeller(settings, bound, journals=default_store().folder / JOURNALS)


def prompt_for(
    prompt: str | Path | Prompt | None,
    rows: TextRows,
    *,
    task: str | None,
    data: str | Path | None,
    text_columns: Sequence[str],
    label_column: str | None = None,
    max_rows: int = MAX_ROWS,
) -> BoundPrompt:
    """The prompt for these rows.

    Args:
        prompt: its file, or itself; None for the default one.
        task: a known task, whose classes they are; else the classes are those with a verbalization, in their order.
        data: where labelled training rows are, if examples are to be sampled.
        text_columns: the names that the rows' columns have where they come from.
        label_column: the labels of a file of the user's own, for examples.
        max_rows: of such a file; more are refused.

    Raises:
        LimbeckError: no classes are known, or what is wrong with the prompt.
    """
    settings = read_prompt(prompt) if isinstance(prompt, str | Path) else prompt or Prompt()
    columns, classes = tuple(rows.columns), _classes(settings, task)
    sampled = []
    if label_column is not None and not settings.examples_per_class:
        raise LimbeckError(
            f"label_column: labels are read for a prompt's examples_per_class alone, and {data} is labelled without",
            "leave it out, or set examples_per_class",
        )
    if settings.examples_per_class and data is not None:
        found, splits = load_task(
            task,
            data,
            text_columns=text_columns or None,
            label_column=label_column,
            max_rows=max_rows,
        )
        sampled = _sampled(settings, classes, columns, found, splits)
    aliases = {
        name: column
        for name, column in zip(text_columns, columns, strict=False)
        if name not in columns
    }
    return bind_prompt(settings, classes, columns, sampled=sampled, aliases=aliases)


def _classes(prompt: Prompt, task: str | None) -> tuple[str, ...]:
    known = TASKS.get(task) if task is not None else None
    if known is not None and not known.labels:
        raise LimbeckError(
            f"task {known.name!r} has no classes, and a language model labels with classes",
            "name a task with classes",
        )
    if known is None and not prompt.verbalizations:
        raise LimbeckError(
            "the classes are not known",
            "name a known --task, or write verbalizations into the prompt: a line CLASS: WORDS for each class",
        )
    return tuple(prompt.verbalizations or ()) if known is None else known.labels


def _sampled(
    prompt: Prompt,
    classes: tuple[str, ...],
    columns: tuple[str, ...],
    found: Task,
    splits: DatasetDict,
) -> list[dict[str, str]]:
    """Examples of the training split; rows that another split has too are left out."""
    if "train" not in splits or not found.labels or {*found.labels} - {*classes}:
        labels = ", ".join(found.labels) or "no classes"
        raise LimbeckError(
            f"examples_per_class: the labelled training rows have {labels}, and the prompt "
            f"{', '.join(classes)}",
            "write examples of your own, or name data whose labels are these classes",
        )
    texts = {
        split: [*zip(*(rows[name] for name in found.text_columns), strict=True)]
        for split, rows in splits.items()
    }
    others = {row for split in texts if split != "train" for row in texts[split]}
    order = [classes.index(name) for name in found.labels]
    ids = [order[label] if label >= 0 else -1 for label in splits["train"][found.label_column]]
    return sample_examples(
        [dict(zip(columns, row, strict=True)) for row in texts["train"]],
        ids,
        classes,
        each=prompt.examples_per_class,
        seed=prompt.seed,
        excluded=others,
    )


# Whether a text-to-text teacher labels, so that rows need the text that its decoder writes.


def writes_targets(teachers: Teachers, outputs: Sequence[str] | None) -> bool:
    """Whether one of them answers in words; its layers alone need no targets."""
    if outputs and not any(word.split(":")[0] == LOGITS for word in outputs):
        return False
    return any(hasattr(one, "kept_tokens") for one in teachers) or any(
        kind_of_config(read_config(path)) is TEXT for path in _paths(teachers)
    )


def target_rows(
    teachers: Teachers,
    data: str | Path | None,
    *,
    task: str | None,
    text_columns: Sequence[str],
    label_column: str | None,
    others: bool,
    max_rows: int,
) -> tuple[str, TextRows]:
    """The task's name in the prompts, and rows with targets.

    Args:
        task: by default that of the teacher's own run.
        others: whether unlabelled rows, or a table of labels, are asked for too.

    Raises:
        LimbeckError: several teachers, rows without targets, a table of labels, a task without a name, or as
            `read_target_rows`.
    """
    named_first = next((one for one in teachers if isinstance(one, str)), None)
    records = {} if named_first is None else members_at(named_first)
    problems = []
    if len(teachers) > 1 or len(records) > 1:
        problems.append(
            Problem(
                "teacher: several, and of parts of a vocabulary there is no mean",
                "label with one text-to-text teacher",
            )
        )
    if others or data is None:
        problems.append(
            Problem(
                "unlabelled, to: a text-to-text teacher is asked for each token of a row's target, so there are no "
                "rows without one and no labels to write",
                "give labelled rows with --data alone; `limbeck predict` writes what the model itself answers",
            )
        )
    if problems or data is None:
        raise LimbeckError(problems)
    for path, record in records.items():
        own = None if record is None else Recipe.recorded(record.recipe, path)
        task = task or (None if own is None else own.task)
    found, rows = read_target_rows(
        data, task=task, text_columns=text_columns, label_column=label_column, max_rows=max_rows
    )
    return found.name, rows
