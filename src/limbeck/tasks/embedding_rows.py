"""What stored outputs are asked about rows whose examples are not the rows themselves. Part of `limbeck.tasks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from limbeck.embedding.text_prompts import PASSAGE, QUERY, SENTENCE
from limbeck.tasks.task_like import TaskLike


class AskedTexts(NamedTuple):
    """Texts whose outputs teach the examples of some rows.

    Attributes:
        columns: the texts by column, as a teacher read them, each (n,).
        rows: the place of the row that each is of, (n,).
        examples: the place among the rows' examples that each teaches, (n,).
        of: how many examples the rows have. Nothing is known of those that are not among `examples`.
    """

    columns: list[list[str]]
    rows: list[int]
    examples: list[int]
    of: int


# The texts of rows that hold one or several each, one after the other.


FIRST = "first_text"
"""A column of a split: what each row's first text is, a query or a passage; without it all texts are sentences."""


class TextOfRow(NamedTuple):
    """A text, and where it stands: a place among rows, which of the row's texts it is, and what it is."""

    place: int
    number: int
    text: str
    kind: str


def texts_of_rows(task: TaskLike, rows: Mapping[str, Sequence[Any]]) -> list[TextOfRow]:
    """Every text: the first of a row, and the others where there are any."""
    columns = [rows[column] for column in task.text_columns]
    first = rows.get(FIRST) or [SENTENCE] * len(columns[0])
    return [
        TextOfRow(
            place, number, text, PASSAGE if number and first[place] == QUERY else first[place]
        )
        for place, texts in enumerate(zip(*columns, strict=True))
        for number, text in enumerate(texts)
        if number == 0 or (text or "").strip()
    ]


def asked_pairs(task: TaskLike, rows: Mapping[str, Sequence[Any]]) -> AskedTexts:
    """Every passage with its query, without prompts; a query by itself is no pair, nor is a sentence."""
    found = texts_of_rows(task, rows)
    pairs = [
        (example, one) for example, one in enumerate(found) if one.number and one.kind == PASSAGE
    ]
    queries = rows[task.text_columns[0]]
    return AskedTexts(
        [[queries[one.place] for _, one in pairs], [one.text for _, one in pairs]],
        [one.place for _, one in pairs],
        [example for example, _ in pairs],
        len(found),
    )


def asked_alone(task: TaskLike, rows: Mapping[str, Sequence[Any]]) -> AskedTexts:
    """Every text by itself, without prompts."""
    found = texts_of_rows(task, rows)
    places = [one.place for one in found]
    return AskedTexts([[one.text for one in found]], places, [*range(len(found))], len(found))
