"""Questions and contexts: the span that answers. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from torch import Tensor

from limbeck.predicting.row_model import PassOutputs, RowModel
from limbeck.predicting.row_reader import LABELS, PREDICTION, SCORE, SCORES, ReadRows, RowReader
from limbeck.tasks.rules import ROW
from limbeck.tasks.spans import OFFSETS, best_spans, without_space
from limbeck.tasks.task_like import Rows

START, END = "start", "end"


class SpanReader(RowReader):
    """Extractive question answering; a long context is read in windows."""

    outputs = (LABELS, SCORES)
    one_pass = False

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """An example for each window."""
        encoded, cut = super().encode(model, texts)
        encoded["index"] = list(range(len(encoded[ROW])))
        return encoded, cut

    def kept(self, outputs: PassOutputs, batch: Mapping[str, Tensor]) -> list[Any]:
        """The logits (N, 2) of the real tokens."""
        rows = super().kept(outputs, batch)
        masks = batch["attention_mask"].cpu().numpy().astype(bool)
        return [row[mask] for row, mask in zip(rows, masks, strict=True)]

    def values(self, read: ReadRows, asked: frozenset[str]) -> dict[str, list[Any]]:
        """The answer's text, its first and last character, its probability within its window."""
        best = best_spans(read.encoded[ROW], read.encoded[OFFSETS], read.kept)
        contexts = read.texts[1]
        spans = [best.get(row) for row in range(len(contexts))]
        places = [
            None if one is None else without_space(text, one.start, one.end)
            for text, one in zip(contexts, spans, strict=True)
        ]
        found: dict[str, list[Any]] = {}
        if LABELS in asked:
            found[PREDICTION] = [
                None if one is None else text[slice(*one)]
                for text, one in zip(contexts, places, strict=True)
            ]
            found[START] = [None if one is None else one[0] for one in places]
            found[END] = [None if one is None else one[1] for one in places]
        if SCORES in asked:
            found[SCORE] = [None if one is None else one.probability for one in spans]
        return found

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Text, characters, a number."""
        found: dict[str, pa.DataType] = {}
        if LABELS in asked:
            found |= {PREDICTION: pa.string(), START: pa.int64(), END: pa.int64()}
        return found | {SCORE: pa.float32()} if SCORES in asked else found
