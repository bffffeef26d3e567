"""What a stage trains on: the task's rows under the recipe's conditions, or a supplement's.

Part of `limbeck.run`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from datasets import Dataset, DatasetDict

from limbeck.data import CORPUS, Collator, encode, load_corpus, load_task
from limbeck.data.conditions import divided
from limbeck.data.encoding import LazyRows
from limbeck.data.row_facts import facts_of
from limbeck.recipe import ImageSpec, Recipe, Stage
from limbeck.run.embedding_settings import embedding_kind
from limbeck.run.known_classes import labelling_of
from limbeck.run.unlabelled_rows import need_labels
from limbeck.support.errors import LimbeckError
from limbeck.tasks import Processor, Reading, Task, TaskType


@dataclass(frozen=True)
class EncodedRows:
    """Rows as they were loaded, and as the student's tokenizer (or image processor) encodes them.

    Attributes:
        task: whose rows they are.
        raw: as they were loaded.
        encoded: the same, or those of them that are trained on; of very many each batch is encoded in its turn.
        truncated: how many of them the length limit cut; None where nobody has looked at all of them.
        max_length: the limit.
    """

    task: Task
    raw: Dataset
    encoded: Dataset | LazyRows
    truncated: int | None
    max_length: int

    @classmethod
    def of(
        cls,
        raw: Dataset,
        task: Task,
        tokenizer: Processor,
        max_length: int,
        *,
        progress: bool = False,
        in_turn: bool = False,
    ) -> EncodedRows:
        """Encode loaded rows, with `in_turn` each batch when it is asked for. Raises LimbeckError as `encode`."""
        if in_turn:
            return cls(task, raw, LazyRows(raw, task, tokenizer, max_length), None, max_length)
        encoded, truncated = encode(raw, task, tokenizer, max_length, progress=progress)
        return cls(task, raw, encoded, truncated, max_length)

    @property
    def kind(self) -> TaskType:
        """What is predicted of them."""
        return self.task.kind

    def collator(self, tokenizer: Processor, pad_to: int | None = None) -> Collator:
        """Makes batches of these rows, of a fixed width if one is given."""
        return Collator(tokenizer, pad_to=pad_to, kind=self.kind)

    @property
    def mean_tokens(self) -> float | None:
        """Mean length of an example; None of images."""
        return facts_of(self.encoded).mean_tokens


def load_rows(recipe: Recipe, *, labels_read: bool = True) -> tuple[Task, DatasetDict]:
    """The task and its splits, the training split under the recipe's conditions.

    Args:
        labels_read: False where nobody looks at the training rows' labels.

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
        max_rows=recipe.max_rows,
        division=recipe.division,
    )
    absent = [split for split in ("train", task.dev_splits[0]) if split not in rows]
    if absent:
        raise LimbeckError(
            f"task {task.name!r}: the data have no {' and no '.join(absent)} split "
            f"(there: {', '.join(rows)})",
            "training needs both",
        )
    rows["train"] = recipe.conditions.apply(rows["train"], task, labels_read=labels_read)
    return _with_thresholds(_viewed(task, recipe), recipe), rows


def _with_thresholds(task: Task, recipe: Recipe) -> Task:
    """A task of several labels a row with how their thresholds are found."""
    if task.kind.several_classes:
        return replace(task, thresholds=recipe.thresholds or "one")
    given = [key for key in ("thresholds", "label_separator") if getattr(recipe, key) is not None]
    if given:
        raise LimbeckError(
            f"{' and '.join(given)}: for rows of several labels, and {task.name} is of kind {task.kind.name}",
            "leave out, or set kind=multi-label",
        )
    return task


def _viewed(task: Task, recipe: Recipe) -> Task:
    """A task of images with the views that training has of them."""
    if task.kind.reads.in_columns:
        if recipe.images is not None:
            raise LimbeckError(f"images: the task {task.name!r} has none", "leave images out")
        return _embedding(task, recipe)
    given = recipe.images or ImageSpec.model_validate({})
    flip = task.image_traits.flip if given.flip is None else given.flip
    return replace(task, kind=task.kind.viewed(given.crop, flip))


def _embedding(task: Task, recipe: Recipe) -> Task:
    """A task of embeddings with the run's settings of what stands around an encoder."""
    if task.kind.embeds:
        return replace(task, kind=embedding_kind(task.kind, recipe))
    if recipe.embedding is None:
        return task
    raise LimbeckError(
        f"embedding: the task {task.name!r} is of kind {task.kind.name}",
        "leave embedding out, or set kind=embedding",
    )


def stage_rows(
    stage: Stage, tokenizer: Processor, reads: Reading, *, progress: bool = False
) -> tuple[Task, Dataset]:
    """The training rows of a stage that has its own, and whose they are.

    A supplement's come without labels, unless a decoder writes them. A sample of the run's own rows is one of those
    that have a label: the others are compared with dev and test rows for the stages that train on all.

    Raises:
        LimbeckError: as `load_rows` and `load_corpus`; rows of another form of input than the
            models read.
    """
    recipe = stage.recipe
    if stage.corpus is not None:
        _need(CORPUS, reads)
        return CORPUS, load_corpus(stage.corpus, tokenizer, recipe.max_length, progress=progress)
    task, rows = load_rows(recipe, labels_read=not stage.supplementary)
    _need(task, reads)
    train = rows["train"]
    # Masked text is its own label, and a decoder reads the targets.
    own = task.label_column in task.text_columns or task.kind.classes_as_text
    if stage.supplementary and not own:
        return task, train.remove_columns(task.label_column)
    need_labels(task, train, stage.setting.replace(".", ": "))
    return task, train if stage.supplementary else divided(train, task)[0]


def _need(task: Task, reads: Reading) -> None:
    if task.kind.reads is not reads:
        raise LimbeckError(
            f"first_stage: the rows of {task.name} are {task.kind.reads.name}, and the models read "
            f"{reads.name}",
            "give the first stage a task that the models can read, or leave it out",
        )
