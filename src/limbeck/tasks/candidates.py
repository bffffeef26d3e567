"""How scores of a query's candidates are found in what a model puts out. Part of `limbeck.tasks`.

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
"""The column of a batch that says whose candidate each row is, int64 (B,)."""
GRADE = "grade"
"""The column that says what each text is in its tuple, (B,): NaN a query, else how relevant it is, or `UNGRADED`."""
UNGRADED = -1.0
"""What the column says of a candidate of which nobody knows how relevant it is."""
_FIX = "give the rows a column {} of {}"


class CandidateReading(ABC):
    """Scores, queries and grades of the candidates in a batch, a number for each row."""

    grades_of: ClassVar[tuple[str, str]]
    """The column of grades, and what it holds, in words."""
    queries_are_rows: ClassVar[bool] = False
    """Whether a query is a row of its own, the one without a grade, beside its candidates."""

    def queries(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Whose candidate each row is (B,); a row that is none is alone. Raises LimbeckError where nobody knows."""
        if QUERY_ID not in batch:
            raise LimbeckError(
                f"the batch has no {QUERY_ID}, so nobody knows which candidates are of one query",
                _FIX.format(QUERY_ID, "whole numbers, one for each query"),
            )
        return batch[QUERY_ID]

    def grades(self, batch: Mapping[str, Tensor]) -> Tensor:
        """How relevant each row is (B,), NaN where nobody says. Raises LimbeckError for a batch without."""
        name, what = self.grades_of
        if name not in batch:
            raise LimbeckError(f"the batch has no {name}", _FIX.format(name, what))
        return batch[name].float()

    @abstractmethod
    def scores(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """How well each row answers its query (B,)."""


class ScoredCandidates(CandidateReading):
    """A row is a query with one of its candidates, and the output its score."""

    grades_of = ("labels", "grades, 0 for what is not relevant")

    def scores(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Logits (B, 1) as they are."""
        return logits.squeeze(-1)


class EmbeddedCandidates(CandidateReading):
    """A row is a text, a query or one of its candidates, and the output its embedding."""

    grades_of = (
        GRADE,
        "numbers: NaN for a query, 1 for what belongs to it, 0 for what does not, -1 where nobody says",
    )

    queries_are_rows = True

    def said(self, batch: Mapping[str, Tensor]) -> Tensor:
        """What the batch says of each text (B,), as its column has it. Raises LimbeckError for a batch without."""
        return super().grades(batch)

    def grades(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Of queries none, and none where nobody says."""
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


# What stored outputs are asked about rows whose examples are not the rows themselves.


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
