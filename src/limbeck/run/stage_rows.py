"""What a stage trains on: the task's rows under the recipe's conditions, or a supplement's.

Part of `limbeck.run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc
from datasets import Dataset, DatasetDict

from limbeck.data import CORPUS, Collator, encode, load_corpus, load_task
from limbeck.errors import LimbeckError
from limbeck.model_inputs import ModelInputs
from limbeck.recipe import ImageSpec, Recipe, Stage
from limbeck.run.labelling import labelling_of
from limbeck.tasks import TEXT, Image, Processor, Reading, Task, TaskType


@dataclass(frozen=True)
class StageRows:
    """Encoded training rows, and how many of them the length limit cut."""

    encoded: Dataset
    truncated: int
    kind: TaskType
    inputs: Mapping[int, ModelInputs | None] = field(default_factory=dict)
    """Of rows that a stage has for itself, by id of a teacher's model: how it finds what it reads; None if its tokens
    are others."""

    def collator(self, tokenizer: Processor, pad_to: int | None = None) -> Collator:
        """Makes batches of these rows, of a fixed width if one is given."""
        return Collator(tokenizer, pad_to=pad_to, kind=self.kind)

    @property
    def mean_tokens(self) -> float | None:
        """Mean length of an example; None of images."""
        if "input_ids" not in self.encoded.column_names:
            return None
        ids = self.encoded.with_format("arrow")[:]["input_ids"]
        return float(pc.mean(pc.list_value_length(ids)).as_py())


def load_rows(recipe: Recipe) -> tuple[Task, DatasetDict]:
    """The task and its splits, the training split under the recipe's conditions.

    Raises:
        LimbeckError: data that cannot be loaded, or conditions that do not fit them.
    """
    task, rows = load_task(
        recipe.task,
        recipe.data,
        text_columns=recipe.text_columns,
        label_column=recipe.label_column,
        kind=recipe.kind,
        labelling=labelling_of(recipe),
    )
    absent = [split for split in ("train", task.dev_splits[0]) if split not in rows]
    if absent:
        raise LimbeckError(
            f"task {task.name!r}: the data have no {' and no '.join(absent)} split "
            f"(there: {', '.join(rows)})",
            "training needs both",
        )
    rows["train"] = recipe.conditions.apply(rows["train"], task)
    return _viewed(task, recipe), rows


def _viewed(task: Task, recipe: Recipe) -> Task:
    """A task of images with the views that training has of them."""
    if not isinstance(task.kind, Image):
        if recipe.images is not None:
            raise LimbeckError(f"images: the task {task.name!r} has none", "leave images out")
        return task
    given = recipe.images or ImageSpec.model_validate({})
    flip = task.pictures.flip if given.flip is None else given.flip
    return replace(task, kind=task.kind.viewed(given.crop, flip))


def stage_rows(
    stage: Stage, tokenizer: Processor, reads: Reading, *, progress: bool = False
) -> tuple[StageRows, Dataset, Task]:
    """The training rows of a stage that has its own, also as they were loaded, and whose they are.

    A supplement's come without labels.

    Raises:
        LimbeckError: as `load_rows` and `load_corpus`; rows of another form of input than the
            models read.
    """
    recipe = stage.recipe
    if stage.corpus is not None:
        task = CORPUS
        _need(task, reads)
        train = load_corpus(stage.corpus, tokenizer, recipe.max_length, progress=progress)
    else:
        task, rows = load_rows(recipe)
        _need(task, reads)
        train = rows["train"]
        # Masked text is its own label, and a decoder reads the answers.
        own = task.label_column in task.text_columns or task.kind is TEXT
        if stage.supplementary and not own:
            train = train.remove_columns(task.label_column)
    encoded, truncated = encode(train, task, tokenizer, recipe.max_length, progress=progress)
    return StageRows(encoded, truncated, task.kind), train, task


def _need(task: Task, reads: Reading) -> None:
    if task.kind.reads is not reads:
        raise LimbeckError(
            f"first_stage: the rows of {task.name} are {task.kind.reads.name}, and the models read "
            f"{reads.name}",
            "give the first stage a task that the models can read, or leave it out",
        )
