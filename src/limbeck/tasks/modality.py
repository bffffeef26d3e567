"""How examples of text become batches, and the interface for other kinds of input.

Part of `limbeck.tasks`. A task type names its modality, which does all work between rows and batches:
tokenizing, padding, lengths, and the processor that travels with a model.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from datasets import Dataset
from torch import Tensor
from transformers import AutoTokenizer, DataCollatorWithPadding

from limbeck.embedding import embedder, folder
from limbeck.support.errors import LimbeckError, Problem, problem_list

Processor = Any
"""Makes a model's input and is saved with it: a tokenizer, or an image processor."""


class Reading(ABC):
    """One form of input. Stateless; there is one object of each.

    Attributes:
        noun: name of a row's content.
        processor: name of the object that makes a model's input.
        in_columns: whether rows are in the columns of tables; otherwise each is a file.
        pads: whether shorter examples of a batch are filled up.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    processor: ClassVar[str]
    in_columns: ClassVar[bool] = True
    pads: ClassVar[bool] = False

    @abstractmethod
    def load(self, source: str) -> Processor:
        """The processor of a checkpoint's folder or Hub name.

        Raises:
            OSError, ValueError, KeyError, LimbeckError: it does not exist.
        """

    @abstractmethod
    def describe(self, processor: Processor) -> str:
        """All properties of a processor that affect the encoding of an example."""

    @abstractmethod
    def problems(self, processor: Processor, max_length: int, columns: int) -> list[Problem]:
        """Why rows of this many columns cannot be encoded, if they cannot."""

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
        """How many positions a batch of these rows needs, rounded up; 0 without positions."""

    @abstractmethod
    def lengths(self, encoded: Dataset) -> list[int] | None:
        """Tokens of each example; None where all examples are of one size.

        Raises:
            LimbeckError: the rows are not encoded.
        """

    @abstractmethod
    def is_blank(self, value: Any) -> bool:
        """Whether a row's input is blank."""


class TextReading(Reading):
    """Text, by a tokenizer."""

    name = "text"
    noun = "text"
    processor = "tokenizer"
    pads = True

    def load(self, source: str) -> Processor:
        """A checkpoint's tokenizer, in lower case if an embedding model's folder specifies it."""
        found = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        if found.get_vocab().keys() <= {*found.all_special_tokens}:  # as made without any file
            raise ValueError("it has special tokens alone: the tokenizer's files are missing")
        return embedder.in_lower_case(found) if folder.lower_cased(source) else found

    def describe(self, processor: Processor) -> str:
        """The tokenizer, without the last call's truncation that it carries."""
        if processor.is_fast:
            backend = json.loads(processor.backend_tokenizer.to_str())
            backend["truncation"] = backend["padding"] = None
        else:  # as of bytes, which a language model may read
            backend = [type(processor).__name__, sorted(processor.get_vocab().items())]
        return json.dumps([backend, processor.model_input_names, processor.truncation_side])

    @problem_list
    def problems(self, processor: Processor, max_length: int, columns: int) -> Iterator[Problem]:
        """A slow tokenizer, or no room for text."""
        if not processor.is_fast:
            yield Problem(
                f"{type(processor).__name__} is not a fast tokenizer",
                "save the model with its tokenizer.json, or load it with AutoTokenizer",
            )
        reserved = processor.num_special_tokens_to_add(pair=columns == 2)
        # The tokenizer itself would silently cut nothing.
        if max_length < reserved + columns:
            yield Problem(
                f"max_length {max_length} leaves no room for text with {reserved} special tokens",
                "raise max_length; 128 is usual for GLUE",
            )

    def check(self, processor: Processor) -> None:
        """It needs a padding token."""
        if processor.pad_token is None:
            raise LimbeckError(
                f"{type(processor).__name__} has no padding token, so a batch cannot be made",
                padding_fix(processor),
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


# Long texts, of which a model reads the beginning alone. A tokenizer given `max_length` still makes every
# token of a text before it drops most of them: 10 MB of text take 2 GB.


_CHARACTERS = 64
"""Of a token, more than in nearly all texts."""


def padding_fix(tokenizer: Processor) -> str:
    """How a tokenizer without a padding token gets one, in files or in Python."""
    token, number = tokenizer.eos_token or "TOKEN", tokenizer.eos_token_id
    return (
        f'write "pad_token": "{token}" into its tokenizer_config.json and "pad_token_id": '
        f"{'ID' if number is None else number} into its config.json; in Python, set tokenizer.pad_token and "
        "model.config.pad_token_id"
    )


def encode_cut(
    tokenizer: Processor, *columns: Sequence[Any], max_length: int, **settings: Any
) -> Any:
    """`tokenizer(*columns, truncation=True, max_length=max_length)`, of long texts without most of their tokens.

    A single long text is cut at a space, far enough behind the limit that no token before it changes; where the
    beginning has too few tokens for that, all texts are tokenized completely, as pairs and lists of words are.

    Args:
        tokenizer: a fast one.
        columns: one or two lists of texts, or one of lists of words.
        max_length: tokens of an example.
        settings: further arguments of the tokenizer.
    """
    texts = [list(column) for column in columns]
    encode = partial(tokenizer, truncation=True, max_length=max_length, padding=False, **settings)
    of_words = settings.get("is_split_into_words", False)
    if len(texts) > 1 or of_words or tokenizer.truncation_side != "right":
        return encode(*texts)
    size = _CHARACTERS * max_length
    parts = [
        text[:size].rpartition(" ")[0].rstrip() or text if len(text) > size else text
        for text in texts[0]
    ]
    found = encode(parts)
    cut = (part is not text for part, text in zip(parts, texts[0], strict=True))
    # A second window behind the first: near the cut, tokens may differ from those in the full text.
    far_enough = (len(encoding.overflowing) > 1 for encoding in found.encodings)
    if all(not short or far for short, far in zip(cut, far_enough, strict=True)):
        return found
    return encode(*texts)
