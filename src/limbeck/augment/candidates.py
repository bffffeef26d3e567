"""For every word of every text that may change, what may stand in its place.

Part of `limbeck.augment`. A text that stands in several rows is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.augment.copies import Slot
from limbeck.augment.masked import Hidden, Vocabulary, best_words
from limbeck.augment.spec import AugmentSpec
from limbeck.augment.vectors import Vectors
from limbeck.augment.words import Word, words_of

# Texts tokenised at once.
_CHUNK = 1000
Watch = Callable[[str, int], Callable[[int], None]]


def unwatched(what: str, total: int) -> Callable[[int], None]:
    """A `Watch` that shows nothing."""
    return lambda done: None


def candidates(
    texts: Iterable[str],
    spec: AugmentSpec,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    longest: int,
    precision: str,
    watch: Watch = unwatched,
) -> dict[str, list[Slot]]:
    """By text its words that may change and their candidates, the best first.

    A word that is one token gets those of the masked language model. The others, also those behind
    the `longest` tokens that the model reads, get the words with the nearest vectors, or none.

    Args:
        watch: called with what is counted and the total, gives what is told of progress.
    """
    vocabulary = Vocabulary(tokenizer)
    words = {text: words_of(text, spec.words) for text in texts}
    hidden, numbers = _hidden(words, vocabulary, longest)
    advance = watch("words hidden", len(hidden))
    best = best_words(
        model, vocabulary, hidden, spec.candidates, precision=precision, advance=advance
    )
    others = {
        word.text
        for text, own in words.items()
        for word in own
        if (text, word.start) not in numbers
    }
    nearest = _vectors(spec, model, tokenizer, words).nearest(others, spec.candidates)

    def choices(text: str, word: Word) -> list[str]:
        number = numbers.get((text, word.start))
        if number is None:
            return nearest.get(word.text.lower(), [])
        return [vocabulary.words[token] for token in best[number].tolist()]

    return {
        text: [Slot(word.start, word.end, choices(text, word)) for word in own]
        for text, own in words.items()
    }


def _hidden(
    words: dict[str, list[Word]], vocabulary: Vocabulary, longest: int
) -> tuple[list[Hidden], dict[tuple[str, int], int]]:
    """The words to hide, and by (text, start) the number of each."""
    hidden: list[Hidden] = []
    numbers: dict[tuple[str, int], int] = {}
    texts = list(words)
    for first in range(0, len(texts), _CHUNK):
        chunk = texts[first : first + _CHUNK]
        for text, encoding in zip(chunk, vocabulary.encode(chunk, longest), strict=True):
            for word in words[text]:
                one = vocabulary.hidden(encoding, word)
                if one is not None:
                    numbers[text, word.start] = len(hidden)
                    hidden.append(one)
    return hidden, numbers


def _vectors(
    spec: AugmentSpec,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    words: dict[str, list[Word]],
) -> Vectors:
    if spec.embeddings is not None:
        return Vectors.of_file(spec.embeddings)
    return Vectors.of_model(model, tokenizer, {w.text for own in words.values() for w in own})
