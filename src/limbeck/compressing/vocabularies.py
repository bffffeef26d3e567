"""The vocabularies that a student may have, the teacher's and smaller ones, and how they read text.

Part of `limbeck.compressing`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from limbeck.static import token_counts
from limbeck.students.vocabulary import TokenizerFile, tokens_to_keep, trimmed
from limbeck.support.errors import LimbeckError

_SHARES = (1 / 2, 1 / 4, 1 / 8, 1 / 16)
_LONGEST = 2.0
"""Times as long a text may become: smaller vocabularies spell words letter by letter."""
_READ = 1_000
"""Texts whose length is compared."""


@dataclass(frozen=True)
class StudentVocabulary:
    """One vocabulary.

    Attributes:
        tokens: how many at most; None: all of the teacher's.
        tokenizer: with these tokens alone.
        kept: the teacher's numbers of the tokens.
        growth: how many times as long a text is as by the teacher's tokenizer.
        bytes: of the tokenizer's files.
    """

    tokens: int | None
    tokenizer: Any
    kept: tuple[int, ...]
    growth: float
    bytes: int


def vocabularies(
    tokenizer: Any, rows: int, texts: Sequence[str], *, smaller: bool
) -> dict[int | None, StudentVocabulary]:
    """The teacher's vocabulary and, with `smaller`, vocabularies of a half to a sixteenth of it.

    Args:
        tokenizer: the teacher's.
        rows: of its table of embeddings.
        texts: some that the student is to read; they decide which tokens stay.
    """
    counts = token_counts(tokenizer, texts, rows)
    read = texts[:: max(1, len(texts) // _READ)]
    whole = token_counts(tokenizer, read, rows).sum()
    found: dict[int | None, StudentVocabulary] = {
        None: StudentVocabulary(None, tokenizer, tuple(range(rows)), 1.0, _bytes(tokenizer))
    }
    try:
        least = len(TokenizerFile(tokenizer).always()) if smaller else rows
    except LimbeckError:  # a tokenizer that cannot be cut
        return found
    for tokens in (round(rows * share, -2) for share in _SHARES):
        wanted = int(max(tokens, least))
        if wanted in found or wanted >= rows:
            continue
        kept = tokens_to_keep(tokenizer, counts, str(wanted), row_bytes=4)
        cut = trimmed(tokenizer, kept)
        growth = token_counts(cut, read, len(kept)).sum() / max(1, whole)
        if growth > _LONGEST:
            break
        found[wanted] = StudentVocabulary(wanted, cut, tuple(kept), float(growth), _bytes(cut))
    return found


def _bytes(tokenizer: Any) -> int:
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return sum(path.stat().st_size for path in Path(folder).rglob("*"))
