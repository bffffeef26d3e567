"""Some rows in, their predictions out: encoded, batched by length, put back into their order. Part of
`limbeck.predicting`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from limbeck.data import Collator, batches_of
from limbeck.data.files import TakenRows
from limbeck.predicting.model import RowModel
from limbeck.predicting.readers import ANSWERED_BY, EMBEDDING, EMBEDDINGS, ReadRows, RowReader
from limbeck.predicting.settings import PredictSettings
from limbeck.runtimes.cascade import CascadeManifest
from limbeck.scoring.stored_member import SENT_ON, StoredMember
from limbeck.support.errors import LimbeckError
from limbeck.support.words import short_names
from limbeck.tasks.rules import Rows

Advance = Callable[[float], None]


@dataclass(frozen=True)
class PredictedRows:
    """Rows with their predictions.

    Attributes:
        rows: as they were read.
        columns: of each output, by the name it is written under, a value for every row, None for one without text.
        blank: how many have no text.
        cut: how many examples lost text to the length limit.
        sent: how many rows of a cascade no model answered.
    """

    rows: TakenRows
    columns: dict[str, list[Any]]
    blank: int
    cut: int
    sent: int = 0


@dataclass(frozen=True)
class ChunkPass:
    """Predicts rows, as many at a time as it is given.

    Attributes:
        reader: of the model's task type.
        models: loaded; of a cascade its members, the fastest first.
        columns: of the rows that hold the model's input.
        settings: the user's.
        stored: of a cascade whose last member is stored outputs.
    """

    reader: RowReader
    models: Sequence[RowModel]
    columns: Sequence[str]
    settings: PredictSettings
    stored: StoredMember | None = None

    def predict(
        self, rows: TakenRows, place: Callable[[int], str], advance: Advance = lambda rows: None
    ) -> PredictedRows:
        """Predictions of some rows, in their order.

        Args:
            rows: at least one.
            place: one row's name in messages.
            advance: called with the number of further rows that are done.

        Raises:
            LimbeckError: an input that is no text (or image), or outputs that are no finite numbers.
        """
        inputs = [[_or_none(value) for value in rows.values(name)] for name in self.columns]
        filled = self._filled(inputs, place)
        advance(len(rows) - len(filled))
        texts = [[column[row] for row in filled] for column in inputs]
        found: dict[str, list[Any]] = {}
        cut = 0
        # Piece by piece, so that memory holds the examples of one.
        size = self.reader.rows_at_once or len(rows)
        for start in range(0, len(filled), size):
            values, lost = self._of([column[start : start + size] for column in texts], advance)
            for name, column in values.items():
                found.setdefault(name, []).extend(column)
            cut += lost
        columns: dict[str, list[Any]] = {}
        for name in self.reader.all_types(self.settings.asked):
            column = [None] * len(rows)
            for row, value in zip(filled, found.get(name, ()), strict=False):
                column[row] = value
            columns[self.settings.prefix + name] = column
        sent = found.get(ANSWERED_BY, []).count(SENT_ON)
        return PredictedRows(rows, columns, len(rows) - len(filled), cut, sent)

    def _of(self, texts: list[list[Any]], advance: Advance) -> tuple[dict[str, list[Any]], int]:
        self.reader.check(self.settings.asked)
        first = self.models[0]
        encoded, kept, pooled, cut = self._pass(first, texts, advance)
        own: dict[str, list[Any]] = {}
        if (cascade := self.reader.facts.model.cascade) is not None:
            kept, own[ANSWERED_BY] = self._sent_on(cascade, texts, kept)
        read = ReadRows(texts, encoded, kept, first.processor)
        found = self.reader.values(read)
        if SENT_ON in (by := own.get(ANSWERED_BY, [])):
            found = {
                name: [
                    None if one == SENT_ON else value for one, value in zip(by, column, strict=True)
                ]
                for name, column in found.items()
            }
        if EMBEDDINGS in self.settings.asked:
            own[EMBEDDING] = pooled
        return found | own, cut

    def _sent_on(
        self, cascade: CascadeManifest, texts: list[list[Any]], kept: list[Any]
    ) -> tuple[list[Any], list[str]]:
        """The fastest model's predictions, and others' where it is not sure enough; and each row's model."""
        left, found, answers = np.arange(len(kept)), np.stack(kept), list(kept)
        by = [""] * len(kept)
        called = short_names([one.name for one in cascade.members])
        last = () if self.stored is None else (self.stored,)
        members = zip(cascade.members, called, (*self.models[1:], *last, None), strict=True)
        for said, name, model in members:
            for row, one in zip(left.tolist(), cascade.answer(said, found), strict=True):
                answers[row], by[row] = one, name
            left = left[~said.is_sure(found, self.reader.kind)]
            if model is None or not len(left):
                break
            rows = left.tolist()
            part = [[column[row] for row in rows] for column in texts]
            if isinstance(model, StoredMember):
                found, known = model.logits(part)
                for row in left[~known].tolist():
                    by[row] = SENT_ON
                left, found = left[known], found[known]
            else:
                found = np.stack(self._pass(model, part, lambda rows: None)[1])
        return answers, by

    def _pass(
        self, model: RowModel, texts: list[list[Any]], advance: Advance
    ) -> tuple[Rows, list[Any], list[Any], int]:
        """The examples of some rows, the outputs kept of each, their embeddings, and how many were truncated."""
        reader, settings = self.reader, self.settings
        encoded, cut = reader.encode(model, texts)
        names = [name for name in encoded if name not in reader.unread]
        values = zip(*(encoded[name] for name in names), strict=True)
        examples = [dict(zip(names, one, strict=True)) for one in values]
        kept: list[Any] = [None] * len(examples)
        pooled: list[Any] = [None] * len(examples)
        collate = Collator(model.processor, kind=reader.kind)
        size, device = settings.batch_size, model.device
        for batch in batches_of(examples, collate, size, device, order=_by_length(encoded)):
            outputs = reader.run(model, batch, settings.asked, settings.pooling)
            numbers = batch["index"].tolist()
            for number, one in zip(numbers, reader.kept(outputs, batch), strict=True):
                kept[number] = one
            if outputs.embeddings is not None:
                for number, one in zip(numbers, outputs.embeddings, strict=True):
                    pooled[number] = one
            # A row may be several examples.
            advance(len(texts[0]) * len(numbers) / len(examples))
        return encoded, kept, pooled, cut

    def _filled(self, inputs: list[list[Any]], place: Callable[[int], str]) -> list[int]:
        """The rows with text to read: no input is missing, and at least one is not blank."""
        blank = self.reader.kind.reads.is_blank
        filled = []
        for row, values in enumerate(zip(*inputs, strict=True)):
            for column, (name, value) in enumerate(zip(self.columns, values, strict=True)):
                if value is not None and not self.reader.reads(value, column):
                    raise LimbeckError(
                        f"{place(row)}: {name} is {value!r:.60}, expected {self.reader.expects}",
                        "write it as text, or name another column with --text-columns",
                    )
            if None not in values and not all(map(blank, values)):
                filled.append(row)
        return filled


def _or_none(value: Any) -> Any:
    """Pandas writes a gap as the number NaN."""
    return None if isinstance(value, float) and value != value else value


def _by_length(encoded: Rows) -> list[int]:
    """The examples, long ones first: batches then hold little padding, and what does not fit shows at once."""
    if "input_ids" not in encoded:
        return list(range(len(encoded["index"])))
    lengths = np.array([len(ids) for ids in encoded["input_ids"]])
    found: list[int] = np.argsort(-lengths, kind="stable").tolist()
    return found
