"""The labelled rows that a model is measured on before it is exported, and where it runs. Part of `limbeck.scoring`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig

from limbeck.data import (
    Collator,
    Division,
    Labelling,
    batches_of,
    encode,
    load_task,
    rows_fingerprint,
)
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.run.known_classes import labelling_of, names_at, names_of
from limbeck.run.model_predictions import decided_by
from limbeck.runtimes import is_export, read_export
from limbeck.scoring.scored_model import LONGEST, split_to_score, wanted_kind
from limbeck.students import read_config, resolve_checkpoint
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.support.given import refuse_absent_rows
from limbeck.tasks import Processor, Results, Task, join, kind_of_config

_HUB = "hub"
# What a recipe says of which rows there are and how they are read.
_ROWS = {
    "task", "kind", "data", "dev", "test", "dev_share", "test_share", "group_column", "text_columns",
    "label_column", "classes", "labels", "label_separator", "max_rows", "max_length",
}  # fmt: skip


@dataclass(frozen=True)
class GateRows:
    """The rows that a model is measured on.

    Attributes:
        task: their task.
        data: their source.
        split: its name.
        rows: the split as loaded; `encoded` as batches are made of it.
        training: rows as loaded to calibrate with; None where the source has none.
        processor: tokenizer or image processor.
        max_length: tokens of a row.
        text_columns: as they were named, for a file of the user's own.
        label_column: likewise.
        recipe: the run's settings that say which rows these are; empty of rows that were named.
    """

    task: Task
    data: str
    split: str
    rows: Dataset
    encoded: Dataset
    training: Dataset | None
    processor: Processor
    max_length: int
    text_columns: Sequence[str] = field(default=())
    label_column: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Of the rows' content."""
        return rows_fingerprint(self.task, self.rows)

    def batches(self, size: int) -> Iterator[dict[str, Tensor]]:
        """The encoded rows in order, on CPU."""
        collate = Collator(self.processor, kind=self.task.kind)
        return batches_of(self.encoded, collate, size, "cpu")

    def training_batches(self, rows: int, size: int) -> Iterator[dict[str, Tensor]]:
        """Some training rows, evenly spaced over all of them.

        Raises:
            LimbeckError: the source has no training rows.
        """
        collate = Collator(self.processor, kind=self.task.kind)
        return batches_of(self._training(rows), collate, size, "cpu")

    def shuffled_batches(self, steps: int, size: int, seed: int) -> Iterator[dict[str, Tensor]]:
        """So many batches of training rows, in another order at every pass over them.

        Raises:
            LimbeckError: the source has no training rows.
        """
        encoded = self._training(steps * size)
        random = np.random.default_rng(seed)
        order: list[int] = []
        while len(order) < steps * size:
            order += random.permutation(len(encoded)).tolist()
        collate = Collator(self.processor, kind=self.task.kind)
        return batches_of(encoded, collate, size, "cpu", order=order[: steps * size])

    def _training(self, rows: int) -> Dataset:
        """At most so many encoded training rows, evenly spaced over all of them."""
        if self.training is None:
            raise LimbeckError(
                f"{self.data} has no training rows for {self.task.name}, which static int8 and "
                "quantisation-aware distillation need",
                "choose --scheme dynamic without --recover-steps, or name data with a train split",
            )
        count = min(rows, len(self.training))
        places = np.linspace(0, len(self.training) - 1, count).astype(int)
        few = self.training.select(sorted({*places.tolist()}))
        encoded, _ = encode(few, self.task, self.processor, self.max_length)
        return encoded

    def results(self, answers: Sequence[np.ndarray]) -> Results:
        """Scores and predictions of what was kept of each batch."""
        kind = self.task.kind
        return kind.results(self.task, join(answers), self.encoded, self.rows, self.processor)

    def halves(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The places of a random half of the rows, and of the others; rows that belong together stay together.

        None where a row is several examples or one can be read only beside all others, as in a search.
        """
        kind = self.task.kind
        if not kind.one_example_a_row or kind.embeds or len(self.rows) != len(self.encoded):
            return None
        columns = {name: self.rows[name][:] for name in self.task.text_columns}
        groups = kind.groups_of(self.task, columns)
        numbers = (
            np.arange(len(self.rows))
            if groups is None
            else np.unique(groups, return_inverse=True)[1]
        )
        second = (np.random.default_rng(0).permutation(numbers.max() + 1) % 2 == 1)[numbers]
        parts = np.flatnonzero(~second), np.flatnonzero(second)
        return parts if min(map(len, parts)) else None

    def primary_of(self, outputs: np.ndarray, places: np.ndarray) -> float:
        """The primary score of some rows, by what was kept of all."""
        kind, encoded, rows = self.task.kind, self.encoded.select(places), self.rows.select(places)
        found = kind.results(self.task, outputs[places], encoded, rows, self.processor)
        return float(found.scores["primary"])


def gate_rows(
    model: str,
    task: str | None = None,
    data: str | None = None,
    *,
    split: str | None = None,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    max_length: int | None = None,
) -> GateRows:
    """The rows that are named, else those a run (or an exported model) was measured on.

    Args:
        model: a run's folder, an exported folder, or a checkpoint's folder or Hub name.
        task: the rows' task, `data` their source, `split` which of its splits.
        text_columns: of a file of the user's own, the columns that hold text.
        label_column: likewise, the one that holds the labels.
        max_length: tokens that a text is cut to; by default what a run was trained with, else 512.

    Raises:
        LimbeckError: nothing says which rows, or they cannot be read as the model's task.
    """
    folder = at_home(model)
    if (folder / RECORD_NAME).is_file():
        record = Record.load(folder)
        if record.status != "finished":
            raise LimbeckError(f"run {folder} is {record.status}", "finish it first")
        recipe = Recipe.recorded(record.recipe, str(folder))
        student = str(folder / "student")
        return _of_recipe(
            recipe, student, task, data, split, text_columns, label_column, max_length
        )
    if is_export(folder):
        return _of_export(folder, task, data, split, text_columns, label_column, max_length)
    if task is None and data is None:
        raise LimbeckError(
            f"{model} is no run of limbeck's, and a checkpoint does not say what to measure it on",
            "add --task and --data, say --task mrpc --data glue, or --data FILE with its columns",
        )
    return _of_checkpoint(
        resolve_checkpoint(model),
        read_config(model),
        task,
        data or _HUB,
        split,
        text_columns,
        label_column,
        max_length,
        LONGEST,
    )


def _of_export(
    folder: Path,
    task: str | None,
    data: str | None,
    split: str | None,
    text_columns: Sequence[str] | None,
    label_column: str | None,
    max_length: int | None,
) -> GateRows:
    """The rows that are named, else those that the exported model was measured on.

    Raises:
        LimbeckError: the latter are others by now.
    """
    manifest = read_export(folder, check=False)
    facts = manifest.gate
    length = max_length or manifest.max_length
    known = data is None and task in (None, facts.task)
    if known and split is None:
        split = facts.split
    if facts.recipe:
        recipe = Recipe.recorded({"method": "exported", **facts.recipe}, str(folder))
        rows = _of_recipe(
            recipe, str(folder), task, data, split, text_columns, label_column, length
        )
    else:
        rows = _of_checkpoint(
            str(folder),
            AutoConfig.from_pretrained(folder, trust_remote_code=False),
            task or facts.task,
            data or facts.data,
            split,
            text_columns or facts.text_columns or None,
            label_column or facts.label_column,
            length,
            LONGEST,
        )
    same = known and split == facts.split and not text_columns and not label_column
    if same and rows.fingerprint != facts.fingerprint:
        raise LimbeckError(
            f"data {rows.data}: its {rows.split} rows ({len(rows.rows)}) are not those that {folder} was "
            f"measured on ({facts.rows})",
            "name the rows to score on (--data FILE --split NAME), or export again with --overwrite",
        )
    return rows


def _of_recipe(
    recipe: Recipe,
    student: str,
    task: str | None,
    data: str | None,
    split: str | None,
    text_columns: Sequence[str] | None,
    label_column: str | None,
    max_length: int | None,
) -> GateRows:
    """The rows that are named, else those that a run by the recipe was scored on."""
    own = task is None or task == recipe.task
    texts = text_columns or (recipe.text_columns if own else None)
    label = label_column or (recipe.label_column if own else None)
    labelling = Labelling(teacher=names_at(student))
    if own:
        given = labelling_of(recipe.model_copy(update={"teacher": None, "teachers": None}))
        labelling = replace(given, teacher=names_at(student))
    source = str(data or recipe.data)
    refuse_absent_rows(source)
    target, splits = load_task(
        task or recipe.task,
        source,
        text_columns=texts,
        label_column=label,
        kind=recipe.kind if own or recipe.kind == "text" else None,
        labelling=labelling,
        for_training=own and data is None,
        max_rows=recipe.max_rows,
        division=recipe.division if own and data is None else Division(),
    )
    rows = _made(
        target, splits, source, split, student, max_length, recipe.max_length, texts, label
    )
    named = not own or data is not None or text_columns or label_column
    return rows if named else replace(rows, recipe=recipe.model_dump(mode="json", include=_ROWS))


def _of_checkpoint(
    path: str,
    config: PretrainedConfig,
    task: str | None,
    data: str,
    split: str | None,
    text_columns: Sequence[str] | None,
    label_column: str | None,
    max_length: int | None,
    usual: int,
) -> GateRows:
    target, splits = load_task(
        task,
        data,
        text_columns=text_columns,
        label_column=label_column,
        kind=wanted_kind(kind_of_config(config), task),
        labelling=Labelling(teacher=names_of(config)),
        for_training=False,
    )
    return _made(target, splits, data, split, path, max_length, usual, text_columns, label_column)


def _made(
    task: Task,
    splits: DatasetDict,
    data: str,
    split: str | None,
    path: str,
    asked: int | None,
    usual: int,
    text_columns: Sequence[str] | None,
    label_column: str | None,
) -> GateRows:
    chosen = split_to_score(task, splits, split)
    task = decided_by(task, AutoConfig.from_pretrained(path, trust_remote_code=False))
    processor = task.kind.reads.load(path)
    max_length = asked or task.kind.scored_length(usual)
    encoded, _ = encode(splits[chosen], task, processor, max_length)
    return GateRows(
        task=task,
        data=data,
        split=chosen,
        rows=splits[chosen],
        encoded=encoded,
        training=splits.get("train") if chosen != "train" else None,
        processor=processor,
        max_length=max_length,
        text_columns=tuple(text_columns or ()),
        label_column=label_column,
    )
