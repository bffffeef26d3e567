"""Texts in lower case, where a model's folder says so and its tokenizer does not. Part of `limbeck.embedding`."""

from __future__ import annotations

import json
from typing import Any

from tokenizers.normalizers import Lowercase, Sequence


def in_lower_case(tokenizer: Any) -> Any:
    """A tokenizer that reads texts in lower case, as sentence-transformers makes one of `do_lower_case`.

    Special tokens stay as they are. A tokenizer that does it already, or is no fast one, stays as it is.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or _lowers(json.loads(backend.to_str())["normalizer"]):
        return tokenizer
    own = backend.normalizer
    backend.normalizer = Lowercase() if own is None else Sequence([Lowercase(), own])
    return tokenizer


def _lowers(normalizer: dict[str, Any] | None) -> bool:
    """Whether a written normalizer makes letters small."""
    if normalizer is None:
        return False
    parts = normalizer.get("normalizers", ())
    return (
        normalizer["type"] == "Lowercase"
        or normalizer.get("lowercase") is True
        or any(map(_lowers, parts))
    )
