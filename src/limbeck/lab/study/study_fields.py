"""The keys of a study's file. Part of `limbeck.lab.study`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, Protocol

from pydantic import ConfigDict, Field, PrivateAttr

from limbeck.lab.study.figure_spec import FigureSpec
from limbeck.lab.study.shared_runs import StudyRun
from limbeck.support.files import file_name
from limbeck.support.settings import Count, Seed, Settings
from limbeck.tables import DEFAULT_FACTS
from limbeck.tables.model import OutOfDomain

AS_PUBLISHED = "paper"
SCALES = (AS_PUBLISHED, "small", "pocket")
"""As published; a small encoder at hand on real rows; generated rows, in minutes."""

ROW_KEYS = (
    *("test", "dev_share", "test_share", "group_column"),
    *(
        "dev",
        "text_columns",
        "label_column",
        "kind",
        "classes",
        "labels",
        "label_separator",
        "thresholds",
    ),
    *(
        "unlabelled",
        "unlabelled_duplicates",
        "candidates",
        "images",
        "embedding",
        "max_length",
    ),
    *("train_rows", "train_rows_seed", "stratified"),
)
"""Recipe keys that may be at the top of a study, next to `data`: which rows there are and how they are read."""

Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]
"""Recipe key → the values that are tried; `[rest]` for one weight: the remainder of the others to 1."""


REST, WEIGHT = "rest", ".weight"
"""A weight in a grid that is the remainder of the grid's other weights; how keys of weights end."""

METHOD = "method"
"""In a method's own grid: the methods of which the one best on dev is the row's."""

MODEL = "{model}"
"""As a student's `student.init`: the teachers' start."""


class MethodSpec(Settings):
    """One row of the table."""

    method: str | None = Field(
        None, description="the shipped method or recipe file; by default as the row is called"
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="recipe keys of this method alone"
    )
    grid: Grid | None = Field(
        None,
        description="values tried for this method, instead of select.grid; of `method`, complete methods",
    )
    teachers: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="members of teachers.team that it learns from; all, if left out"
    )
    lead: str | None = Field(
        None,
        description="of several teachers the one that is the recipe's `teacher` too: whose layers students start from, "
        "and who teaches a first stage",
    )


class TeacherSpec(Settings):
    """How each task's teacher is made, or its location."""

    at: str | None = Field(None, description="a run, folder or Hub name to take, with {task} in it")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="recipe keys of the run that makes it"
    )
    team: dict[str, dict[str, Any] | None] = Field(
        default_factory=dict,
        description="several teachers of each task: a member's name → recipe keys of its run alone",
    )
    grid: Grid = Field(
        default_factory=dict,
        description="recipe key → values tried for each teacher; the one best on dev teaches",
    )
    grids: dict[str, dict[str, Grid]] = Field(
        default_factory=dict,
        description="member of the team (or `teacher`) → task → values tried there instead of `grid`",
    )


class SearchSpec(Settings):
    """A search instead of a grid: `{lr: [1e-5, 5e-5], trials: 20}`.

    With two numbers all between them are tried, integers if both are integers, others on a logarithmic
    scale if the first is above 0; with any other list its values.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[list[Any], Field(min_length=2)]] = Field(init=False)

    trials: Count = Field(
        description="how many cells are tried, for each method, task and condition"
    )

    @property
    def space(self) -> dict[str, list[Any]]:
        """Recipe key → its range, or its values."""
        return dict(self.__pydantic_extra__)


def is_range(values: list[Any]) -> bool:
    """Whether a search takes all between two numbers, and not the values of a list."""
    return len(values) == 2 and all(type(one) in (int, float) for one in values)


class SelectSpec(Settings):
    """The settings chosen on dev, for each method, task and condition separately."""

    grid: Grid = Field(default_factory=dict, description="recipe key → values that are tried")
    search: SearchSpec | None = Field(
        None, description="ranges that Optuna searches instead of a grid"
    )
    seeds: Count = Field(1, description="how many of the study's seeds the choice is made on")
    keep: Literal["all", "best"] = Field(
        "all", description="all seeds' runs for the table, or the one best on dev"
    )


class TableSpec(Settings):
    """The table that comes out."""

    profile: str = Field(
        "glue", description="which scores make a task's number, see `limbeck table`"
    )
    baseline: str | None = Field(None, description="the row every other one is tested against")
    correction: str = Field("table", description="which tests Holm's correction takes together")
    columns: list[str] = Field(
        default_factory=lambda: [*DEFAULT_FACTS], description="measured columns next to the scores"
    )
    out_of_domain: OutOfDomain = Field(
        "beside", description="whether scores on out-of-domain sets have columns"
    )


class PrintedSpec(Settings):
    """The paper's own table."""

    source: str = Field(description="its place in the paper, and the models")
    decimals: int = Field(1, ge=0, le=3, description="digits after the point")
    columns: list[str] = Field(
        description="titles as the table has them, `average`, and names in table.columns, as speedup"
    )
    what: Literal["mean", "deviation"] = Field(
        "mean", description="whether scores are printed, or their standard deviations over seeds"
    )
    average_of: list[str] = Field(
        default_factory=list,
        description="titles of columns that the paper averages and does not print",
    )
    rows: dict[str, list[float | int | None]] = Field(
        description="row → numbers, null for a missing number; `teacher` is the teacher's"
    )
    test: dict[str, list[float | int | None]] = Field(
        default_factory=dict,
        description="the same for the benchmark's test files, if the paper prints dev and test",
    )

    def numbers(self) -> dict[str, dict[str, float]]:
        """Row → column → number, without numbers that the paper lacks."""
        return self._by_column(self.rows)

    def test_numbers(self) -> dict[str, dict[str, float]]:
        """The same of the test files."""
        return self._by_column(self.test)

    def _by_column(self, rows: dict[str, list[float | int | None]]) -> dict[str, dict[str, float]]:
        return {
            row: {
                column: float(value)
                for column, value in zip(self.columns, values, strict=True)
                if value is not None
            }
            for row, values in rows.items()
        }


class Study(Settings):
    """A study at one scale."""

    name: str
    title: str = Field(description="name of the table")
    paper: str = Field("", description="the paper that it reproduces")
    scale: str | None = None
    data: str | None = Field(None, description="where every run's rows come from")
    model: str | None = Field(
        None, description="what teachers are made from: student.init of their runs"
    )
    tasks: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[Seed], Field(min_length=1)] = Field(default_factory=lambda: [1])
    methods: Annotated[dict[str, MethodSpec | None], Field(min_length=1)]
    axes: Grid = Field(
        default_factory=dict, description="recipe key → values: student sizes, conditions"
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="recipe keys of all runs, teachers' included"
    )
    per_task: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="task → recipe keys of its runs"
    )
    teachers: TeacherSpec | None = None
    students: dict[str, Any] = Field(
        default_factory=dict, description="recipe keys of all students"
    )
    select: SelectSpec = Field(default_factory=lambda: SelectSpec.model_validate({}))
    table: TableSpec = Field(default_factory=lambda: TableSpec.model_validate({}))
    printed: PrintedSpec | None = None
    figures: dict[str, FigureSpec] = Field(
        default_factory=dict, description="a figure's name → its type and data"
    )
    differs: list[str] = Field(
        default_factory=list, description="differences from the paper that no key shows"
    )
    jobs: Count | None = Field(
        None, description="parallel processes, unless set on the command line"
    )
    keep_students: bool = Field(
        False, description="keep the students' weights, not only their records"
    )

    _published: "Study | None" = PrivateAttr(None)
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def published(self) -> "Study | None":
        """The study as in the paper, its scale `paper`; None if it has no such scale."""
        return self._published

    @property
    def given(self) -> dict[str, Any]:
        """The keys that override its file, given when it was loaded."""
        return self._given

    def method_of(self, label: str) -> MethodSpec:
        """How a row is trained."""
        return self.methods[label] or MethodSpec.model_validate({})

    @property
    def full_name(self) -> str:
        """Name and scale: what its folder is called."""
        return file_name(f"{self.name}-{self.scale}" if self.scale else self.name)


# A study's unit of choice: one method on one task under one condition, and the settings tried for it.


Cell = Mapping[str, Any]
"""Recipe keys that are tried together."""

Tried = tuple[Cell, tuple[StudyRun, ...]]
"""A cell and its runs, one for each seed of the study."""


class Search(Protocol):
    """Says which cell is tried next, by what those before it scored."""

    trials: int

    def tried(self) -> tuple[Tried, ...]:
        """The cells so far, in the order in which they were suggested."""

    def advance(self, score_of: "Callable[[Tried], Verdict | None]", room: int) -> None:
        """Take in ended cells and suggest cells until `room` of them are open, or all have been suggested."""


@dataclass(frozen=True)
class Verdict:
    """A cell's result: the mean primary dev score of the seeds that decide; None if it failed."""

    score: float | None


@dataclass(frozen=True)
class Group:
    """One method on one task under one condition: settings are chosen for it, and then run with every seed.

    Attributes:
        label: what its row is called.
        task: whose rows.
        condition: the values of the study's axes.
        grid: for each cell of the grid its runs; for a search, cells with the ends of its ranges and all of its
            values, which represent its runs when recipes are checked and sizes are computed.
        search: suggests the cells instead of a grid.
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
        """The number of its runs, if the choice is made on this number of seeds."""
        seeds = len(self.grid[0][1])
        return self.tries * choosing + seeds - choosing if self.chooses else seeds


@dataclass(frozen=True)
class Choice:
    """The settings chosen for a group.

    Attributes:
        group: the group.
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

    Weights that are to add up to 1 (ALP-KD: β = 1 − η − λ): a weight whose value is `REST` is the remainder of
    the cell's other weights; cells with a negative remainder are left out.
    """
    cells = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    return [cell for cell in map(_with_rest, cells) if cell is not None]


def _with_rest(cell: dict[str, Any]) -> dict[str, Any] | None:
    """The cell with the remainder instead of the word, None if it is negative."""
    key = next((key for key, value in cell.items() if value == REST), None)
    if key is None:
        return cell
    others = sum(
        float(value) for name, value in cell.items() if name != key and name.endswith(WEIGHT)
    )
    rest = round(1 - others, 9)
    return None if rest < 0 else {**cell, key: rest}
