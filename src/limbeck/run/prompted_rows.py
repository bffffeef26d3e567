"""From a prompt's file and the rows to a prompt that is bound to them. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from datasets import DatasetDict

from limbeck.data import MAX_ROWS, load_task
from limbeck.data.text_rows import TextRows
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS, Task
from limbeck.teachers.language_models import (
    BoundPrompt,
    Prompt,
    bind_prompt,
    read_prompt,
    sample_examples,
)


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
