"""What a masked language model would put in a word's place.

Part of `limbeck.lab.augmentation`. Every word is masked by itself, in its own text alone; each masked token is
one example, and examples of like length share a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.lab.augmentation.vector_candidates import pieces_of
from limbeck.lab.augmentation.word_positions import Word

# A batch has about so many tokens, and never more rows than whose words' scores fit well.
_TOKENS, _ROWS = 8192, 256


class Hidden(NamedTuple):
    """One word to mask: the token ids of its text, and which of them is the word."""

    ids: np.ndarray
    place: int


class Vocabulary:
    """The tokens that are whole words.

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
        """Each word of an encoded text, if it is one token there and that is a whole word."""
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
    """The most probable whole words in each masked place: token ids (n, count), the best first.

    Fewer columns where the vocabulary has fewer whole words. The word that stood there may be among
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
    # Some models count positions by what is padding.
    ids = np.full((len(hidden), width), tokenizer.pad_token_id, dtype=np.int64)
    valid = np.zeros_like(ids)
    for row, one in enumerate(hidden):
        ids[row, : len(one.ids)] = one.ids
        ids[row, one.place] = tokenizer.mask_token_id
        valid[row, : len(one.ids)] = 1
    places = torch.tensor([one.place for one in hidden])
    return torch.from_numpy(ids), torch.from_numpy(valid), places
