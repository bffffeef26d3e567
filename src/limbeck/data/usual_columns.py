"""What datasets call their texts, for rows whose columns nobody named. Part of `limbeck.data`."""

from __future__ import annotations

from collections.abc import Sequence

# One text among other columns of text (an id, a title) is not guessed.
USUAL_TEXTS = (
    ("sentence1", "sentence2"),
    ("query", "passage"),
    ("text1", "text2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("sentence",),
    ("text",),
)
"""Columns that are taken together, in the order in which they are looked for."""

USUAL_LABELS = ("label", "labels")


def usual_texts(words: Sequence[str]) -> list[str]:
    """Choose text columns among those that hold text and no label: of a usual name, else the only one.

    Empty where it is not clear which is meant.
    """
    known = [list(names) for names in USUAL_TEXTS if {*names} <= {*words}]
    return known[0] if known else (list(words) if len(words) == 1 else [])


def usual_label(columns: Sequence[str], named: Sequence[str] = ()) -> str | None:
    """Choose the label's column: of a usual name, else the only one that has class names of its own (`named`)."""
    usual = [name for name in USUAL_LABELS if name in columns]
    return next(iter(usual or (named if len(named) == 1 else [])), None)
