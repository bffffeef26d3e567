"""Readers of rows that are more than one number or class: tags of words, spans, written text. Which reader a model has.

Part of `limbeck.predicting`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import softmax
from torch import Tensor

from limbeck import tasks
from limbeck.embedding import modules_of
from limbeck.predicting import readers
from limbeck.predicting.about_model import AboutModel
from limbeck.predicting.model import PassOutputs, RowModel, TorchRowModel
from limbeck.predicting.settings import PredictSettings
from limbeck.support.errors import LimbeckError
from limbeck.tasks import modality, positions
from limbeck.tasks.language_models import opened
from limbeck.tasks.rules import ROW, Rows
from limbeck.tasks.spans import OFFSETS, best_spans, room_for_questions, without_space
from limbeck.tasks.text import answer_limit

_WORDS, _PLACES = "words", "places"
START, END = "start", "end"


class TagReader(readers.RowReader):
    """Token classification; a word's first piece has its tag, as in training.

    Rows are lists of words, each of which gets a tag (none beyond the length limit), or texts, whose entities are found
    as transformers' pipeline finds them by the strategy `first`: neighbouring words of one type are one entity, its
    score is the mean of theirs. Where pieces of words have no sign of their own (byte-level BPE, Unigram), a word ends
    at white space, as in lists of words, whatever the tokenizer splits before it makes pieces ("Bob", "'s").
    """

    outputs = (readers.LABELS, readers.SCORES, readers.PROBABILITIES, readers.LOGITS)
    unread = (_WORDS, _PLACES)
    expects = "a list of words in every row, or text in every row"

    of_words: bool | None = None
    """Whether the rows hold lists of words; the first row decides."""

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
        by_word = asked & {readers.PROBABILITIES, readers.LOGITS}
        if by_word and not self.of_words:
            raise LimbeckError(
                f"output {', '.join(sorted(by_word))}: they are given for each word, and rows of text are answered "
                "with entities",
                "give rows that are lists of words, or request labels and scores",
            )

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """Token ids, and by example which token begins which word, where."""
        (rows,) = texts
        encoded = modality.encode_cut(
            model.processor, rows, max_length=model.max_length, is_split_into_words=self.of_words
        )
        columns: Rows = dict(encoded)
        columns["index"] = list(range(len(rows)))
        columns[_WORDS], columns[_PLACES] = [], []
        model_of_pieces = model.processor.backend_tokenizer.model
        marked = bool(getattr(model_of_pieces, "continuing_subword_prefix", None))
        for row, text in enumerate(rows):
            words = encoded.word_ids(row)
            firsts = [
                (place, word)
                for place, (before, word) in enumerate(pairwise([None, *words]))
                if word is not None and word != before
            ]
            # For a text a word's first and last character; for a list its index.
            begun = {place: (word, word + 1) for place, word in firsts}
            if not self.of_words:
                chars = {place: encoded.word_to_chars(row, word) for place, word in firsts}
                begun = {
                    place: without_space(text, one.start, one.end) for place, one in chars.items()
                }
                begun = begun if marked else _between_spaces(text, begun)
            columns[_PLACES].append([*begun])
            columns[_WORDS].append([*begun.values()])
        cut = sum(bool(one.overflowing) for one in encoded.encodings)
        return columns, cut

    def values(self, read: readers.ReadRows) -> dict[str, list[Any]]:
        """Tags by word, or entities by text."""
        left = read.processor.padding_side == "left"
        rows = []
        for row, (logits, places, spans) in enumerate(
            zip(read.kept, read.encoded[_PLACES], read.encoded[_WORDS], strict=True)
        ):
            # Padding on the left moves the tokens to the end of the batch's width.
            shift = len(logits) - len(read.encoded["input_ids"][row]) if left else 0
            own = logits[np.asarray(places, dtype=int) + shift]
            likely = softmax(own, axis=-1) if len(own) else own
            answer = self._of_words if self.of_words else self._of_text
            rows.append(answer(own, likely, spans, read.texts[0][row]))
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _of_words(
        self, logits: np.ndarray, likely: np.ndarray, spans: list[Any], words: Any
    ) -> dict[str, list[Any]]:
        every: dict[str, list[Any]] = {
            name: [None] * len(words)
            for name in (readers.PREDICTION, readers.SCORE, readers.PROBABILITIES, readers.LOGITS)
        }
        for (word, _), raw, probabilities in zip(spans, logits, likely, strict=True):
            every[readers.PREDICTION][word] = self.facts.classes[int(raw.argmax())]
            every[readers.SCORE][word] = float(probabilities.max())
            every[readers.PROBABILITIES][word] = self.by_class(probabilities)
            every[readers.LOGITS][word] = self.by_class(raw)
        return every

    def _of_text(
        self, logits: np.ndarray, likely: np.ndarray, spans: list[Any], text: Any
    ) -> dict[str, list[Any]]:
        spelled = positions.entity_tags(self.facts.classes)
        tags = [(spelled or self.facts.classes)[int(one.argmax())] for one in logits]
        found: dict[str, list[Any]] = {readers.PREDICTION: [], readers.SCORE: []}
        for label, words in _entities(tags, grouped=spelled is not None):
            start, end = spans[words[0]][0], spans[words[-1]][1]
            entity = {"label": label, "text": text[start:end], "start": start, "end": end}
            found[readers.PREDICTION].append(entity)
            found[readers.SCORE].append(float(np.mean([likely[word].max() for word in words])))
        return found

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Lists with an entry for each word, or entity."""
        fields = {"label": pa.string(), "text": pa.string(), "start": pa.int64(), "end": pa.int64()}
        tag = pa.string() if self.of_words else pa.struct([*fields.items()])
        types = (tag, pa.float32(), self.class_struct, self.class_struct)
        return self.named([pa.list_(one) for one in types], asked)


def _between_spaces(text: str, words: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Words by their first token, with those joined that no white space divides."""
    found: dict[int, tuple[int, int]] = {}
    first = None
    for place, (start, end) in words.items():
        if first is not None and start and not any(map(str.isspace, text[start - 1 : start + 1])):
            found[first] = found[first][0], end
        else:
            found[first := place] = start, end
    return found


def _entities(tags: Sequence[str], *, grouped: bool) -> list[tuple[str, list[int]]]:
    """Type and words of each entity; if tags mark no entities, every word is one."""
    found: list[tuple[str, list[int]]] = []
    before = None
    for word, tag in enumerate(tags):
        mark, label = tag.split("-", 1) if grouped and tag != positions.OUTSIDE else ("B", tag)
        if grouped and tag == positions.OUTSIDE:
            before = None
            continue
        if grouped and label == before and mark in "IE":
            found[-1][1].append(word)
        else:
            found.append((label, [word]))
        before = None if mark in "ES" else label
    return found


# Questions and contexts: the span that answers.


class SpanReader(readers.RowReader):
    """Extractive question answering; a long context is read in windows."""

    outputs = (readers.LABELS, readers.SCORES)
    one_pass = False

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """An example for each window; a question that leaves its context no room is cut."""
        questions, contexts = texts
        room = room_for_questions(model.processor, model.max_length)
        coded = model.processor(questions, add_special_tokens=False, return_offsets_mapping=True)
        shorter = [
            question if len(places) <= room else question[: places[room - 1][1]]
            for question, places in zip(questions, coded["offset_mapping"], strict=True)
        ]
        encoded, cut = super().encode(model, [shorter, contexts])
        encoded["index"] = list(range(len(encoded[ROW])))
        longer = sum(one != other for one, other in zip(questions, shorter, strict=True))
        return encoded, cut + longer

    def kept(self, outputs: PassOutputs, batch: Mapping[str, Tensor]) -> list[Any]:
        """The logits (N, 2) of the real tokens."""
        rows = super().kept(outputs, batch)
        masks = batch["attention_mask"].cpu().numpy().astype(bool)
        return [row[mask] for row, mask in zip(rows, masks, strict=True)]

    def values(self, read: readers.ReadRows) -> dict[str, list[Any]]:
        """The answer's text, its first and last character, its probability within its window."""
        best = best_spans(read.encoded[ROW], read.encoded[OFFSETS], read.kept)
        found: dict[str, list[Any]] = {
            readers.PREDICTION: [],
            START: [],
            END: [],
            readers.SCORE: [],
        }
        for row, text in enumerate(read.texts[1]):
            answer: tuple[Any, ...] = (None, None, None, None)
            if (span := best.get(row)) is not None:
                start, end = without_space(text, span.start, span.end)
                answer = (text[start:end], start, end, span.probability)
            for name, value in zip(found, answer, strict=True):
                found[name].append(value)
        return found

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Text, characters, a number."""
        labels = {readers.PREDICTION: pa.string(), START: pa.int64(), END: pa.int64()}
        found = self.named((pa.string(), pa.float32()), asked)
        return labels | found if readers.LABELS in asked else found


# Texts that are answered with text.


class TextReader(readers.RowReader):
    """An encoder-decoder's texts, generated greedily: of a known task's student a class's name, of others any text."""

    outputs = (readers.LABELS, readers.SCORES)

    def __init__(
        self, facts: AboutModel, kind: tasks.TaskType, columns: int, most: int | None
    ) -> None:
        super().__init__(facts, kind, columns)
        self._most = most

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """The prompt that it was trained with, or the texts as they are."""
        if self.facts.prompt is not None:
            texts = [[self.facts.prompt.format(*row) for row in zip(*texts, strict=True)]]
        elif self.facts.task_name is not None:
            return super().encode(model, texts)
        encoded = modality.encode_cut(model.processor, *texts, max_length=model.max_length)
        cut = sum(bool(one.overflowing) for one in encoded.encodings)
        return {**encoded, "index": list(range(len(texts[0])))}, cut

    def run(
        self, model: RowModel, batch: Mapping[str, Tensor], asked: frozenset[str], pool: Any
    ) -> PassOutputs:
        """Generation; embeddings take a pass of the encoder of their own."""
        embeddings = None
        if readers.EMBEDDINGS in asked:
            embeddings = model.run(batch, logits=False, pool=pool).embeddings
        assert isinstance(model, TorchRowModel)  # no exported file writes text
        made = model.generate(batch, self._most or self._enough(model))
        return PassOutputs(tokens=made.tokens, scores=made.scores, embeddings=embeddings)

    def _enough(self, model: RowModel) -> int | None:
        """Tokens of the longest answer that it was trained to give; None if unknown."""
        if self.facts.task_name is None:
            return None
        return answer_limit(replace(self.task, labels=self.facts.answers), model.processor)

    def kept(self, outputs: PassOutputs, batch: Mapping[str, Tensor]) -> list[Any]:
        """Token ids and probability."""
        assert outputs.tokens is not None and outputs.scores is not None
        return list(zip(outputs.tokens, outputs.scores.tolist(), strict=True))

    def values(self, read: readers.ReadRows) -> dict[str, list[Any]]:
        """The text, and its probability."""
        tokenizer: Any = read.processor
        ids = [tokens.tolist() for tokens, _ in read.kept]
        texts = [tokenizer.decode(one, skip_special_tokens=True).strip() for one in ids]
        return {readers.PREDICTION: texts, readers.SCORE: [score for _, score in read.kept]}

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """Text, and a number."""
        return self.named((pa.string(), pa.float32()), asked)


class ContinuingReader(TextReader):
    """A decoder's texts: the answer to a prompt behind its chat template, or without one the text's continuation."""

    one_pass = False  # embeddings are of the text without the template

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """The prompts up to the answer, padded on the left, where no padding parts them from it."""
        tokenizer: Any = model.processor
        tokenizer.padding_side = "left"
        assert isinstance(model, TorchRowModel)  # no exported file writes text
        ids, limit = opened(tokenizer, texts[0]), model.prompt_limit(self._most)
        kept = [one[-limit:] for one in ids]
        masks = [[1] * len(one) for one in kept]
        encoded: Rows = {"input_ids": kept, "attention_mask": masks, "index": [*range(len(kept))]}
        return encoded, sum(len(one) > limit for one in ids)

    def _enough(self, model: RowModel) -> int | None:
        """As long as the folder's `generation_config` allows."""
        return None


# Who reads the rows for a model.


_READERS: dict[str, type[readers.RowReader]] = {
    "tokens": TagReader,
    "spans": SpanReader,
    "image": readers.ImageReader,
}


def reader_of(facts: AboutModel, settings: PredictSettings, columns: int) -> readers.RowReader:
    """The reader of a model's task type.

    Args:
        facts: of the model.
        settings: the user's.
        columns: how many hold its input.

    Raises:
        LimbeckError: outputs that its task type does not have.
    """
    kind, alone = facts.kind, settings.asked == {readers.EMBEDDINGS}
    if alone and kind.reads is tasks.TEXT_READING:
        own = modules_of(facts.model.config)
        before = "" if own is None else getattr(own.text_prompts, settings.prompt)
        return readers.EmbeddingReader(facts, tasks.SENTENCE, columns, before)
    reader: readers.RowReader
    if kind.continues_texts:
        reader = ContinuingReader(facts, kind, columns, settings.max_new_tokens)
    elif kind.generates:
        reader = TextReader(facts, kind, columns, settings.max_new_tokens)
    elif kind.name in _READERS:
        reader = _READERS[kind.name](facts, kind, columns)
    elif kind.problem_of(facts.regression) is not None:
        reader = (readers.NumberReader if facts.regression else readers.ClassReader)(
            facts, kind, columns
        )
    else:
        raise LimbeckError(
            f"{facts.name} is of task type {kind.name}, which has no predictions of rows",
            "request only embeddings: --output embeddings",
        )
    given = (*reader.outputs, *((readers.EMBEDDINGS,) if reader.one_pass else ()))
    what = "a number" if facts.regression else f"task type {kind.name}"
    if absent := [name for name in settings.output if name not in given]:
        raise LimbeckError(
            f"output {', '.join(absent)}: {facts.name} is of {what}, which has no such output",
            f"choices: {', '.join(given)}",
        )
    return reader
