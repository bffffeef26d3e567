"""What datasets call their texts, for rows whose columns nobody named. Part of `limbeck.data`."""

from __future__ import annotations

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
