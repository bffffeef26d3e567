"""A fine-tuned Hugging Face model as a labeller of texts. Part of `limbeck.labelling`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck import preflight
from limbeck.activations import Request, Trace
from limbeck.data import Collator
from limbeck.objectives import ModelShape
from limbeck.outputs import Ask, digest_of_model, digest_of_tokenizer
from limbeck.outputs.building import ask
from limbeck.outputs.columns import (
    LOGITS,
    ModelOutputs,
    OutputColumn,
    OutputLayout,
    name_of_key,
    places,
    storage_type,
)
from limbeck.outputs.shards import PROBABILITIES
from limbeck.students import class_places, generic_labels, labels_of
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import SENTENCE, TEXT_READING, Processor, Task, task_type_of
from limbeck.tasks.rules import CUT
from limbeck.teachers.labeller import Row, Scores
from limbeck.teachers.teacher import Teacher


class ModelLabeller:
    """A model that answers a text with classes or a number, and its tokenizer.

    Args:
        model: fine-tuned; a head is used only where logits or probabilities are asked for.
        tokenizer: its own.
        name: what the store calls it.
        outputs: words of `--outputs`; by default its logits and, with classes, its probabilities.
        max_length: tokens it reads of a row; at most as many as it has positions.
        precision: fp32, or bf16 autocast.
        batch_size: rows of a pass.
        classes: names in id order, where the model has none of its own.

    Attributes:
        truncated: of the rows that `score` was given last, the places of those that are longer than `max_length`.

    Raises:
        LimbeckError: a model of another task type, outputs it does not have, a tokenizer that cannot be used.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Processor,
        *,
        name: str,
        outputs: Sequence[str] | None = None,
        max_length: int = 128,
        precision: str = "fp32",
        batch_size: int = 64,
        classes: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.batch_size = batch_size
        self.precision = precision
        kind = task_type_of(model)
        numbers = model.config.num_labels == 1
        asked = outputs or ((LOGITS,) if numbers else (LOGITS, PROBABILITIES))
        self._asked = ModelOutputs.parse(asked, model)
        answers = self._asked.request.logits
        problems = []
        if answers and kind.embeds:
            problems.append(
                Problem(
                    f"teacher {name} is of task type {kind.name}: it gives no class or number of a text",
                    "write its embeddings with limbeck predict MODEL FILE --output embeddings, or ask for hidden "
                    "states alone; a student reads the model itself (--teacher)",
                )
            )
        elif answers and not (kind.constant and kind.reads is TEXT_READING):
            problems.append(
                Problem(
                    f"teacher {name} is of task type {kind.name}: it gives no class or number of a text",
                    "label with a model for sequence classification, or ask for hidden states alone",
                )
            )
        if self._asked.probabilities and numbers:
            problems.append(
                Problem(
                    f"outputs: teacher {name} answers with a number, which has no probabilities",
                    "ask for logits",
                )
            )
        self.max_length = min(max_length, preflight.positions_of(model) or max_length)
        problems += TEXT_READING.problems(tokenizer, self.max_length, 1)
        found = preflight.check_vocabulary(f"teacher {name}", model, tokenizer)
        problems += [one for one in found if one.severity == "error"]
        if problems:
            raise LimbeckError(problems)
        self._type = kind if answers else SENTENCE
        self.kind = self._type.name
        self.classes = () if numbers or not answers else _classes(model, classes, name)
        self._tokenizer = tokenizer
        self._collate = Collator(tokenizer, kind=self._type)
        self._teacher = Teacher(model)
        self._fingerprint: dict[str, Any] | None = None
        self.truncated: frozenset[int] = frozenset()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Logits, probabilities, then layers."""
        own = [LOGITS] * self._asked.logits + [PROBABILITIES] * self._asked.probabilities
        return (*own, *sorted(map(name_of_key, self._asked.request.items)))

    def to(self, device: torch.device | str) -> ModelLabeller:
        """Move the model. Returns itself."""
        self._teacher.to(device)
        return self

    @property
    def shape(self) -> dict[str, Any]:
        """Of the model's layers."""
        return ModelShape.of(self._teacher.model).written()

    def fingerprint(self) -> dict[str, Any]:
        """Digests of the model and of its tokenizer, the length limit and the precision."""
        if self._fingerprint is None:
            self._fingerprint = {
                "model": digest_of_model(self._teacher.model),
                "tokenizer": digest_of_tokenizer(self._tokenizer),
                "max_length": self.max_length,
                "precision": self.precision,
            }
        return self._fingerprint

    def score(self, rows: Sequence[Row]) -> Scores:
        """One pass: logits and probabilities in float32 (B, C), layers in float16 unless float32 is asked for."""
        trace = self._pass(rows)
        found: dict[str, np.ndarray] = {}
        if trace.logits is not None:
            logits = trace.logits.float().cpu()
            if self._asked.logits:
                found[LOGITS] = logits.numpy()
            if self._asked.probabilities:
                likely = self._type.probabilities(logits.numpy())
                found[PROBABILITIES] = likely.astype(np.float32)
        layers = Request(self._asked.request.items)
        seen = Trace(values=trace.values, masks=trace.masks)
        return found | values_of(seen, OutputLayout.of(seen, Ask(layers, self._asked.exact)))

    def _pass(self, rows: Sequence[Row]) -> Trace:
        columns = tuple(rows[0])
        task = Task(self.name, self.name, columns, self.classes, (), "", kind=self._type)
        texts: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in columns}
        numbered = texts | {"index": [*range(len(rows))]}
        batch, self.truncated = labelled_batch(self._collate, task, self.max_length, numbered)
        moved = {name: value.to(self._teacher.device) for name, value in batch.items()}
        return ask(self._teacher, moved, self._asked.request, self.precision)


def values_of(trace: Trace, layout: OutputLayout) -> dict[str, np.ndarray]:
    """By column what a batch's trace holds, as it is stored."""
    masks = {name: mask.cpu() for name, mask in trace.masks.items()}
    return {column.name: _stored(column, column.of(trace), masks) for column in layout.columns}


def _stored(column: OutputColumn, value: Tensor, masks: dict[str, Tensor]) -> np.ndarray:
    """A batch's values as the column has them, where they have tokens each row's own without padding."""
    cast = value.detach().to(storage_type(column)).cpu()
    if column.fixed:
        return cast.numpy()
    found = np.empty(len(cast), dtype=object)
    for row, own in enumerate(places(masks)):
        found[row] = cast[row][column.among_padding(own)].numpy()
    return found


def _classes(model: PreTrainedModel, given: Sequence[str], name: str) -> tuple[str, ...]:
    """The model's own names, or, where it has none, those that are given.

    Raises:
        LimbeckError: another number is given, or other names than the model's.
    """
    own = labels_of(model.config)
    if not given:
        return own
    if class_places(own, given) is None:
        raise LimbeckError(
            f"teacher {name} has the classes {', '.join(own)}, the task has {', '.join(given)}",
            "label with a teacher of this task, or name the task that it is of",
        )
    return tuple(given) if generic_labels(own) else own


# Rows that a model is asked about, as a batch.


class LabelledBatch(NamedTuple):
    """Attributes: what the model reads; the places of the rows that the length limit cut."""

    batch: dict[str, Tensor]
    truncated: frozenset[int]


def labelled_batch(
    collate: Collator, task: Task, max_length: int, texts: Mapping[str, list[Any]]
) -> LabelledBatch:
    """Some rows, by column, which hold `index`, encoded by the collator's tokenizer."""
    encoded = task.kind.encode(task, collate.tokenizer, max_length, dict(texts))
    cut = frozenset(place for place, was in enumerate(encoded[CUT]) if was)
    names = [name for name in encoded if name != CUT]
    values = zip(*(encoded[name] for name in names), strict=True)
    return LabelledBatch(collate([dict(zip(names, row, strict=True)) for row in values]), cut)
