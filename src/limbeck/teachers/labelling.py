"""What `limbeck label` asks: anyone who can say something of each class about some texts.

A Hugging Face model, a team, a causal language model and an endpoint are each a labeller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol, runtime_checkable

import numpy as np

from limbeck.support.errors import LimbeckError, Problem

Row = Mapping[str, str]
"""A row's input texts by the names of their columns."""
Scores = Mapping[str, np.ndarray]
"""By output, a value for each row: (B, …), or an object array of arrays where each row has as many as it has tokens."""


@runtime_checkable
class Labeller(Protocol):
    """Whoever labels texts; its answers to a row depend on the row alone.

    Attributes (read-only ones will do):
        name: what progress and the store call it.
        kind: the task type of its answers, as `limbeck.tasks` has it registered.
        classes: names in id order; () where the answer is a number.
        outputs: the names of what `score` returns: `logits` (B, C) and `probabilities` (B, C), which every reader
            knows, `votes` (B, C), hidden states under the names of `limbeck.teachers.outputs`, or names of its own.
            A name must not be one of the rows' columns, nor `row` or `label`.
        batch_size: rows that it likes to be given at once.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def classes(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def outputs(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102

    def fingerprint(self) -> dict[str, Any]:
        """Everything that its answers follow from, as JSON can keep it: labellers that differ in it are different."""

    def score(self, rows: Sequence[Row]) -> Scores:
        """Its outputs for some rows, in their order, as float32 or float16; no NaN and no infinity."""


@runtime_checkable
class CountsCosts(Protocol):
    """A labeller that also counts what it spends, such as tokens or money: shown, and kept in the store's manifest."""

    def costs(self) -> dict[str, float]:
        """What has been spent by this object since it was made, by name; names hold the unit (`prompt_tokens`)."""


@runtime_checkable
class TellsTruncated(Protocol):
    """A labeller that reads only so many tokens of a row, and tells which rows had more: counted in the store."""

    @property
    def truncated(self) -> Set[int]:
        """Of the rows that `score` was given last, the places of those whose longest text lost its end."""
        ...


@runtime_checkable
class HasLayers(Protocol):
    """A labeller that can give layers, and says how many it has of what size."""

    @property
    def shape(self) -> dict[str, Any]:
        """As `limbeck.objectives.ModelShape.written` has it."""
        ...


@runtime_checkable
class KeepsTokens(Protocol):
    """A text-to-text labeller: it gives part of a vocabulary's logits at every token of a row's target.

    The last of a row's columns is the target.
    """

    @property
    def kept_tokens(self) -> tuple[str, int]:
        """What is kept, as `top64@2` (`limbeck.functional.partial_logits`), and the vocabulary's size."""
        ...


class RowsMissingError(LimbeckError):
    """Some rows have no outputs, and others have.

    A labeller that raises it keeps the outputs of the others, so that only these are asked again.

    Attributes:
        reasons: why, by the row's place among those that were asked.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.reasons = dict(reasons)
        counts = Counter(self.reasons.values())
        super().__init__(
            [
                Problem(
                    f"{count} row{'s have' if count > 1 else ' has'} no label: {reason}",
                    "run the same command again, which asks these rows again",
                )
                for reason, count in counts.most_common()
            ]
        )
