"""Long texts, of which a model reads the beginning alone: tokenized no further than that. Part of `limbeck.tasks`.

A tokenizer given `max_length` still makes every token of a text before it drops most of them: 10 MB of text take 2 GB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limbeck.tasks.modality import Processor

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
