"""A tag for every word: of lists of words the tags, of texts the entities. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import softmax

from limbeck.predicting.model import RowModel
from limbeck.predicting.readers import (
    LABELS,
    LOGITS,
    PREDICTION,
    PROBABILITIES,
    SCORE,
    SCORES,
    ReadRows,
    RowReader,
)
from limbeck.support.errors import LimbeckError
from limbeck.tasks.modality import encode_cut
from limbeck.tasks.positions import OUTSIDE, entity_tags
from limbeck.tasks.rules import Rows
from limbeck.tasks.spans import without_space

_WORDS, _PLACES = "words", "places"


class TagReader(RowReader):
    """Token classification; a word's first piece has its tag, as in training.

    Rows are lists of words, each of which gets a tag (none beyond the length limit), or texts, whose entities are found
    as transformers' pipeline finds them by the strategy `first`: neighbouring words of one type are one entity, its
    score is the mean of theirs.
    """

    outputs = (LABELS, SCORES, PROBABILITIES, LOGITS)
    unread = (_WORDS, _PLACES)
    expects = "a list of words in every row, or text in every row"

    of_words: bool | None = None
    """Whether the rows hold lists of words; the first says it."""

    def reads(self, value: Any, column: int) -> bool:
        """A list of words, or text, as the row before."""
        if self.of_words is None:
            self.of_words = isinstance(value, list)
        if self.of_words:
            return isinstance(value, list) and all(
                super(TagReader, self).reads(word, column) for word in value
            )
        return super().reads(value, column)

    def check(self, asked: frozenset[str]) -> None:
        """Raise LimbeckError for what entities do not have."""
        by_word = asked & {PROBABILITIES, LOGITS}
        if by_word and not self.of_words:
            raise LimbeckError(
                f"output {', '.join(sorted(by_word))}: they are given for each word, and rows of text are answered "
                "with entities",
                "give rows that are lists of words, or ask for labels and scores",
            )

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """Token ids, and by example which token begins which word, where."""
        (rows,) = texts
        encoded = encode_cut(
            model.processor,
            rows,
            max_length=model.max_length,
            is_split_into_words=self.of_words,
        )
        columns: Rows = dict(encoded)
        columns["index"] = list(range(len(rows)))
        columns[_WORDS], columns[_PLACES] = [], []
        for row, _ in enumerate(rows):
            words = encoded.word_ids(row)
            firsts = [
                (place, word)
                for place, (before, word) in enumerate(pairwise([None, *words]))
                if word is not None and word != before
            ]
            columns[_PLACES].append([place for place, _ in firsts])
            spans = [self._span(encoded, row, word, rows[row]) for _, word in firsts]
            columns[_WORDS].append(spans)
        cut = sum(bool(one.overflowing) for one in encoded.encodings)
        return columns, cut

    def _span(self, encoded: Any, row: int, word: int, text: Any) -> tuple[int, int]:
        """Of a text a word's first and last character; of a list its place."""
        if self.of_words:
            return (word, word + 1)
        found = encoded.word_to_chars(row, word)
        return without_space(text, found.start, found.end)

    def values(self, read: ReadRows, asked: frozenset[str]) -> dict[str, list[Any]]:
        """Tags by word, or entities by text."""
        left = read.processor.padding_side == "left"
        found: dict[str, list[Any]] = {name: [] for name in self.types(asked)}
        for row, (logits, places, spans) in enumerate(
            zip(read.kept, read.encoded[_PLACES], read.encoded[_WORDS], strict=True)
        ):
            # Padding on the left moves the tokens to the end of the batch's width.
            shift = len(logits) - len(read.encoded["input_ids"][row]) if left else 0
            own = logits[np.asarray(places, dtype=int) + shift]
            text = read.texts[0][row]
            one = (
                self._of_words(own, spans, text)
                if self.of_words
                else self._of_text(own, spans, text)
            )
            for name in found:
                found[name].append(one[name])
        return found

    def _of_words(
        self, logits: np.ndarray, spans: list[Any], words: list[str]
    ) -> dict[str, list[Any]]:
        probabilities = softmax(logits, axis=-1) if len(logits) else logits
        every: dict[str, list[Any]] = {
            name: [None] * len(words) for name in (PREDICTION, SCORE, PROBABILITIES, LOGITS)
        }
        for (word, _), raw, likely in zip(spans, logits, probabilities, strict=True):
            every[PREDICTION][word] = self.facts.classes[int(raw.argmax())]
            every[SCORE][word] = float(likely.max())
            every[PROBABILITIES][word] = self.by_class(likely)
            every[LOGITS][word] = self.by_class(raw)
        return every

    def _of_text(self, logits: np.ndarray, spans: list[Any], text: str) -> dict[str, list[Any]]:
        probabilities = softmax(logits, axis=-1) if len(logits) else logits
        spelled = entity_tags(self.facts.classes)
        tags = [(spelled or self.facts.classes)[int(one.argmax())] for one in logits]
        entities = _entities(tags, grouped=spelled is not None)
        found: list[dict[str, Any]] = []
        scores: list[float] = []
        for label, words in entities:
            start, end = spans[words[0]][0], spans[words[-1]][1]
            found.append({"label": label, "text": text[start:end], "start": start, "end": end})
            scores.append(float(np.mean([probabilities[word].max() for word in words])))
        return {PREDICTION: found, SCORE: scores}

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Lists with an entry for each word, or entity."""
        entity = pa.struct(
            [
                ("label", pa.string()),
                ("text", pa.string()),
                ("start", pa.int64()),
                ("end", pa.int64()),
            ]
        )
        tag = pa.string() if self.of_words else entity
        types = {
            LABELS: (PREDICTION, pa.list_(tag)),
            SCORES: (SCORE, pa.list_(pa.float32())),
            PROBABILITIES: (PROBABILITIES, pa.list_(self.class_struct)),
            LOGITS: (LOGITS, pa.list_(self.class_struct)),
        }
        return dict(types[name] for name in self.outputs if name in asked)


def _entities(tags: Sequence[str], *, grouped: bool) -> list[tuple[str, list[int]]]:
    """Type and words of each entity; where tags mark none, every word by itself."""
    found: list[tuple[str, list[int]]] = []
    before = None
    for word, tag in enumerate(tags):
        mark, label = tag.split("-", 1) if grouped and tag != OUTSIDE else ("B", tag)
        if grouped and tag == OUTSIDE:
            before = None
            continue
        if grouped and label == before and mark in "IE":
            found[-1][1].append(word)
        else:
            found.append((label, [word]))
        before = None if mark in "ES" else label
    return found
