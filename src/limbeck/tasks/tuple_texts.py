"""The texts of rows that hold one or several each, one after the other. Part of `limbeck.tasks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from limbeck.tasks.abstract_type import TaskLike


class TextOfRow(NamedTuple):
    """A text, and where it stands: a place among rows, and which of the row's texts it is."""

    place: int
    number: int
    text: str


def texts_of_rows(task: TaskLike, rows: Mapping[str, Sequence[Any]]) -> list[TextOfRow]:
    """Every text: the first of a row, and the others where there are any."""
    columns = [rows[column] for column in task.text_columns]
    return [
        TextOfRow(place, number, text)
        for place, texts in enumerate(zip(*columns, strict=True))
        for number, text in enumerate(texts)
        if number == 0 or (text or "").strip()
    ]
