"""How a task type's rows become examples, and a model's outputs the values of columns. Part of `limbeck.predicting`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from torch import Tensor

from limbeck.predicting.about_model import AboutModel
from limbeck.predicting.row_model import PassOutputs, RowModel
from limbeck.support.errors import LimbeckError
from limbeck.support.plain import encodable
from limbeck.tasks import Processor, Task, TaskType
from limbeck.tasks.rules import CUT
from limbeck.tasks.task_like import Rows

LABELS, SCORES, RANKS, PROBABILITIES, LOGITS, EMBEDDINGS = OUTPUTS = (
    "labels",
    "scores",
    "ranks",
    "probabilities",
    "logits",
    "embeddings",
)
PREDICTION, SCORE, RANK, EMBEDDING = "prediction", "score", "rank", "embedding"
_FLOATS = pa.list_(pa.float32())


@dataclass(frozen=True)
class ReadRows:
    """Some rows that the model has read.

    Attributes:
        texts: what was read of them, by column.
        encoded: the examples that they became, by column.
        kept: what was kept of the model's outputs, by example.
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
        outputs: what it gives of `OUTPUTS`, besides embeddings.
        one_pass: whether a row is one example, so that it has one embedding.
    """

    outputs: ClassVar[tuple[str, ...]]
    one_pass: ClassVar[bool] = True
    unread: ClassVar[tuple[str, ...]] = ()
    """Columns of encoded rows that never reach a batch."""
    expects: ClassVar[str] = "text that UTF-8 can hold"
    """What a row holds."""

    def __init__(self, facts: AboutModel, kind: TaskType, columns: int) -> None:
        self.facts = facts
        self.kind = kind
        names = _names(facts, columns)
        self.task = Task(
            facts.task_name or "rows",
            facts.name,
            names,
            facts.classes,
            (),
            "",
            kind=kind,
        )

    def reads(self, value: Any, column: int) -> bool:
        """Whether an input, of one of the columns that the model reads, is of the form that it reads."""
        return isinstance(value, str) and encodable(value)

    def pieces(self, texts: Sequence[list[Any]]) -> Iterator[slice]:
        """The rows that are encoded at once; all where a row is an example or a few."""
        yield slice(0, len(texts[0]))

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
        """One pass that gives what is asked for."""
        wants = asked & {LABELS, SCORES, RANKS, PROBABILITIES, LOGITS}
        return model.run(batch, logits=bool(wants), pool=pool if EMBEDDINGS in asked else None)

    def kept(self, outputs: PassOutputs, batch: Mapping[str, Tensor]) -> list[Any]:
        """What is kept of each example of a batch, until its row is whole."""
        if outputs.logits is None:
            return [None] * len(outputs.embeddings if outputs.embeddings is not None else ())
        if not np.isfinite(outputs.logits).all():
            raise LimbeckError(
                f"{self.facts.name} gives outputs that are no finite numbers",
                "its weights are damaged or have diverged: train it again, or use fp32",
            )
        return list(outputs.logits)

    @abstractmethod
    def values(self, read: ReadRows, asked: frozenset[str]) -> dict[str, list[Any]]:
        """The columns of what is asked for but embeddings, with a value for each row."""

    @abstractmethod
    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """The columns of what is asked for but embeddings, in their order, and Arrow's types of them."""

    def all_types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Those of embeddings too."""
        found = self.types(asked)
        return found | {EMBEDDING: _FLOATS} if EMBEDDINGS in asked else found

    def by_class(self, numbers: np.ndarray) -> dict[str, float]:
        """Class → number."""
        return dict(zip(self.facts.classes, numbers.tolist(), strict=True))

    @property
    def class_struct(self) -> pa.DataType:
        """The type of `by_class`."""
        return pa.struct([(name, pa.float32()) for name in self.facts.classes])


def _names(facts: AboutModel, columns: int) -> tuple[str, ...]:
    """What the task type calls the columns; the prompt of a text-to-text model holds these names."""
    if facts.task is not None and len(facts.task.text_columns) == columns:
        return facts.task.text_columns
    return ("sentence",) if columns == 1 else ("sentence1", "sentence2")


class EmbeddingReader(RowReader):
    """Hidden states alone, of a model of any task type."""

    outputs = ()

    def values(self, read: ReadRows, asked: frozenset[str]) -> dict[str, list[Any]]:
        """Nothing beside embeddings."""
        return {}

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Nothing beside embeddings."""
        return {}


class PromptedReader(EmbeddingReader):
    """Embeddings of a model that puts a text of its own before every text."""

    def __init__(self, facts: AboutModel, kind: TaskType, columns: int, prompt: str) -> None:
        super().__init__(facts, kind, columns)
        self.prompt = prompt

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """As others, of the prompted texts."""
        prompted = [[self.prompt + text for text in column] for column in texts]
        return super().encode(model, prompted)
