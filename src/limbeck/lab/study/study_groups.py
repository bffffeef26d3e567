"""What a study chooses for: one method on one task under one condition, and the settings tried for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from limbeck.lab.study.shared_runs import StudyRun
from limbeck.lab.study.study_fields import REST, WEIGHT, Grid

Cell = Mapping[str, Any]
"""Recipe keys that are tried together."""

Tried = tuple[Cell, tuple[StudyRun, ...]]
"""A cell and its runs, one for each seed of the study."""


class Search(Protocol):
    """Says which cell is tried next, by what those before it scored."""

    trials: int

    def tried(self) -> tuple[Tried, ...]:
        """The cells so far, in the order in which they were asked for."""

    def advance(self, score_of: Callable[[Tried], Verdict | None], room: int) -> None:
        """Take in what has ended and ask for cells until `room` of them are open, or all are asked for."""


@dataclass(frozen=True)
class Verdict:
    """What a cell came to: the mean primary dev score of the seeds that decide; None if it failed."""

    score: float | None


@dataclass(frozen=True)
class Group:
    """One method on one task under one condition: what is chosen for, and then run with every seed.

    Attributes:
        label: what its row is called.
        task: whose rows.
        condition: the values of the study's axes.
        grid: of each cell of the grid its runs; of a search cells with the ends of its ranges and all of its
            values, which stand for its runs where recipes are checked and sizes are asked about.
        search: what says the cells in place of a grid.
    """

    label: str
    task: str
    condition: Mapping[str, Any]
    grid: tuple[Tried, ...]
    search: Search | None = None

    @property
    def tried(self) -> tuple[Tried, ...]:
        """Cells that are, or have been, tried; of a search those so far."""
        return self.grid if self.search is None else self.search.tried()

    @property
    def tries(self) -> int:
        """How many cells there will be."""
        return len(self.grid) if self.search is None else self.search.trials

    @property
    def chooses(self) -> bool:
        """Whether there is anything to choose from."""
        return self.tries > 1 or self.search is not None

    @property
    def sample(self) -> StudyRun:
        """A run that is like all others in size and length."""
        return self.grid[0][1][0]

    def wanted(self, choosing: int) -> int:
        """How many runs it comes to, where the choice is made on so many seeds."""
        seeds = len(self.grid[0][1])
        return self.tries * choosing + seeds - choosing if self.chooses else seeds


@dataclass(frozen=True)
class Choice:
    """What was chosen for a group.

    Attributes:
        group: for whom.
        settings: the chosen cell.
        runs: its runs, one for each seed.
        scores: of each cell the mean primary dev score; None where no run of it has finished.
    """

    group: Group
    settings: Cell
    runs: tuple[StudyRun, ...]
    scores: tuple[tuple[Cell, float | None], ...]


def cells_of(grid: Grid) -> list[dict[str, Any]]:
    """Every combination of one value of each key, the first key slowest; one empty cell of no keys.

    Weights that are to add up to 1 (ALP-KD: β = 1 − η − λ): a weight whose value is `REST` is what the cell's other
    weights leave; cells in which they leave less than 0 are none.
    """
    cells = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    return [cell for cell in map(_with_rest, cells) if cell is not None]


def _with_rest(cell: dict[str, Any]) -> dict[str, Any] | None:
    """The cell with the rest in place of the word, None if there is less than nothing."""
    key = next((key for key, value in cell.items() if value == REST), None)
    if key is None:
        return cell
    others = sum(
        float(value) for name, value in cell.items() if name != key and name.endswith(WEIGHT)
    )
    rest = round(1 - others, 9)
    return None if rest < 0 else {**cell, key: rest}
