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
    NOTHING_NAMED,
    Collator,
    Labelling,
    RowsAsked,
    batches_of,
    encode,
    load_task,
    rows_fingerprint,
)
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.run.known_classes import names_at, names_of
from limbeck.run.model_predictions import decided_by
from limbeck.runtimes import is_export, read_export
from limbeck.scoring.scored_model import (
    HUB,
    LONGEST,
    rows_of_run,
    split_to_score,
    wanted_kind,
)
from limbeck.students import read_config, resolve_checkpoint
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.tasks import Processor, Results, Task, join, kind_of_config

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


def gate_rows(model: str, asked: RowsAsked = NOTHING_NAMED) -> GateRows:
    """The rows that are named, else those a run (or an exported model) was measured on.

    Args:
        model: a run's folder, an exported folder, or a checkpoint's folder or Hub name.
        asked: the rows; a length that is not named is what a run was trained with, else 512.

    Raises:
        LimbeckError: nothing says which rows, or they cannot be read as the model's task.
    """
    folder = at_home(model)
    if (folder / RECORD_NAME).is_file():
        record = Record.load(folder)
        if record.status != "finished":
            raise LimbeckError(f"run {folder} is {record.status}", "finish it first")
        recipe = Recipe.recorded(record.recipe, str(folder))
        return _of_recipe(recipe, str(folder / "student"), asked)
    if is_export(folder):
        return _of_export(folder, asked)
    if asked.task is None and asked.data is None:
        raise LimbeckError(
            f"{model} is no run of limbeck's, and a checkpoint does not say what to measure it on",
            "add --task and --data, say --task mrpc --data glue, or --data FILE with its columns",
        )
    return _of_checkpoint(resolve_checkpoint(model), read_config(model), asked)


def _of_export(folder: Path, asked: RowsAsked) -> GateRows:
    """The rows that are named, else those that the exported model was measured on.

    Raises:
        LimbeckError: the latter are others by now.
    """
    manifest = read_export(folder, check=False)
    facts = manifest.gate
    same = asked.are_those_of(facts.task) and asked.split in (None, facts.split)
    wanted = replace(asked, max_length=asked.max_length or manifest.max_length)
    if asked.data is None and asked.task in (None, facts.task):
        wanted = replace(wanted, split=asked.split or facts.split)
    if facts.recipe:
        recipe = Recipe.recorded({"method": "exported", **facts.recipe}, str(folder))
        rows = _of_recipe(recipe, str(folder), wanted)
    else:
        wanted = replace(
            wanted,
            task=asked.task or facts.task,
            data=asked.data or facts.data,
            text_columns=asked.text_columns or facts.text_columns or None,
            label_column=asked.label_column or facts.label_column,
        )
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        rows = _of_checkpoint(str(folder), config, wanted)
    if same and rows.fingerprint != facts.fingerprint:
        raise LimbeckError(
            f"data {rows.data}: its {rows.split} rows ({len(rows.rows)}) are not those that {folder} was "
            f"measured on ({facts.rows})",
            "name the rows to score on (--data FILE --split NAME), or export again with --overwrite",
        )
    return rows


def _of_recipe(recipe: Recipe, student: str, asked: RowsAsked) -> GateRows:
    """The rows that are named, else those that a run by the recipe was scored on."""
    elsewhere = Labelling(teacher=names_at(student))
    target, splits, wanted = rows_of_run(recipe, student, asked, elsewhere=elsewhere)
    rows = _made(target, splits, student, wanted, recipe.max_length)
    if not asked.are_those_of(recipe.task):
        return rows
    return replace(rows, recipe=recipe.model_dump(mode="json", include=_ROWS))


def _of_checkpoint(path: str, config: PretrainedConfig, asked: RowsAsked) -> GateRows:
    wanted = replace(asked, data=asked.data or HUB)
    target, splits = load_task(
        wanted.task,
        str(wanted.data),
        text_columns=wanted.text_columns,
        label_column=wanted.label_column,
        kind=wanted_kind(kind_of_config(config), wanted.task),
        labelling=Labelling(teacher=names_of(config)),
        for_training=False,
    )
    return _made(target, splits, path, wanted, LONGEST)


def _made(
    task: Task, splits: DatasetDict, path: str, asked: RowsAsked, usual_length: int
) -> GateRows:
    chosen = split_to_score(task, splits, asked.split)
    task = decided_by(task, AutoConfig.from_pretrained(path, trust_remote_code=False))
    processor = task.kind.reads.load(path)
    max_length = asked.max_length or task.kind.scored_length(usual_length)
    encoded, _ = encode(splits[chosen], task, processor, max_length)
    return GateRows(
        task=task,
        data=str(asked.data),
        split=chosen,
        rows=splits[chosen],
        encoded=encoded,
        training=splits.get("train") if chosen != "train" else None,
        processor=processor,
        max_length=max_length,
        text_columns=tuple(asked.text_columns or ()),
        label_column=asked.label_column,
    )
