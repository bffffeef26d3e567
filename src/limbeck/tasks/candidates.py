"""Scores of a query's candidates from a model's outputs. Part of `limbeck.tasks`.

A cross-encoder gives each candidate a score. Embeddings of a query and its candidates give them too, as their inner
products, so that every loss over candidates is one for both.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from limbeck import functional as F
from limbeck.embedding.folder import PASSAGE, QUERY, SENTENCE
from limbeck.support.errors import LimbeckError
from limbeck.tasks.rules import TaskLike

QUERY_ID = "query_id"
"""The column of a batch with the query that each row is a candidate of, int64 (B,)."""
GRADE = "grade"
"""The column with the role of each text in its tuple, (B,): NaN for a query, otherwise its grade, or `UNGRADED`."""
UNGRADED = -1.0
"""The column's value for a candidate of unknown relevance."""
_FIX = "give the rows a column {} of {}"


class CandidateReading(ABC):
    """Scores, queries and grades of the candidates in a batch, a number for each row."""

    grades_of: ClassVar[tuple[str, str]]
    """The column of grades, and its content in words."""
    queries_are_rows: ClassVar[bool] = False
    """Whether a query has a row of its own, without a grade, next to its candidates."""

    def queries(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The query of each row (B,); a row that is no candidate is alone. Raises LimbeckError if that is unknown."""
        if QUERY_ID not in batch:
            raise LimbeckError(
                f"the batch has no {QUERY_ID}, so the candidates of a query are unknown",
                _FIX.format(QUERY_ID, "integers, one for each query"),
            )
        return batch[QUERY_ID]

    def grades(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Grade of each row (B,), NaN if unknown. Raises LimbeckError for a batch without grades."""
        name, what = self.grades_of
        if name not in batch:
            raise LimbeckError(f"the batch has no {name}", _FIX.format(name, what))
        return batch[name].float()

    @abstractmethod
    def scores(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """How well each row answers its query (B,)."""


class ScoredCandidates(CandidateReading):
    """A row is a query with one of its candidates, and the output its score."""

    grades_of = ("labels", "grades, 0 for irrelevant passages")

    def scores(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Logits (B, 1) as they are."""
        return logits.squeeze(-1)


class EmbeddedCandidates(CandidateReading):
    """A row is a text, a query or one of its candidates, and the output its embedding."""

    grades_of = (
        GRADE,
        "numbers: NaN for a query, 1 for a relevant passage, 0 for an irrelevant one, -1 if unknown",
    )

    queries_are_rows = True

    def said(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The batch's column of roles (B,), unchanged. Raises LimbeckError for a batch without it."""
        return super().grades(batch)

    def grades(self, batch: Mapping[str, Tensor]) -> Tensor:
        """NaN for queries and for unknown relevance."""
        said = self.said(batch)
        return said.masked_fill(said == UNGRADED, torch.nan)

    def queries(self, batch: Mapping[str, Tensor]) -> Tensor:
        """A query is alone, and so is a candidate whose query is in another batch."""
        numbers, asked = super().queries(batch), self.said(batch).isnan()
        same = (numbers[:, None] == numbers[None, :]) & asked[:, None]
        least = torch.iinfo(torch.int64).min
        alone = least + torch.arange(len(numbers), device=numbers.device)
        return torch.where(same.any(0) & ~asked, numbers, alone)

    def scores(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Inner products of embeddings (B, d) with their query's: cosines where they have length 1."""
        return F.query_similarities(logits, super().queries(batch), self.said(batch))


SCORED = ScoredCandidates()
EMBEDDED = EmbeddedCandidates()


# Keys of stored outputs for rows whose examples are not the rows themselves.


class AskedTexts(NamedTuple):
    """Texts whose outputs teach the examples of some rows.

    Attributes:
        columns: the texts by column, as a teacher read them, each (n,).
        rows: the place of the row that each is of, (n,).
        examples: the place among the rows' examples that each teaches, (n,).
        of: how many examples the rows have. Examples outside `examples` have no outputs.
    """

    columns: list[list[str]]
    rows: list[int]
    examples: list[int]
    of: int


# The texts of rows that hold one or several each, one after the other.


FIRST = "first_text"
"""A column of a split: the role of each row's first text, query or passage; without it all texts are sentences."""


class TextOfRow(NamedTuple):
    """A text and its position: a place among rows, the number among the row's texts, and its role."""

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
    """Every passage with its query, without prompts; a lone query is no pair, nor is a sentence."""
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
    """Every text separately, without prompts."""
    found = texts_of_rows(task, rows)
    places = [one.place for one in found]
    return AskedTexts([[one.text for one in found]], places, [*range(len(found))], len(found))
