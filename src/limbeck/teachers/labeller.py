"""The interface that `limbeck label` uses: anything with an output for each class of some texts.

A Hugging Face model, a team, a causal language model and an endpoint are each a labeller.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Protocol, runtime_checkable

import numpy as np

from limbeck.students import places_by_name
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems

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
            knows, `votes` (B, C), hidden states under the names of `limbeck.outputs`, or names of its own.
            A name must not be one of the rows' columns, nor `row` or `label`.
        batch_size: rows that it prefers per call.

    A labeller may also have these optional members:

    - `costs() -> dict[str, float]`: its costs since it was made, by name with the unit (`prompt_tokens`);
      shown, and kept in the store's manifest.
    - `truncated: Set[int]`: of the rows that `score` was given last, the places of those whose longest text lost its
      end; counted in the store.
    - `shape: dict`: of its layers, as `limbeck.objectives.ModelShape.written` has it, if it can give layers.
    - `thresholds: tuple[float, ...]`: with several labels per row, the probability from which each class is
      predicted; by default ½.
    - `kept_tokens: tuple[str, int]`: for a text-to-text labeller the rule for a vocabulary's logits at every token of
      a row's target, its last column, as `top64@2` (`limbeck.functional.partial_logits`), and the vocabulary's size.
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


def costs_of(labeller: Labeller) -> dict[str, float]:
    """A labeller's costs so far, if it counts them."""
    count = getattr(labeller, "costs", None)
    return count() if count is not None else {}


def truncated_by(labeller: Labeller) -> Set[int]:
    """The indices of rows that a labeller truncated, if it reports them."""
    return getattr(labeller, "truncated", frozenset())


class RowsMissingError(LimbeckError):
    """Some rows have no outputs, and others do.

    A labeller that raises it caches the outputs of the others, so that a second call with them is free.

    Attributes:
        reasons: why, by the row's index in the call.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.reasons = dict(reasons)
        counts = Counter(self.reasons.values())
        super().__init__(
            [
                Problem(
                    f"{count:,} row{'s have' if count > 1 else ' has'} no outputs: {reason}",
                    "run the same command again, which asks for these rows again; --missing-rows drop leaves rows out, "
                    "as long as others have outputs",
                )
                for reason, count in counts.most_common()
            ]
        )


# Several labellers as one: the outputs of each, and their mean.


SEPARATOR = ":"
"""Between a member's name and its output: `large:logits`."""
AVERAGED = ("logits", "probabilities")
"""The team's own output, as the plain mean over its members."""


class TeamLabeller:
    """Every member's outputs under `MEMBER:OUTPUT`, and the mean of their logits and of their probabilities.

    Members' classes may be in any order: all are mapped to the first member's.

    Args:
        members: labellers of one task type and the same classes.
        names: each member's name; different, and without a colon.

    Raises:
        LimbeckError: members that do not answer the same question.
    """

    def __init__(self, members: Sequence[Labeller], names: Sequence[str]) -> None:
        self.members = tuple(members)
        self.names = tuple(name.replace(SEPARATOR, "-") for name in names)
        lead = self.members[0]
        problems = [
            problem
            for name, member in zip(self.names, self.members, strict=True)
            for problem in _disagreement(self.names[0], lead, name, member)
        ]
        if len(set(self.names)) < len(self.names):
            problems.append(
                Problem(
                    f"teacher: two are called the same: {', '.join(self.names)}", "name each once"
                )
            )
        raise_problems(problems)
        self._orders = [places_by_name(one.classes, lead.classes) or [] for one in self.members]

    @property
    def name(self) -> str:
        """The members' names."""
        return " + ".join(self.names)

    @property
    def kind(self) -> str:
        """The members' task type."""
        return self.members[0].kind

    @property
    def classes(self) -> tuple[str, ...]:
        """The first member's."""
        return self.members[0].classes

    @property
    def batch_size(self) -> int:
        """What suits every member."""
        return min(member.batch_size for member in self.members)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The means first, then member by member."""
        shared = (name for name in AVERAGED if all(name in m.outputs for m in self.members))
        each = (
            f"{name}{SEPARATOR}{output}"
            for name, member in zip(self.names, self.members, strict=True)
            for output in member.outputs
        )
        return (*shared, *each)

    def fingerprint(self) -> dict[str, Any]:
        """Each member's, by its name."""
        found = zip(self.names, self.members, strict=True)
        return {name: member.fingerprint() for name, member in found}

    def score(self, rows: Sequence[Row]) -> Scores:
        """Every member labels the rows, one after the other.

        Raises:
            RowsMissingError: rows of which at least one member has no outputs; every member has been called.
        """
        found: dict[str, np.ndarray] = {}
        for name, order, scores in zip(self.names, self._orders, self._asked(rows), strict=True):
            for output, value in scores.items():
                by_class = len(order) > 0 and value.shape[1:] == (len(order),)
                found[f"{name}{SEPARATOR}{output}"] = value[:, order] if by_class else value
        means: dict[str, np.ndarray] = {}
        for output in AVERAGED:
            each = [found.get(f"{name}{SEPARATOR}{output}") for name in self.names]
            known = [value for value in each if value is not None]
            if len(known) == len(each):
                means[output] = np.asarray(np.mean(known, axis=0, dtype=np.float64), np.float32)
        return means | found

    def _asked(self, rows: Sequence[Row]) -> list[Scores]:
        """The members' outputs; all are called, so that no second call is needed because another lacks a row."""
        scores: list[Scores] = []
        reasons: dict[int, str] = {}
        for member in self.members:
            try:
                scores.append(member.score(rows))
            except RowsMissingError as error:
                reasons = {**error.reasons, **reasons}
        if reasons:
            raise RowsMissingError(reasons)
        return scores

    @property
    def truncated(self) -> frozenset[int]:
        """The places of rows of which at least one member did not read all."""
        return frozenset[int]().union(*map(truncated_by, self.members))

    def costs(self) -> dict[str, float]:
        """The sum over all members."""
        spent: dict[str, float] = {}
        for member in self.members:
            for name, count in costs_of(member).items():
                spent[name] = spent.get(name, 0.0) + count
        return spent


@problem_list
def _disagreement(first: str, lead: Labeller, name: str, member: Labeller) -> Iterator[Problem]:

    if member.kind != lead.kind:
        yield Problem(
            f"teacher {name} is of task type {member.kind}, {first} of {lead.kind}",
            "label with teachers of one task",
        )
    if places_by_name(member.classes, lead.classes) is None:
        yield Problem(
            f"teacher {name} has the classes {', '.join(member.classes) or 'of no names'}, "
            f"{first} has {', '.join(lead.classes) or 'none'}",
            "label with teachers of the same classes, or name the task with --task if its names are missing",
        )
