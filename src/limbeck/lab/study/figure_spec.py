"""The keys of a study's figures, and which kinds of figure there are. Part of `limbeck.lab.study`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from limbeck.support.settings import Names, Settings

TASK, METHOD = "task", "method"
PARAMETERS = "parameters"
"""As `x`: the student's number of weights, measured."""
SCORE = "dev"
"""As `y`: the primary dev score."""


class FigureSpec(Settings):
    """One figure."""

    draw: str = Field(description="lines, boxes, bars, heat, curves, probabilities or analysis")
    title: str = Field("", description="what it shows; by default its name")
    methods: Names | None = Field(
        None, description="rows of the table that are in it; all by default"
    )
    tasks: Names | None = Field(None, description="tasks that are in it; all by default")
    x: str | None = Field(None, description="lines: a key of axes, or parameters")
    y: str = Field(
        SCORE,
        description="curves: dev, the primary score; dev.NAME, another dev metric, dev.loss; or a training term, loss "
        "their sum",
    )
    rows: str | None = Field(None, description="heat: a key of axes, task or method")
    columns: str | None = Field(None, description="heat: likewise")
    of: str | None = Field(None, description="analysis: which, as `limbeck analyze` calls it")
    settings: dict[str, Any] = Field(default_factory=dict, description="analysis: its settings")
    split: str | None = Field(
        None, description="analysis: of which split; by default that which selects"
    )
    stage: str | None = Field(
        None,
        description="analysis: first, students as they were after their first stage, which keep_first_stage keeps; by "
        "default last",
    )


@dataclass(frozen=True)
class FigureKind:
    """What a kind of figure needs of a `FigureSpec`, and what else it reads."""

    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


KINDS = {
    "lines": FigureKind(needs=("x",)),
    "boxes": FigureKind(),
    "bars": FigureKind(),
    "heat": FigureKind(needs=("rows", "columns")),
    "curves": FigureKind(takes=("y",)),
    "probabilities": FigureKind(),
    "analysis": FigureKind(needs=("of",), takes=("settings", "split", "stage")),
}
_OF_ALL = {"draw", "title", "methods", "tasks"}


def unread(spec: FigureSpec) -> list[str]:
    """Keys that are given and that its kind of figure does not read."""
    kind = KINDS[spec.draw]
    return sorted(spec.model_fields_set - _OF_ALL - {*kind.needs, *kind.takes})


def missing(spec: FigureSpec) -> list[str]:
    """Keys that its kind of figure needs and that are not given."""
    return [key for key in KINDS[spec.draw].needs if getattr(spec, key) is None]
