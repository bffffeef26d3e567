"""Words with nearly the same vector: candidates where no masked language model can be asked.

Part of `limbeck.lab.augmentation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home

# Files of vectors list words by frequency; the rest are rare (TinyBERT's release reads as many).
_LINES = 100_000
# Words compared with all others at once.
_CHUNK = 256


@dataclass(frozen=True)
class Vectors:
    """Words in lower case and their vectors (n, d), of length 1."""

    words: list[str]
    matrix: Tensor

    @classmethod
    def of_model(
        cls, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, words: Iterable[str]
    ) -> Vectors:
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
    def of_tokens(cls, model: PreTrainedModel, words: Mapping[int, str]) -> Vectors:
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
    def of_file(cls, path: str | Path) -> Vectors:
        """The first 100,000 lines of a text file: a word and its numbers, set apart by spaces.

        A first line of two numbers (word2vec's count and width) is skipped, and so are entries that
        are no words.

        Raises:
            LimbeckError: no such file, no vectors in it, or a line that is none.
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

        A word without a vector has none.
        """
        places = {word: place for place, word in enumerate(self.words)}
        asked = sorted({word.lower() for word in words} & places.keys())
        count = min(count, len(self.words) - 1)
        nearest: dict[str, list[str]] = {}
        for start in range(0, len(asked), _CHUNK):
            chunk = asked[start : start + _CHUNK]
            own = torch.tensor([places[word] for word in chunk])
            cosines = self.matrix[own] @ self.matrix.T
            cosines[torch.arange(len(chunk)), own] = -torch.inf
            best = cosines.topk(count).indices.tolist()
            for word, row in zip(chunk, best, strict=True):
                nearest[word] = [self.words[place] for place in row]
        return nearest


def pieces_of(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[list[int]]:
    """The token ids of each word as it stands inside a text: after a space."""
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
