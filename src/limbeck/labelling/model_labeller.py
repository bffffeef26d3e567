"""Hugging Face models of texts as labellers: a fine-tuned model's outputs. Part of `limbeck.labelling`."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck import preflight
from limbeck.activations import Request, Trace
from limbeck.data import Collator
from limbeck.data.row_ids import row_ids
from limbeck.embedding import embedding_width
from limbeck.functional.partial_logits import CHOICES, KeptTokens
from limbeck.objectives import ModelShape
from limbeck.outputs import building, key
from limbeck.outputs.columns import (
    IDS,
    INDEX,
    LOGITS,
    PROBABILITIES,
    REST,
    VALUES,
    Ask,
    ModelOutputs,
    OutputColumn,
    OutputLayout,
    name_of_key,
    places,
    storage_type,
)
from limbeck.students import class_places, generic_labels, labels_of
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.support.positions import positions_of
from limbeck.tasks import SENTENCE, TEXT, TEXT_READING, Processor, Task, TaskType, task_type_of
from limbeck.tasks.rules import CUT, thresholds_of
from limbeck.teachers.labeller import Row, Scores
from limbeck.teachers.teacher import Teacher

USUAL = "top64"
"""The kept part of a text-to-text model's vocabulary by default."""


class _TextModel:
    """A model of texts, its tokenizer, and its settings.

    Args:
        model: fine-tuned.
        tokenizer: its own.
        kind: how rows are encoded.
        name: its name in the store.
        max_length: tokens it reads of a row.
        precision: fp32, or bf16 autocast.
        batch_size: rows of a pass.

    Attributes:
        truncated: of the rows in the last call of `score`, the indices of rows longer than `max_length`.

    Raises:
        LimbeckError: a tokenizer that cannot be used, or the problems that are given.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Processor,
        kind: TaskType,
        problems: Sequence[Problem] = (),
        *,
        name: str,
        max_length: int = 128,
        precision: str = "fp32",
        batch_size: int = 64,
    ) -> None:
        self.name, self.batch_size, self.precision = name, batch_size, precision
        self.max_length = min(max_length, positions_of(model) or max_length)
        found = [*problems, *TEXT_READING.problems(tokenizer, self.max_length, 1)]
        fits = preflight.model_checks.check_vocabulary(f"teacher {name}", model, tokenizer)
        found += [one for one in fits if one.severity == "error"]
        raise_problems(found)
        self.truncated: frozenset[int] = frozenset()
        self._tokenizer, self._type = tokenizer, kind
        self._collate = Collator(tokenizer, kind=kind)
        self._teacher = Teacher(model)
        self._digest: str | None = None

    def to(self, device: torch.device | str) -> Self:
        """Move the model. Returns itself."""
        self._teacher.to(device)
        return self

    def fingerprint(self) -> dict[str, Any]:
        """Digests of the model and of its tokenizer, the length limit and the precision."""
        self._digest = self._digest or key.digest_of_model(self._teacher.model)
        return {
            "model": self._digest,
            "tokenizer": key.digest_of_tokenizer(self._tokenizer),
            "max_length": self.max_length,
            "precision": self.precision,
        }

    def _pass(self, task: Task, columns: dict[str, list[Any]], request: Request) -> Trace:
        """One pass over some rows, by column, which hold `index`."""
        encoded = self._type.encode(task, self._tokenizer, self.max_length, columns)
        self.truncated = frozenset(place for place, cut in enumerate(encoded[CUT]) if cut)
        names = [name for name in encoded if name != CUT]
        rows = zip(*(encoded[name] for name in names), strict=True)
        batch = self._collate([dict(zip(names, row, strict=True)) for row in rows])
        moved = {name: value.to(self._teacher.device) for name, value in batch.items()}
        return building.ask(self._teacher, moved, request, self.precision)


class ModelLabeller(_TextModel):
    """A model that answers a text with classes or a number, and its tokenizer.

    Args:
        model: fine-tuned; a head is used only if logits or probabilities are requested.
        tokenizer: its own.
        name: its name in the store.
        outputs: words of `--outputs`; by default its logits and, with classes, its probabilities.
        classes: names in id order, if the model has no names of its own.
        settings: max_length (128; at most as many tokens as it has positions), precision, batch_size.

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
        classes: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        kind, numbers = task_type_of(model), model.config.num_labels == 1
        asked = outputs or ((LOGITS,) if numbers else (LOGITS, PROBABILITIES))
        self._asked = ModelOutputs.parse(asked, model)
        answers = self._asked.request.logits
        problems = []
        if answers and (kind.problem_of(numbers) is None or kind.reads is not TEXT_READING):
            said = (
                f"teacher {name} is of task type {kind.name}: it gives no class or number of a text"
            )
            fix = "label with a model for sequence classification, or request only hidden states"
            if embedding_width(model):
                fix += "; limbeck predict MODEL FILE --output embeddings writes its embeddings"
            problems.append(Problem(said, fix))
        if self._asked.probabilities and numbers:
            problems.append(
                Problem(
                    f"outputs: teacher {name} answers with a number, which has no probabilities",
                    "request logits",
                )
            )
        read_as = kind if answers else SENTENCE
        super().__init__(model, tokenizer, read_as, problems, name=name, **settings)
        self.kind = read_as.name
        own = labels_of(model.config) if answers and not numbers else ()
        if own and classes and class_places(own, classes) is None:
            raise LimbeckError(
                f"teacher {name} has the classes {', '.join(own)}, the task has {', '.join(classes)}",
                "label with a teacher of this task, or name the task that it is of",
            )
        self.classes = tuple(classes) if own and classes and generic_labels(own) else own

    @property
    def outputs(self) -> tuple[str, ...]:
        """Logits, probabilities, then layers."""
        own = [LOGITS] * self._asked.logits + [PROBABILITIES] * self._asked.probabilities
        return (*own, *sorted(map(name_of_key, self._asked.request.items)))

    @property
    def shape(self) -> dict[str, Any]:
        """The shape of the model's layers."""
        return ModelShape.of(self._teacher.model).written()

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The model's own, of several labels a row; otherwise none."""
        return thresholds_of(self._teacher.config) or ()

    def score(self, rows: Sequence[Row]) -> Scores:
        """One pass: logits and probabilities in float32 (B, C), layers in float16 unless float32 is requested."""
        columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in rows[0]}
        task = Task(self.name, self.name, tuple(rows[0]), self.classes, (), "", kind=self._type)
        columns[INDEX] = [*range(len(rows))]
        trace = self._pass(task, columns, self._asked.request)
        found: dict[str, np.ndarray] = {}
        if trace.logits is not None:
            logits = trace.logits.float().cpu().numpy()
            if self._asked.logits:
                found[LOGITS] = logits
            if self._asked.probabilities:
                found[PROBABILITIES] = self._type.probabilities(logits).astype(np.float32)
        layers = Ask(Request(self._asked.request.items), self._asked.exact)
        return found | _values(Trace(values=trace.values, masks=trace.masks), layers)


def _values(trace: Trace, asked: Ask) -> dict[str, np.ndarray]:
    """By column a batch's captured activations, as they are stored."""
    masks = {name: mask.cpu() for name, mask in trace.masks.items()}
    columns = OutputLayout.of(trace, asked).columns
    return {column.name: _stored(column, column.of(trace), masks) for column in columns}


def _stored(column: OutputColumn, value: Tensor, masks: dict[str, Tensor]) -> np.ndarray:
    """A batch's values as the column has them, where they have tokens each row's own without padding."""
    cast = value.detach().to(storage_type(column)).cpu()
    if column.fixed:
        return cast.numpy()
    found = np.empty(len(cast), dtype=object)
    for row, own in enumerate(places(masks)):
        found[row] = cast[row][column.among_padding(own)].numpy()
    return found


class TargetLabeller(_TextModel):
    """An encoder-decoder that is fine-tuned to write labels: part of its vocabulary's logits at every target token.

    Its decoder reads the target (teacher forcing), as in training. Which tokens are sampled of a row follows from the
    row's id alone.

    Args:
        model: with a language head.
        tokenizer: its own.
        name: its name in the store.
        task: the name with which prompts begin.
        outputs: one `logits:PART` (`limbeck.functional.partial_logits`), by default `logits:top64`.
        settings: as `ModelLabeller`'s; `max_length` is of a prompt.

    Raises:
        LimbeckError: no such part of the vocabulary, or a tokenizer that cannot be used.
    """

    kind = TEXT.name
    classes: tuple[str, ...] = ()
    outputs = (IDS, VALUES, REST)

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Processor,
        *,
        name: str,
        task: str,
        outputs: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self.task = task
        word, *more = dict.fromkeys(outputs or (f"{LOGITS}:{USUAL}",))
        if more or not word.startswith(f"{LOGITS}:"):
            raise LimbeckError(
                f"outputs: {', '.join([word, *more])} of teacher {name}, which is text-to-text: a store keeps one part "
                "of its logits over the vocabulary, at every token of a target",
                f"choices: {LOGITS}:{CHOICES}",
            )
        self._kept = KeptTokens.parse(word.removeprefix(f"{LOGITS}:"))
        head: Any = model.get_output_embeddings()
        self._vocabulary = int(head.weight.shape[0])
        problems = []
        if self._kept.how == "top" and self._kept.count > self._vocabulary:
            problems.append(
                Problem(
                    f"outputs: {word} of teacher {name}, whose vocabulary has {self._vocabulary:,} tokens",
                    f"keep at most {self._vocabulary}",
                )
            )
        super().__init__(model, tokenizer, TEXT, problems, name=name, **settings)

    @property
    def kept_tokens(self) -> tuple[str, int]:
        """The rule of the kept tokens, and the vocabulary's size."""
        return str(self._kept), self._vocabulary

    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the model with its settings, and the task's name in the prompts."""
        return super().fingerprint() | {"task": self.task}

    def score(self, rows: Sequence[Row]) -> Scores:
        """One pass: ids, numbers and the rest at every token of each row's target, the last of its columns."""
        *names, target = rows[0]
        columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in rows[0]}
        words = [*dict.fromkeys(columns[target])]
        task = Task(
            self.task, self.task, tuple(names), tuple(words), (), "", label_column=target, kind=TEXT
        )  # fmt: skip
        ids = row_ids([*columns.values()]).tolist()
        columns |= {target: [words.index(word) for word in columns[target]], INDEX: ids}
        trace = self._pass(task, columns, Request.of_logits(self._kept))
        return _values(trace, Ask(Request()))
