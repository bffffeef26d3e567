"""For every word of every text that may change, what may stand in its place.

Part of `limbeck.lab.augmentation`. A text that stands in several rows is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.lab.augmentation.augmented_examples import ReplaceableWord
from limbeck.lab.augmentation.masked_candidates import Hidden, Vocabulary, best_words
from limbeck.lab.augmentation.vector_candidates import Vectors
from limbeck.lab.augmentation.word_positions import Word, words_of
from limbeck.recipe.augment_spec import AugmentSpec

# Texts tokenised at once.
_CHUNK = 1000
Watch = Callable[[str, int], Callable[[int], None]]
# In place of a number: the model cannot predict the word.
_NONE = -1


def unwatched(what: str, total: int) -> Callable[[int], None]:
    """A `Watch` that shows nothing."""
    return lambda done: None


@dataclass(frozen=True)
class Candidates:
    """What may stand for the words of some texts.

    Attributes:
        which: which words may change.
        numbers: by text the number of each of these words among those that are one token, or −1.
        best: token ids (words of one token, candidates), the best first; none where the model is
            asked only while an augmented example is edited.
        names: the words of the token ids.
        nearest: by word in lower case the words of the nearest vectors.
    """

    which: Literal["content", "all"]
    numbers: dict[str, list[int]]
    best: np.ndarray
    names: list[str]
    nearest: dict[str, list[str]]

    def __getitem__(self, text: str) -> list[ReplaceableWord]:
        """The words of a text that may change, from left to right, with their candidates."""
        return [
            ReplaceableWord(word.start, word.end, self._choices(word.text, number))
            for word, number in zip(self.words(text), self.numbers[text], strict=True)
        ]

    def words(self, text: str) -> list[Word]:
        """The words of a text that may change, from left to right."""
        return words_of(text, self.which)

    def is_one_token(self, text: str, number: int) -> bool:
        """Whether the model can predict a text's word; else there are nearest words."""
        return self.numbers[text][number] != _NONE

    def nearest_to(self, word: str) -> list[str]:
        """The words of the nearest vectors; none where the word has no vector."""
        return self.nearest.get(word.lower(), [])

    def _choices(self, word: str, number: int) -> list[str]:
        if number == _NONE:
            return self.nearest_to(word)
        return [self.names[token] for token in self.best[number].tolist()]


def find_candidates(
    texts: Iterable[str],
    spec: AugmentSpec,
    model: PreTrainedModel | None,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    longest: int,
    precision: str,
    watch: Watch = unwatched,
) -> Candidates:
    """Ask for every word of every text once, unless the model is to read edited texts.

    A word that is one token gets the words that the masked language model would put there. The
    others, also those behind the `longest` tokens that the model reads, get the words with the
    nearest vectors, or none. With `spec.context` "edited" the model is not asked here, and with
    `spec.replace_by` "nearest" never: all words get those with the nearest vectors.

    Args:
        model, tokenizer: None where `spec.embeddings` has the vectors of all words.
        watch: called with what is counted and the total, gives what is told of progress.
    """
    if spec.replace_by == "nearest":
        return _nearest_alone(list(dict.fromkeys(texts)), spec, model, tokenizer)
    assert model is not None and tokenizer is not None  # the settings see to it
    vocabulary = Vocabulary(tokenizer)
    hidden, numbers = _hidden(list(dict.fromkeys(texts)), spec, vocabulary, longest)
    best = np.empty((0, 0), dtype=np.int32)
    if spec.context == "original":
        advance = watch("tokens masked", len(hidden))
        best = best_words(
            model, vocabulary, hidden, spec.candidates, precision=precision, advance=advance
        )
    words, others = set(), set()
    for text, own in numbers.items():
        for word, number in zip(words_of(text, spec.words), own, strict=True):
            words.add(word.text.lower())
            if number == _NONE:
                others.add(word.text.lower())
    vectors = (
        Vectors.of_model(model, tokenizer, words)
        if spec.embeddings is None
        else Vectors.of_file(spec.embeddings)
    )
    nearest = vectors.nearest(others, spec.candidates)
    return Candidates(spec.words, numbers, best, vocabulary.words, nearest)


def _nearest_alone(
    texts: list[str],
    spec: AugmentSpec,
    model: PreTrainedModel | None,
    tokenizer: PreTrainedTokenizerBase | None,
) -> Candidates:
    """Words of the nearest vectors for all words: those of the file, or of the model's whole vocabulary."""
    if spec.embeddings is not None:
        vectors = Vectors.of_file(spec.embeddings)
    else:
        assert model is not None and tokenizer is not None  # the settings see to it
        vectors = Vectors.of_tokens(model, Vocabulary(tokenizer).whole_words)
    found = {text: words_of(text, spec.words) for text in texts}
    words = {word.text for own in found.values() for word in own}
    numbers = {text: [_NONE] * len(own) for text, own in found.items()}
    nearest = vectors.nearest(words, spec.candidates)
    return Candidates(spec.words, numbers, np.empty((0, 0), dtype=np.int32), [], nearest)


def _hidden(
    texts: list[str], spec: AugmentSpec, vocabulary: Vocabulary, longest: int
) -> tuple[list[Hidden], dict[str, list[int]]]:
    """The words to mask, and by text the number of each of its words among them."""
    hidden: list[Hidden] = []
    numbers: dict[str, list[int]] = {}
    for first in range(0, len(texts), _CHUNK):
        chunk = texts[first : first + _CHUNK]
        for text, encoding in zip(chunk, vocabulary.encode(chunk, longest), strict=True):
            numbers[text] = own = []
            for one in vocabulary.hidden(encoding, words_of(text, spec.words)):
                own.append(_NONE if one is None else len(hidden))
                hidden += [] if one is None else [one]
    return hidden, numbers
