"""From a prompt's file and the rows to a prompt that is bound to them. Part of `limbeck.labelling`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from datasets import DatasetDict

from limbeck.data import MAX_ROWS, load_task
from limbeck.data.text_rows import TextRows
from limbeck.labelling.language_models import (
    BoundPrompt,
    EndpointSettings,
    Prompt,
    bind_prompt,
    is_causal_model,
    read_prompt,
    sample_examples,
)
from limbeck.labelling.language_models.answers import JOURNALS
from limbeck.outputs import default_store
from limbeck.records.runs_meant import members_at
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import TASKS, Task
from limbeck.teachers.labeller import Labeller

if TYPE_CHECKING:
    from limbeck.labelling.language_models import EndpointLabeller


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
    columns = tuple(rows.columns)
    classes = _classes(settings, task)
    sampled = []
    if settings.examples_per_class and data is not None:
        found, splits = load_task(
            task,
            data,
            text_columns=text_columns or None,
            label_column=label_column,
            max_rows=max_rows,
        )
        sampled = _sampled(settings, classes, columns, found, splits)
    elif settings.examples_per_class and label_column is not None:
        raise LimbeckError(
            "examples_per_class: there are no labelled rows to sample examples from",
            "name a file of them with --data",
        )
    elif label_column is not None:
        raise LimbeckError(
            f"label_column: labels are read for a prompt's examples_per_class alone, and {data} is labelled without",
            "leave it out, or set examples_per_class",
        )
    named = zip(text_columns, columns, strict=False)
    aliases = {name: column for name, column in named if name not in columns}
    return bind_prompt(settings, classes, columns, sampled=sampled, aliases=aliases)


def _classes(prompt: Prompt, task: str | None) -> tuple[str, ...]:
    known = TASKS.get(task) if task is not None else None
    if known is not None:
        if not known.labels:
            raise LimbeckError(
                f"task {known.name!r} has no classes, and a language model labels with classes",
                "name a task with classes",
            )
        return known.labels
    if not prompt.verbalizations:
        raise LimbeckError(
            "the classes are not known",
            "name a known --task, or write verbalizations into the prompt: a line CLASS: WORDS for each class",
        )
    return tuple(prompt.verbalizations)


def _sampled(
    prompt: Prompt,
    classes: tuple[str, ...],
    columns: tuple[str, ...],
    found: Task,
    splits: DatasetDict,
) -> list[dict[str, str]]:
    """Examples of the training split; rows that another split has too are left out."""
    strange = [name for name in found.labels if name not in classes]
    if "train" not in splits or strange or not found.labels:
        labels = ", ".join(found.labels) or "no classes"
        raise LimbeckError(
            f"examples_per_class: the labelled training rows have {labels}, and the prompt "
            f"{', '.join(classes)}",
            "write examples of your own, or name data whose labels are these classes",
        )
    rows = _texts(splits, "train", found, columns)
    others = {
        tuple(row.values())
        for split in splits
        if split != "train"
        for row in _texts(splits, split, found, columns)
    }
    order = [classes.index(name) for name in found.labels]
    ids = [order[label] if label >= 0 else -1 for label in splits["train"][found.label_column]]
    return sample_examples(
        rows, ids, classes, each=prompt.examples_per_class, seed=prompt.seed, excluded=others
    )


def _texts(
    splits: DatasetDict, split: str, task: Task, columns: tuple[str, ...]
) -> list[dict[str, str]]:
    """A split's texts under the names of the rows to be labelled."""
    texts = [splits[split][name] for name in task.text_columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*texts, strict=True)]


# Teachers that are asked in words: which of those named are, and the one behind an endpoint.


def speaks(teachers: Sequence[str | Labeller]) -> bool:
    """Whether a teacher is a causal language model, which labels with a prompt alone."""
    paths = [path for one in teachers if isinstance(one, str) for path in members_at(one)]
    return any(is_causal_model(path) for path in paths)


def endpoint_labeller(settings: EndpointSettings, bound: BoundPrompt) -> EndpointLabeller:
    """The labeller of an endpoint, whose answers are kept in the cache.

    Raises:
        LimbeckError: the package of its client is not installed, or as `EndpointLabeller`.
    """
    from limbeck.labelling.language_models import EndpointLabeller

    return EndpointLabeller(settings, bound, journals=default_store().folder / JOURNALS)


def check_speaking(
    teachers: Sequence[str | Labeller],
    prompt: object,
    endpoint: EndpointSettings | None,
    engine: str,
    max_length: int | None,
    precision: str,
) -> None:
    """Raise LimbeckError for settings that nobody would read, all of them together."""
    problems = []
    if (
        endpoint is None
        and prompt is not None
        and not any(isinstance(one, str) for one in teachers)
    ):
        problems.append(
            Problem(
                "prompt: the teacher is no language model that is read from a folder",
                "leave it out, or name a folder or an endpoint",
            )
        )
    if endpoint is not None:
        problems += endpoint.problems()
        unread = {
            "teacher": bool(teachers),
            "max_length": max_length is not None,
            "precision": precision != "fp32",
            "engine ray": engine == "ray",
        }
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
