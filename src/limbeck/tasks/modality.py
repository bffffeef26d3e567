"""How examples of text become batches, and the form in which another kind of input says the same.

Part of `limbeck.tasks`. A task type names its reading; what stands between rows and batches
(tokenising, padding, lengths, the processor that travels with a model) is asked of that.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from datasets import Dataset
from torch import Tensor
from transformers import AutoTokenizer, DataCollatorWithPadding

from limbeck.embedding.embedder import in_lower_case
from limbeck.embedding.folder import lower_cased
from limbeck.support.errors import LimbeckError, Problem

Processor = Any
"""What makes a model's input and is saved beside it: a tokenizer, or an image processor."""


class Reading(ABC):
    """One form of input. Stateless; there is one object of each."""

    name: ClassVar[str]
    noun: ClassVar[str]
    """What a row holds."""
    processor: ClassVar[str]
    """What makes a model's input."""
    in_columns: ClassVar[bool] = True
    """Whether rows stand in the columns of tables; else each is a file of its own."""
    pads: ClassVar[bool] = False
    """Whether shorter examples of a batch are filled up."""

    @abstractmethod
    def load(self, source: str) -> Processor:
        """The processor of a checkpoint's folder or Hub name.

        Raises:
            OSError, ValueError, KeyError, LimbeckError: there is none.
        """

    @abstractmethod
    def describe(self, processor: Processor) -> str:
        """All of a processor that decides what an example is encoded as."""

    @abstractmethod
    def problems(self, processor: Processor, max_length: int, columns: int) -> list[Problem]:
        """Why rows of so many columns cannot be encoded, if they cannot."""

    @abstractmethod
    def check(self, processor: Processor) -> None:
        """Raise LimbeckError for a processor whose rows cannot be stacked."""

    @abstractmethod
    def stack(
        self, rows: list[dict[str, Any]], processor: Processor, width: int
    ) -> dict[str, Tensor]:
        """A batch of encoded rows, (B, …); text is filled up to `width` positions."""

    @abstractmethod
    def width(self, rows: Sequence[Mapping[str, Any]], multiple_of: int | None) -> int:
        """How many positions a batch of these rows needs, rounded up; 0 where it has none."""

    @abstractmethod
    def lengths(self, encoded: Dataset) -> list[int] | None:
        """Tokens of each example; None where all examples are of one size.

        Raises:
            LimbeckError: the rows are not encoded.
        """

    @abstractmethod
    def is_blank(self, value: Any) -> bool:
        """Whether a row's input says nothing."""


class TextReading(Reading):
    """Text, by a tokenizer."""

    name = "text"
    noun = "text"
    processor = "tokenizer"
    pads = True

    def load(self, source: str) -> Processor:
        """A checkpoint's tokenizer, in lower case where an embedding model's folder says so."""
        found = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        return in_lower_case(found) if lower_cased(source) else found

    def describe(self, processor: Processor) -> str:
        """The tokenizer, without the last call's truncation that it carries."""
        if processor.is_fast:
            backend = json.loads(processor.backend_tokenizer.to_str())
            backend["truncation"] = backend["padding"] = None
        else:  # as of bytes, which a language model may read
            backend = [type(processor).__name__, sorted(processor.get_vocab().items())]
        return json.dumps([backend, processor.model_input_names, processor.truncation_side])

    def problems(self, processor: Processor, max_length: int, columns: int) -> list[Problem]:
        """A slow tokenizer, or no room for text."""
        problems = []
        if not processor.is_fast:
            problems.append(
                Problem(
                    f"{type(processor).__name__} is not a fast tokenizer",
                    "save the model with its tokenizer.json, or load it with AutoTokenizer",
                )
            )
        reserved = processor.num_special_tokens_to_add(pair=columns == 2)
        # The tokenizer itself would silently cut nothing.
        if max_length < reserved + columns:
            problems.append(
                Problem(
                    f"max_length {max_length} leaves no room for text beside {reserved} special "
                    "tokens",
                    "raise max_length; 128 is usual for GLUE",
                )
            )
        return problems

    def check(self, processor: Processor) -> None:
        """It needs a padding token."""
        if processor.pad_token is None:
            raise LimbeckError(
                f"{type(processor).__name__} has no padding token, so a batch cannot be made",
                "set one, say tokenizer.pad_token = tokenizer.eos_token, and the model's "
                "config.pad_token_id with it",
            )

    def stack(
        self, rows: list[dict[str, Any]], processor: Processor, width: int
    ) -> dict[str, Tensor]:
        """Padded to the width."""
        collate = DataCollatorWithPadding(processor, padding="max_length", max_length=width)
        return dict(collate(rows))

    def width(self, rows: Sequence[Mapping[str, Any]], multiple_of: int | None) -> int:
        """The longest example's, rounded up."""
        longest = max(len(row["input_ids"]) for row in rows)
        step = multiple_of or 1
        return -(-longest // step) * step

    def lengths(self, encoded: Dataset) -> list[int] | None:
        """Token ids of each example."""
        if "input_ids" not in getattr(encoded, "column_names", ()):
            raise LimbeckError(
                "group_by_length: the training examples have no input_ids column to measure",
                "pass a tokenised datasets.Dataset, or leave group_by_length out",
            )
        return [len(ids) for ids in encoded["input_ids"]]

    def is_blank(self, value: Any) -> bool:
        """No word in a text, or in a list of words."""
        texts = value if isinstance(value, list) else [value]
        return not any(isinstance(text, str) and text.strip() for text in texts)


TEXT_READING = TextReading()


# Long texts, of which a model reads the beginning alone: tokenized no further than that.
#
# A tokenizer given `max_length` still makes every token of a text before it drops most of them: 10 MB
# of text take 2 GB.


_CHARACTERS = 16
"""Of a token, at first: more than in most languages, so that a text is rarely looked at twice."""
_MARGIN = 32
"""Tokens beyond the limit that still have to be there: near the cut they may be others than in the whole text."""
_LONGEST_WORD = 1 << 18
"""Characters without a space after which the middle of a word is cut."""


def encode_cut(
    tokenizer: Processor, *columns: Sequence[Any], max_length: int, **settings: Any
) -> Any:
    """`tokenizer(*columns, truncation=True, max_length=max_length)` in memory that the limit bounds, not the texts.

    Each text is cut at a space, far enough behind the limit that no token before it changes.

    Args:
        tokenizer: a fast one.
        columns: one or two lists of texts, or one of lists of words.
        max_length: tokens of an example.
        settings: what else the tokenizer is called with.
    """
    if tokenizer.truncation_side == "right":
        if settings.get("is_split_into_words"):
            columns = ([_words(tokenizer, words, max_length) for words in columns[0]],)
        else:
            rows = [_row(tokenizer, row, max_length) for row in zip(*columns, strict=True)]
            columns = tuple([row[place] for row in rows] for place in range(len(columns)))
    texts = [list(column) for column in columns]
    return tokenizer(*texts, truncation=True, max_length=max_length, padding=False, **settings)


def tokens_of(tokenizer: Processor, text: str) -> int:
    """Tokens of a whole text without special ones; of a very long one counted piece by piece."""
    count = 0
    while len(text) > _LONGEST_WORD:
        part = _cut(text, _LONGEST_WORD) or text[:_LONGEST_WORD]
        count, text = count + _tokens(tokenizer, part), text[len(part) :]
    return count + _tokens(tokenizer, text)


def _row(tokenizer: Processor, texts: tuple[str, ...], limit: int) -> tuple[str, ...]:
    """The texts of an example, cut; of two, the one of more tokens stays the one of more."""
    parts = tuple(_beginning(tokenizer, text, limit + _MARGIN) for text in texts)
    if len(texts) == 1 or parts == texts or min(map(len, texts)) <= limit:
        return parts
    # Two texts beyond the limit share it evenly, and an odd token goes to one or the other by their lengths.
    counts = [_tokens(tokenizer, part) for part in parts]
    if min(counts) <= limit:
        return parts
    whole = [tokens_of(tokenizer, text) for text in texts]
    first = whole[0] > whole[1]
    longer = 0 if first else 1
    while (counts[0] > counts[1]) != first and parts[longer] != texts[longer]:
        more = _beginning(tokenizer, texts[longer], 2 * counts[longer])
        parts = (more, parts[1]) if first else (parts[0], more)
        counts[longer] = _tokens(tokenizer, more)
    return parts


def _words(tokenizer: Processor, words: Sequence[str], limit: int) -> list[str]:
    """As many words as the limit can hold, each no longer than it can hold."""
    count = limit + _MARGIN
    while True:
        some = [_beginning(tokenizer, word, limit + _MARGIN) for word in words[:count]]
        if count >= len(words) or _tokens(tokenizer, some, split=True) >= limit + _MARGIN:
            return some
        count *= 2


def _beginning(tokenizer: Processor, text: str, tokens: int) -> str:
    """So much of a text that it has at least so many tokens; all of it where it has fewer."""
    size = _CHARACTERS * tokens
    while size < len(text):
        part = _cut(text, size)
        if part is not None and _tokens(tokenizer, part) >= tokens:
            return part
        size *= 4
    return text


def _cut(text: str, size: int) -> str | None:
    """The text up to a space before `size`; None where only a longer part has one.

    The part ends with the word before the space: how a tokenizer reads a space hangs on what follows it.
    """
    at = max(text.rfind(space, size // 2, size) for space in " \n\t")
    if at >= 0:
        return text[:at].rstrip()
    return text[:size] if size >= _LONGEST_WORD else None


def _tokens(tokenizer: Processor, text: Any, split: bool = False) -> int:
    found = tokenizer(
        text, add_special_tokens=False, truncation=False, is_split_into_words=split, verbose=False
    )
    return len(found["input_ids"])
