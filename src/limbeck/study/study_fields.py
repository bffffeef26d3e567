"""The keys of a study's file. Part of `limbeck.study`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from limbeck.files import file_name
from limbeck.reporting.tables import DEFAULT_FACTS
from limbeck.settings import Count, Seed, Settings

SCALES = ("paper", "small", "pocket")
"""As published; a small encoder at hand on real rows; generated rows, in minutes."""

Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]
"""Recipe key → the values that are tried."""


class MethodSpec(Settings):
    """One row of the table."""

    method: str | None = Field(
        None, description="the shipped method or recipe file; by default as the row is called"
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="recipe keys of this method alone"
    )
    grid: Grid | None = Field(
        None, description="the values tried for this method, in place of select.grid"
    )


class TeacherSpec(Settings):
    """How each task's teacher is made, or where it lies."""

    at: str | None = Field(None, description="a run, folder or Hub name to take, with {task} in it")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="recipe keys of the run that makes it"
    )


class SelectSpec(Settings):
    """What is chosen on dev, for each method, task and condition by itself."""

    grid: Grid = Field(default_factory=dict, description="recipe key → values that are tried")
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
        default_factory=lambda: [*DEFAULT_FACTS], description="measured columns beside the scores"
    )


class PrintedSpec(Settings):
    """The paper's own table."""

    source: str = Field(description="where it stands, and of which models")
    decimals: int = Field(1, ge=0, le=3, description="digits after the point")
    columns: list[str] = Field(description="titles as the profile has them, and `average`")
    rows: dict[str, list[float | int]] = Field(
        description="row → numbers; `teacher` is the teacher's"
    )

    def numbers(self) -> dict[str, dict[str, float]]:
        """Row → column → number."""
        return {
            row: dict(zip(self.columns, map(float, values), strict=True))
            for row, values in self.rows.items()
        }


class Study(Settings):
    """A study at one scale."""

    name: str
    title: str = Field(description="what the table is called")
    paper: str = Field("", description="the paper it repeats")
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
    differs: list[str] = Field(default_factory=list, description="what is other than in the paper")
    jobs: Count | None = Field(
        None, description="processes side by side, where the command line says nothing"
    )
    keep_students: bool = Field(
        False, description="keep the students' weights, not only their records"
    )

    def method_of(self, label: str) -> MethodSpec:
        """How a row is trained."""
        return self.methods[label] or MethodSpec.model_validate({})

    @property
    def full_name(self) -> str:
        """Name and scale: what its folder is called."""
        return file_name(f"{self.name}-{self.scale}" if self.scale else self.name)
