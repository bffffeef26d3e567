"""The replacement candidates of every word of every text that may change.

Part of `limbeck.lab.augmentation`. A text that occurs in several rows is processed once.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.recipe.augment_spec import AugmentSpec
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home

# Words with nearly the same vector: candidates if no masked language model is available.


# Files of vectors list words by frequency; the rest are rare (TinyBERT's release reads as many).
_LINES = 100_000
# Words compared with all others at once.
_WORDS_AT_ONCE = 256


@dataclass(frozen=True)
class Vectors:
    """Words in lower case and their vectors (n, d), of length 1."""

    words: list[str]
    matrix: Tensor

    @classmethod
    def of_model(
        cls, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, words: Iterable[str]
    ) -> "Vectors":
        """Means of the input embeddings of each word's tokens; without words that have no tokens."""
        known = sorted({word.lower() for word in words})
        pieces = pieces_of(tokenizer, known)
        kept = [
            (word, ids)
            for word, ids in zip(known, pieces, strict=True)
            if ids and tokenizer.unk_token_id not in ids
        ]
        embedding: Tensor = model.get_input_embeddings().state_dict()["weight"].float().cpu()
        means = [embedding[ids].mean(0) for _, ids in kept]
        matrix = torch.stack(means) if means else embedding[:0]
        return cls([word for word, _ in kept], _of_length_one(matrix))

    @classmethod
    def of_tokens(cls, model: PreTrainedModel, words: Mapping[int, str]) -> "Vectors":
        """The input embeddings of tokens that are words; of two spellings of a word that in lower case.

        Args:
            words: token id → word.
        """
        found: dict[str, int] = {}
        for token, word in words.items():
            if word.islower() or word.lower() not in found:
                found[word.lower()] = token
        known = sorted(found)
        embedding: Tensor = model.get_input_embeddings().state_dict()["weight"].float().cpu()
        return cls(known, _of_length_one(embedding[[found[word] for word in known]]))

    @classmethod
    def of_file(cls, path: str | Path) -> "Vectors":
        """The first 100,000 lines of a text file: a word and its numbers, set apart by spaces.

        A first line of two numbers (word2vec's count and width) is skipped, and so are entries that
        are no words.

        Raises:
            LimbeckError: no such file, no vectors in it, or an invalid line.
        """
        found: dict[str, np.ndarray] = {}
        for word, vector in _lines(at_home(path)):
            if word.isalpha():
                found.setdefault(word.lower(), vector)
        if not found:
            raise LimbeckError(
                f"augment.embeddings: {path} holds no words", "give a file in GloVe's format"
            )
        return cls(list(found), _of_length_one(torch.from_numpy(np.stack(list(found.values())))))

    def nearest(self, words: Iterable[str], count: int) -> dict[str, list[str]]:
        """By word the words of the largest cosine, the nearest first, itself left out.

        A word without a vector has no neighbors.
        """
        places = {word: place for place, word in enumerate(self.words)}
        asked = sorted({word.lower() for word in words} & places.keys())
        count = min(count, len(self.words) - 1)
        nearest: dict[str, list[str]] = {}
        for start in range(0, len(asked), _WORDS_AT_ONCE):
            chunk = asked[start : start + _WORDS_AT_ONCE]
            own = torch.tensor([places[word] for word in chunk])
            cosines = self.matrix[own] @ self.matrix.T
            cosines[torch.arange(len(chunk)), own] = -torch.inf
            best = cosines.topk(count).indices.tolist()
            for word, row in zip(chunk, best, strict=True):
                nearest[word] = [self.words[place] for place in row]
        return nearest


def pieces_of(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[list[int]]:
    """The token ids of each word inside a text: after a space."""
    if not words:
        return []
    spaced = [f" {word}" for word in words]
    found: list[list[int]] = tokenizer(spaced, add_special_tokens=False, verbose=False)["input_ids"]
    return found


def check_file(path: str | Path) -> None:
    """Read the first vector.

    Raises:
        LimbeckError: no such file, or its first line holds none.
    """
    next(_lines(at_home(path)), None)


def _lines(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    width = None
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if number > _LINES:
                    return
                fields = line.rstrip().split(" ")
                if number == 1 and len(fields) == 2:
                    continue
                width = width or len(fields) - 1
                # A few entries of GloVe's largest file hold spaces themselves.
                word, numbers = " ".join(fields[:-width]), fields[-width:]
                try:
                    vector = np.array(numbers, dtype=np.float32)
                except ValueError:
                    vector = np.array([np.nan])
                if not word or width < 1 or not np.isfinite(vector).all():
                    raise LimbeckError(
                        f"augment.embeddings: line {number} of {path} is not a word and "
                        f"{width} numbers",
                        "give a text file in GloVe's format: a word and its vector on every line",
                    )
                yield word, vector
    except (OSError, UnicodeDecodeError) as error:
        raise LimbeckError(
            f"augment.embeddings: cannot read {path}: {error}",
            "give a text file in GloVe's format, or leave it out",
        ) from None


def _of_length_one(matrix: Tensor) -> Tensor:
    return torch.nn.functional.normalize(matrix, dim=-1)


# Words in a text: where they are, which of them may change, and how a replacement is spelt.


# A contraction is one word: "don't", "n't".
_WORD = re.compile(r"\w+(?:['’]\w+)*")

_BY_CLASS = {
    "articles and determiners": "a an the this that these those each every either neither some any "
    "no all both such same other own few more most",
    "personal pronouns": "i you he she it we they me him her us them my your his its our their mine "
    "yours hers ours theirs myself yourself himself herself itself ourselves yourselves themselves",
    "pronouns that ask or relate": "who whom whose which what when where why how",
    "auxiliaries": "am is are was were be been being have has had having do does did doing done "
    "can could will would shall should may might must ought cannot",
    "prepositions": "of in on at by for with about against between into through during before after "
    "above below to from up down out off over under upon within without",
    "conjunctions": "and but or nor if because as until while than so though although unless",
    "negation and degree": "not only too very just",
    "place and time": "here there now then once again further",
    "pieces that tokenisers cut off contractions": "s t d m o y ll re ve don ain aren couldn didn "
    "doesn hadn hasn haven isn shouldn wasn weren won wouldn",
}
FUNCTION_WORDS = frozenset(word for words in _BY_CLASS.values() for word in words.split())
"""English words that carry grammar rather than meaning, in lower case."""


class Word(NamedTuple):
    """One word of a text: characters `start` to `end`."""

    start: int
    end: int
    text: str


def words_of(text: str, which: Literal["content", "all"]) -> list[Word]:
    """The words that may be replaced: of letters alone, and no function words unless all may."""
    found = (Word(*match.span(), match.group()) for match in _WORD.finditer(text))
    return [word for word in found if word.text.isalpha() and (which == "all" or _content(word))]


def _content(word: Word) -> bool:
    return word.text.lower() not in FUNCTION_WORDS


def spelt_like(word: str, replacement: str) -> str:
    """The replacement with the capitals of the word that it replaces."""
    if word.istitle():
        return replacement[:1].upper() + replacement[1:]
    return replacement.upper() if word.isupper() else replacement


# A masked language model's replacements of a word. Every word is masked separately, in its own text alone;
# each masked token is one example, and examples of like length share a batch.


# The approximate number of tokens in a batch, and the limit on rows so that their words' scores fit well.
_TOKENS, _ROWS = 8192, 256


class Hidden(NamedTuple):
    """One word to mask: the token ids of its text, and which of them is the word."""

    ids: np.ndarray
    place: int


class Vocabulary:
    """The tokens that are complete words.

    A token is one if its text is letters alone and the tokenizer reads that text, after a space,
    as this one token: not the end of a word, nor a token that no text gives.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        size = max(tokenizer.get_vocab().values()) + 1
        self.words = [text.strip() for text in tokenizer.batch_decode([[i] for i in range(size)])]
        special = set(tokenizer.all_special_ids)
        letters = [i for i, word in enumerate(self.words) if word.isalpha() and i not in special]
        pieces = pieces_of(tokenizer, [self.words[i] for i in letters])
        self.whole = np.zeros(size, dtype=bool)
        for number, ids in zip(letters, pieces, strict=True):
            self.whole[number] = ids == [number]

    @property
    def whole_words(self) -> dict[int, str]:
        """Id → word of these tokens."""
        return {token: self.words[token] for token in np.flatnonzero(self.whole).tolist()}

    def encode(self, texts: Sequence[str], longest: int) -> list[Any]:
        """Encodings of texts, each after a space, so that a first word is read as any other."""
        spaced = [f" {text}" for text in texts]
        encoded = self.tokenizer(spaced, truncation=True, max_length=longest, verbose=False)
        return encoded.encodings or []

    def hidden(self, encoding: Any, words: Sequence[Word]) -> list[Hidden | None]:
        """Each word of an encoded text, if it is one token there and that token is a complete word."""
        ids = np.array(encoding.ids, dtype=np.int32)
        found: list[Hidden | None] = []
        for word in words:
            place = encoding.char_to_token(word.start + 1)  # behind the space
            one = place is not None and place == encoding.char_to_token(word.end)
            found.append(Hidden(ids, place) if one and self.whole[ids[place]] else None)
        return found


def best_words(
    model: PreTrainedModel,
    vocabulary: Vocabulary,
    hidden: Sequence[Hidden],
    count: int,
    *,
    precision: str,
    advance: Callable[[int], None] = lambda examples: None,
) -> np.ndarray:
    """The most probable complete words at each masked position: token ids (n, count), the best first.

    Fewer columns if the vocabulary has fewer complete words. The original word may be among
    them.

    Args:
        precision: fp32 or bf16: the autocast type of the passes.
        advance: called with the number of masked tokens done since the last call.
    """
    whole = torch.from_numpy(vocabulary.whole)
    count = min(count, int(whole.sum()))
    tokenizer = vocabulary.tokenizer
    found = np.empty((len(hidden), count), dtype=np.int32)
    device = model.device
    for rows in _batches([len(one.ids) for one in hidden]):
        ids, valid, places = _batch([hidden[row] for row in rows], tokenizer)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            scores = scores_at(model, ids.to(device), valid.to(device), places.to(device)).float()
        # Embeddings may be padded beyond the tokenizer's ids.
        scores = scores[:, : len(whole)].masked_fill(~whole.to(device), -torch.inf)
        found[rows] = scores.topk(count).indices.cpu().numpy()
        advance(len(rows))
    return found


def scores_at(model: PreTrainedModel, ids: Tensor, valid: Tensor, places: Tensor) -> Tensor:
    """The head's scores (B, V) at one place (B) of each text (B, N)."""
    with torch.no_grad(), _only(model, places):
        found: Tensor = model(input_ids=ids, attention_mask=valid).logits[:, 0]
        return found


@contextmanager
def _only(model: PreTrainedModel, places: Tensor) -> Iterator[None]:
    """Hand the head one state of each example: it is as costly as some layers, for each token."""

    def keep(module: nn.Module, given: Any, output: Any) -> Any:
        states = output.last_hidden_state
        rows = torch.arange(len(places), device=states.device)
        output.last_hidden_state = states[rows, places].unsqueeze(1)
        return output

    handle = model.base_model.register_forward_hook(keep)
    try:
        yield
    finally:
        handle.remove()


def _batches(lengths: Sequence[int]) -> Iterator[np.ndarray]:
    """Row numbers by batch, the longest first: what does not fit into memory shows at once."""
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    start = 0
    while start < len(order):
        rows = max(1, min(_ROWS, _TOKENS // lengths[order[start]]))
        yield order[start : start + rows]
        start += rows


def _batch(
    hidden: Sequence[Hidden], tokenizer: PreTrainedTokenizerBase
) -> tuple[Tensor, Tensor, Tensor]:
    """Ids with the tokens masked (B, N), which of them are tokens (B, N), and the places (B)."""
    width = max(len(one.ids) for one in hidden)
    # Some models count positions by padding.
    ids = np.full((len(hidden), width), tokenizer.pad_token_id, dtype=np.int64)
    valid = np.zeros_like(ids)
    for row, one in enumerate(hidden):
        ids[row, : len(one.ids)] = one.ids
        ids[row, one.place] = tokenizer.mask_token_id
        valid[row, : len(one.ids)] = 1
    places = torch.tensor([one.place for one in hidden])
    return torch.from_numpy(ids), torch.from_numpy(valid), places


# Which words of a row each augmented example replaces, and by what.


class ReplaceableWord(NamedTuple):
    """A word of a text that may change: characters `start` to `end`, and its candidates."""

    start: int
    end: int
    choices: Sequence[str]


def augmented_examples_of(
    texts: Sequence[str],
    replaceable: Sequence[Sequence[ReplaceableWord]],
    *,
    row: int,
    examples: int,
    probability: float,
    seed: int,
) -> list[tuple[str, ...]]:
    """The augmented examples of one row that differ from it and from each other, in the order of their numbers.

    Whether augmented example n replaces a word, and by which candidate, is a function of (seed, row, n): asking
    for more augmented examples adds some and changes none. A candidate may be the word itself.

    Args:
        texts: the row's text columns.
        replaceable: for each of them the words that may change, from left to right.
        row: the row's number.
    """
    made = []
    for draw in random_numbers_of(row, examples, sum(len(own) for own in replaceable), seed):
        example, first = [], 0
        for text, own in zip(texts, replaceable, strict=True):
            example.append(_replaced(text, own, draw[first : first + len(own)], probability))
            first += len(own)
        made.append(tuple(example))
    return distinct(tuple(texts), made)


def random_numbers_of(row: int, examples: int, words: int, seed: int) -> np.ndarray:
    """(augmented examples, words, 2) numbers in [0, 1): is the word replaced, and by which candidate.

    Filled one augmented example at a time, so that the numbers of the first do not depend on how many follow.
    """
    return np.random.default_rng([seed, row]).random((examples, words, 2))


def distinct(row: tuple[str, ...], examples: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The augmented examples that differ from the row and from those before them, in their order."""
    return [example for example in dict.fromkeys(examples) if example != row]


def _replaced(
    text: str, replaceable: Sequence[ReplaceableWord], draw: np.ndarray, probability: float
) -> str:
    """One text with some words replaced; `draw` (words, 2) decides whether, and by which."""
    parts, end = [], 0
    for word, (whether, which) in zip(replaceable, draw.tolist(), strict=True):
        if whether < probability and word.choices:
            choice = word.choices[int(which * len(word.choices))]
            parts += [text[end : word.start], spelt_like(text[word.start : word.end], choice)]
            end = word.end
    return "".join([*parts, text[end:]])


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
    """The candidates for the words of some texts.

    Attributes:
        which: which words may change.
        numbers: by text the number of each of these words among the words that are one token, or −1.
        best: token ids (words of one token, candidates), the best first; empty if the model runs
            only while an augmented example is edited.
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
        """Whether the model can predict a text's word; otherwise there are nearest words."""
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
    """Find the candidates of every word of every text once, unless the model is to read edited texts.

    A word that is one token gets the words that the masked language model would put there. The
    others, also those behind the `longest` tokens that the model reads, get the words with the
    nearest vectors, or no candidates. With `spec.context` "edited" the model does not run here, and with
    `spec.replace_by` "nearest" never: all words get the words with the nearest vectors.

    Args:
        model, tokenizer: None where `spec.embeddings` has the vectors of all words.
        watch: called with the unit and the total, returns the function that reports progress.
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
    """Words of the nearest vectors for all words: the file's, or the model's complete vocabulary."""
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
