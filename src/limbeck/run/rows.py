"""What a stage trains on: the task's rows under the recipe's conditions, or a supplement's.

Part of `limbeck.run`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from datasets import Dataset, DatasetDict

from limbeck.data import CORPUS, Collator, encode, load_corpus, load_task
from limbeck.data.encoding import LazyRows
from limbeck.data.row_facts import facts_of
from limbeck.data.samplers import labelled_in_batch
from limbeck.data.splits import divided
from limbeck.data.text_rows import UnlabelledRows, read_unlabelled, with_unlabelled
from limbeck.objectives import TermSpec
from limbeck.recipe import ImageSpec, Recipe, Stage
from limbeck.recipe.checks import label_terms
from limbeck.run.embedding_settings import embedding_kind
from limbeck.run.teachers import labelling_of
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import Processor, Reading, Task, TaskType
from limbeck.tasks.abstract_type import labelled_rows, no_unlabelled


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
    tuned = task.kind.tuned(task, recipe.thresholds)
    if tuned is not None:
        found: Task = tuned
        return found
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
    if stage.supplementary and not task.kind.keeps_labels(task):
        return task, train.remove_columns(task.label_column)
    task.kind.need_labels(task, train, stage.setting.replace(".", ": "))
    return task, train if stage.supplementary else divided(train, task)[0]


def _need(task: Task, reads: Reading) -> None:
    if task.kind.reads is not reads:
        raise LimbeckError(
            f"first_stage: the rows of {task.name} are {task.kind.reads.name}, and the models read "
            f"{reads.name}",
            "give the first stage a task that the models can read, or leave it out",
        )


# Training rows without labels of a run: the files that its recipe names, and which terms may learn
# from them.


logger = logging.getLogger(__name__)


def add_unlabelled(
    recipe: Recipe, task: Task, splits: DatasetDict
) -> tuple[DatasetDict, UnlabelledRows]:
    """The splits with all rows to train on, and what became of those without a label.

    Where every term of the loss reads labels, rows of the task's own data that have none are left out.

    Raises:
        LimbeckError: files that cannot be read, rows that are scored on too, terms that have nothing to learn from, a
            task type that needs labels.
    """
    refused = no_unlabelled(task.kind)
    if refused is not None:
        if recipe.unlabelled:
            raise LimbeckError(
                f"unlabelled: task {task.name!r} is of kind {task.kind.name}: {refused.why}",
                f"{refused.instead}; or leave them out",
            )
        task.kind.need_labels(task, splits["train"])
        return splits, UnlabelledRows()
    labelled = labelled_rows(splits["train"].with_format("numpy")[task.label_column][:])
    if recipe.labelled_share is not None:
        _check_share(recipe, labelled)
    if labelled.all() and not recipe.unlabelled:
        if recipe.unlabelled_weight != 1:
            raise LimbeckError(
                f"unlabelled_weight: {recipe.unlabelled_weight:g}, and all training rows have a label",
                "leave it out, or add rows: --unlabelled FILE",
            )
        return splits, UnlabelledRows()
    terms = list(_terms(recipe, numbers=task.regression))
    problems = _problems(recipe, task, terms, some=bool(labelled.any()))
    if problems:
        raise LimbeckError(problems)
    if all(reads for _, _, reads in terms):
        logger.warning(
            "%d of %d training rows have no label and are left out: every term of method %s reads labels",
            int((~labelled).sum()), len(labelled), recipe.method,
        )  # fmt: skip
        splits = DatasetDict(splits)
        splits["train"] = splits["train"].select(np.flatnonzero(labelled))
        return splits, UnlabelledRows()
    files = read_unlabelled(
        recipe.unlabelled, task, text_columns=recipe.text_columns, max_rows=recipe.max_rows
    )
    return with_unlabelled(task, splits, files, recipe.unlabelled_duplicates)


def check_left(recipe: Recipe, task: Task, labelled: np.ndarray) -> None:
    """Raise LimbeckError where `missing_outputs: drop` has left no row of a sort that terms or batches need.

    Args:
        labelled: of the training rows that are left, boolean (n,), which have a label.
    """
    reading = [
        key
        for key, term, reads in _terms(recipe, numbers=task.regression)
        if reads and term.weight != 0
    ]
    mixed = ["labelled_share"] if recipe.labelled_share is not None else []
    if not labelled.any() and reading + mixed:
        raise LimbeckError(
            f"missing_outputs: drop leaves no row with a label, which {', '.join(reading + mixed)} needs",
            "label those rows with the teacher too, or take a method that reads no labels: --method kd-soft",
        )
    if labelled.all() and mixed:
        raise LimbeckError(
            "missing_outputs: drop leaves no row without a label, which labelled_share needs",
            "label those rows with the teacher too, or leave labelled_share out",
        )


def _check_share(recipe: Recipe, labelled: np.ndarray) -> None:
    """Raise LimbeckError for a share of batches that cannot be had."""
    for stage in recipe.stages():
        if stage.same_rows:
            labelled_in_batch(recipe.labelled_share or 0.0, stage.recipe.batch_size)
    some = labelled.any(), bool(recipe.unlabelled) or not labelled.all()
    if not all(some):
        raise LimbeckError(
            f"labelled_share: {recipe.labelled_share:g}, and {'all' if some[0] else 'no'} training rows have a label",
            "leave it out, or add rows" + (": --unlabelled FILE" if some[0] else " with labels"),
        )


def _terms(recipe: Recipe, *, numbers: bool) -> Iterator[tuple[str, TermSpec, bool]]:
    """Every term that sees the run's own rows: its key, its settings, and whether it reads labels."""
    for stage in recipe.stages():
        if not stage.same_rows:
            continue
        reading = set(label_terms(stage.recipe.objectives, numbers=numbers))
        for name, term in stage.recipe.objectives.items():
            yield f"{stage.setting}objectives.{name}", term, name in reading


def _problems(
    recipe: Recipe, task: Task, terms: list[tuple[str, TermSpec, bool]], *, some: bool
) -> list[Problem]:
    """Why these terms cannot be trained beside rows without a label; `some` rows have one."""
    reading, advised = [(key, term) for key, term, reads in terms if reads], task.kind.distilled_by
    if len(reading) == len(terms) and recipe.unlabelled:
        return [
            Problem(
                f"unlabelled: every term of method {recipe.method} reads labels, so rows without teach nothing",
                f"leave it out, or take a method with soft labels or layers: limbeck distill --method {advised}",
            )
        ]
    if (
        not some
        and recipe.unlabelled_weight == 0
        and all(term.weighs_examples for _, term, _ in terms)
    ):
        return [
            Problem(
                "unlabelled_weight: 0, and no training row has a label, so that none would count",
                "raise it, or leave it out",
            )
        ]
    if not some:
        return [
            Problem(
                f"{key}: it learns from labels, and no training row has one",
                f"take a method without it (--method kd-soft), or take it out: {key}=null",
            )
            for key, term in reading
            if term.weight != 0
        ]
    return [
        Problem(
            f"{key}: {term.compare} reads the label of every example, and some have none",
            "take it out, leave rows without labels out, or let its class count labelled examples alone "
            "(counts_labelled = True)",
        )
        for key, term in reading
        if not term.counts_labelled
    ]
