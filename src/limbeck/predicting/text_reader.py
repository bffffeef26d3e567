"""Texts that are answered with text. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from limbeck.predicting.about_model import AboutModel
from limbeck.predicting.row_model import PassOutputs, RowModel
from limbeck.predicting.row_reader import (
    EMBEDDINGS,
    LABELS,
    PREDICTION,
    SCORE,
    SCORES,
    ReadRows,
    RowReader,
)
from limbeck.tasks import TaskType
from limbeck.tasks.long_texts import encode_cut
from limbeck.tasks.task_like import Rows
from limbeck.tasks.text import answer_limit


class TextReader(RowReader):
    """An encoder-decoder's texts, generated greedily: of a known task's student a class's name, of others any text."""

    outputs = (LABELS, SCORES)

    def __init__(self, facts: AboutModel, kind: TaskType, columns: int, most: int | None) -> None:
        super().__init__(facts, kind, columns)
        self._most = most

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """The prompt that it was trained with, or the texts as they are."""
        if self.facts.prompt is not None:
            texts = [[self.facts.prompt.format(*row) for row in zip(*texts, strict=True)]]
        elif self.facts.task_name is not None:
            return super().encode(model, texts)
        encoded = encode_cut(model.processor, *texts, max_length=model.max_length)
        cut = sum(bool(one.overflowing) for one in encoded.encodings)
        return {**encoded, "index": list(range(len(texts[0])))}, cut

    def run(
        self, model: RowModel, batch: Mapping[str, Tensor], asked: frozenset[str], pool: Any
    ) -> PassOutputs:
        """Generation; embeddings take a pass of the encoder of their own."""
        embeddings = None
        if EMBEDDINGS in asked:
            embeddings = model.run(batch, logits=False, pool=pool).embeddings
        made = model.generate(batch, self._most or self._enough(model))
        return PassOutputs(tokens=made.tokens, scores=made.scores, embeddings=embeddings)

    def _enough(self, model: RowModel) -> int | None:
        """Tokens of the longest answer that it was trained to give; None where nobody knows."""
        if self.facts.task_name is None:
            return None
        return answer_limit(replace(self.task, labels=self.facts.answers), model.processor)

    def kept(self, outputs: PassOutputs, batch: Mapping[str, Tensor]) -> list[Any]:
        """Token ids and probability."""
        assert outputs.tokens is not None
        scores = [None] * len(outputs.tokens) if outputs.scores is None else outputs.scores
        return list(zip(outputs.tokens, scores, strict=True))

    def values(self, read: ReadRows, asked: frozenset[str]) -> dict[str, list[Any]]:
        """The text, and its probability."""
        found: dict[str, list[Any]] = {}
        if LABELS in asked:
            found[PREDICTION] = [_decoded(read.processor, tokens) for tokens, _ in read.kept]
        if SCORES in asked:
            found[SCORE] = [float(score) for _, score in read.kept]
        return found

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Text, and a number."""
        found = {PREDICTION: pa.string()} if LABELS in asked else {}
        return found | {SCORE: pa.float32()} if SCORES in asked else found


def _decoded(tokenizer: Any, tokens: np.ndarray) -> str:
    return str(tokenizer.decode(tokens.tolist(), skip_special_tokens=True)).strip()
