"""How a task type's rows become examples, and a model's outputs the values of columns. Part of `limbeck.predicting`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, get_args

import numpy as np
import pyarrow as pa
from scipy.special import expit, softmax
from scipy.stats import rankdata
from torch import Tensor

from limbeck.predicting.about_model import AboutModel
from limbeck.predicting.model import PassOutputs, RowModel
from limbeck.predicting.settings import Output
from limbeck.support.errors import LimbeckError
from limbeck.support.plain import encodable
from limbeck.tasks import Processor, Task, TaskType
from limbeck.tasks.rules import CUT, USUAL, Rows, thresholds_of

LABELS, SCORES, RANKS, PROBABILITIES, LOGITS, EMBEDDINGS = get_args(Output)
PREDICTION, SCORE, RANK, EMBEDDING = "prediction", "score", "rank", "embedding"
ANSWERED_BY = "answered_by"
"""For a cascade the member that predicted a row."""
_FLOATS = pa.list_(pa.float32())


@dataclass(frozen=True)
class ReadRows:
    """Some rows that the model has read.

    Attributes:
        texts: the texts that were read, by column.
        encoded: the examples that they became, by column.
        kept: the kept part of the model's outputs, by example.
        processor: the model's.
    """

    texts: Sequence[list[Any]]
    encoded: Rows
    kept: list[Any]
    processor: Processor


class RowReader(ABC):
    """Reads the rows of one task type.

    Attributes:
        kind: the task type whose examples are made.
        outputs: its outputs, except for embeddings.
        one_pass: whether a row is one example, so that it has one embedding.
    """

    outputs: ClassVar[tuple[str, ...]]
    one_pass: ClassVar[bool] = True
    unread: ClassVar[tuple[str, ...]] = ()
    """Columns of encoded rows that never reach a batch."""
    expects: ClassVar[str] = "text that UTF-8 can hold"
    """A row's texts."""

    def __init__(self, facts: AboutModel, kind: TaskType, columns: int) -> None:
        self.facts = facts
        self.kind = kind
        self.thresholds = thresholds_of(facts.model.config) if facts.multi_label else None
        # The prompt of a text-to-text model holds the names that its task type has.
        names: tuple[str, ...] = ("sentence",) if columns == 1 else ("sentence1", "sentence2")
        if facts.task is not None and len(facts.task.text_columns) == columns:
            names = facts.task.text_columns
        said = facts.task_name or "rows"
        self.task = Task(said, facts.name, names, facts.classes, (), "", kind=kind)

    def reads(self, value: Any, column: int) -> bool:
        """Whether an input, of one of the columns that the model reads, is of the form that it reads."""
        return isinstance(value, str) and encodable(value)

    @property
    def rows_at_once(self) -> int | None:
        """Rows that are encoded at once; None: all, where a row is an example or a few."""
        return None

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """Examples of some rows, each with its row's place as `index`, and how many lost text to the length limit."""
        rows: Rows = dict(zip(self.task.text_columns, texts, strict=True))
        rows["index"] = list(range(len(texts[0])))
        encoded = dict(self.kind.encode(self.task, model.processor, model.max_length, rows))
        return encoded, sum(encoded.pop(CUT))

    def check(self, asked: frozenset[str]) -> None:  # noqa: B027  most rows have one form
        """Raise LimbeckError for what rows of the form that was found do not have."""

    def run(
        self, model: RowModel, batch: Mapping[str, Tensor], asked: frozenset[str], pool: Any
    ) -> PassOutputs:
        """One pass with the requested outputs."""
        wants = asked & {LABELS, SCORES, RANKS, PROBABILITIES, LOGITS}
        return model.run(batch, logits=bool(wants), pool=pool if EMBEDDINGS in asked else None)

    def kept(self, outputs: PassOutputs, batch: Mapping[str, Tensor]) -> list[Any]:
        """The kept outputs of each example of a batch, until its row is complete."""
        if outputs.logits is None:
            return [None] * len(outputs.embeddings if outputs.embeddings is not None else ())
        return list(outputs.logits)

    @abstractmethod
    def values(self, read: ReadRows) -> dict[str, list[Any]]:
        """All columns that there can be but embeddings, with a value for each row."""

    @abstractmethod
    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """The requested columns except for embeddings, in their order, and their Arrow types."""

    def all_types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Those of embeddings, and of a cascade's members, too."""
        found = self.types(asked)
        if self.facts.model.cascade is not None:
            found[ANSWERED_BY] = pa.string()
        return found | {EMBEDDING: _FLOATS} if EMBEDDINGS in asked else found

    def named(self, types: Sequence[pa.DataType], asked: frozenset[str]) -> dict[str, pa.DataType]:
        """The requested columns, of a type for each of `outputs`."""
        names = {LABELS: PREDICTION, SCORES: SCORE, RANKS: RANK}
        given = zip(self.outputs, types, strict=True)
        return {names.get(one, one): kind for one, kind in given if one in asked}

    def by_class(self, numbers: np.ndarray) -> dict[str, float]:
        """Class → number."""
        return dict(zip(self.facts.classes, numbers.tolist(), strict=True))

    @property
    def class_struct(self) -> pa.DataType:
        """The type of `by_class`."""
        return pa.struct([(name, pa.float32()) for name in self.facts.classes])


class EmbeddingReader(RowReader):
    """Hidden states alone, of a model of any task type, of texts behind the model's own prompt if there is one."""

    outputs = ()

    def __init__(self, facts: AboutModel, kind: TaskType, columns: int, prompt: str = "") -> None:
        super().__init__(facts, kind, columns)
        self._prompt = prompt

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """As others, of the prompted texts."""
        return super().encode(model, [[self._prompt + one for one in column] for column in texts])

    def values(self, read: ReadRows) -> dict[str, list[Any]]:
        """No columns except for embeddings."""
        return {}

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """No columns except for embeddings."""
        return {}


# Rows of one class or several: sentences, pairs, images.


class ClassReader(RowReader):
    """A classifier's rows; of a multi-label one each row has a list of classes."""

    outputs = (LABELS, SCORES, PROBABILITIES, LOGITS)

    def values(self, read: ReadRows) -> dict[str, list[Any]]:
        """Class names, their probabilities, all probabilities, all logits."""
        if not read.kept or read.kept[0] is None:
            return {}
        logits = np.stack(read.kept)
        probabilities = (
            expit(logits.astype(np.float64)) if self.facts.multi_label else softmax(logits, axis=1)
        )
        many, classes = self.facts.multi_label, self.facts.classes
        thresholds = np.array(self.thresholds or [USUAL] * probabilities.shape[1])
        chosen = (
            [np.flatnonzero(row >= thresholds) for row in probabilities]
            if many
            else [*logits.argmax(axis=1)[:, None]]
        )
        names = [[classes[one] for one in ones] for ones in chosen]
        likely = [row[ones].tolist() for row, ones in zip(probabilities, chosen, strict=True)]
        return {
            PREDICTION: names if many else [one[0] for one in names],
            SCORE: likely if many else [one[0] for one in likely],
            PROBABILITIES: [self.by_class(row) for row in probabilities],
            LOGITS: [self.by_class(row) for row in logits],
        }

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Text, numbers, and a struct by class."""
        many = pa.list_ if self.facts.multi_label else (lambda one: one)
        by_class = self.class_struct
        types = (many(pa.string()), many(pa.float32()), by_class, by_class)
        return self.named(types, asked)


# A number for a row: a regression's, a reranker's of pairs and lists of candidates.


_LISTED = 1
"""The column, of a pair's two, that may hold lists."""
_LISTS = 64
"""Rows with lists that are encoded at once."""


class NumberReader(RowReader):
    """A number for every row, of one text or of a pair.

    The second text of a pair may be a list, a query's passages: each of them is paired with the first text, and the row
    has a list of numbers, None for a text that is missing.
    """

    outputs = (LABELS, RANKS)
    expects = "text that UTF-8 can hold; of a pair's second one a list of texts in every row, or text in every row"

    of_lists: bool | None = None
    """Whether the second column holds lists; the first row decides."""

    def reads(self, value: Any, column: int) -> bool:
        """A text, or in the second column the same type as in the row before."""
        if column != _LISTED:
            return super().reads(value, column)
        if self.of_lists is None:
            self.of_lists = isinstance(value, list)
        if not self.of_lists:
            return super().reads(value, column)
        return isinstance(value, list) and all(
            text is None or super(NumberReader, self).reads(text, column) for text in value
        )

    def check(self, asked: frozenset[str]) -> None:
        """Raise LimbeckError for ranks of values that are no list, and for embeddings of lists."""
        if RANKS in asked and not self.of_lists:
            raise LimbeckError(
                "output ranks: they are given to the texts of a list, and every row holds one pair or one text",
                'give rows {"query": "…", "passages": ["…", "…"]}, or request labels',
            )
        if EMBEDDINGS in asked and self.of_lists:
            raise LimbeckError(
                "output embeddings: a row with a list of texts has no embedding",
                "give a pair on each row, or request labels and ranks",
            )

    @property
    def rows_at_once(self) -> int | None:
        """Some: a row may have hundreds of pairs."""
        return _LISTS if self.of_lists else None

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """An example for every row, or for every text of its list."""
        if not self.of_lists:
            return super().encode(model, texts)
        pairs = [
            (one, other)
            for one, listed in zip(*texts, strict=True)
            for other in listed
            if other is not None
        ]
        if not pairs:
            return {"index": []}, 0
        return super().encode(model, [list(column) for column in zip(*pairs, strict=True)])

    def values(self, read: ReadRows) -> dict[str, list[Any]]:
        """The numbers themselves; of lists also their ranks."""
        if not self.of_lists:
            return {PREDICTION: [None if one is None else float(one[0]) for one in read.kept]}
        numbers = iter([float(one[0]) for one in read.kept])
        found: dict[str, list[Any]] = {PREDICTION: [], RANK: []}
        for listed in read.texts[_LISTED]:
            there = [place for place, text in enumerate(listed) if text is not None]
            own = np.array([*islice(numbers, len(there))])
            # Equal scores share the better rank, so that none depends on the list's order.
            for name, numbered in ((PREDICTION, own), (RANK, rankdata(-own, method="min"))):
                one: list[Any] = [None] * len(listed)
                for place, value in zip(there, numbered.tolist(), strict=True):
                    one[place] = value
                found[name].append(one)
        return found

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """A number, or a list of them."""
        number = pa.float32()
        return self.named(
            (pa.list_(number) if self.of_lists else number, pa.list_(pa.int32())), asked
        )


# Images: files by their paths, or the bytes of files.


class ImageReader(ClassReader):
    """An image classifier's rows; only hidden states may be requested too."""

    expects = "an image: a file's path, its bytes, or {bytes, path} as the datasets library has it"

    def reads(self, value: Any, column: int) -> bool:
        """A path, bytes, or both as the datasets library has it."""
        if isinstance(value, dict):
            return bool(value.get("bytes") or value.get("path"))
        return isinstance(value, str | bytes)

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """Each image at the processor's size."""
        (images,) = texts
        return super().encode(model, [[_picture(image) for image in images]])


def _picture(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"bytes": value.get("bytes"), "path": value.get("path")}
    if isinstance(value, bytes):
        return {"bytes": value, "path": None}
    return {"bytes": None, "path": value}
