"""The description of a cascade's folder, `cascade.json`: its members, each one's thresholds, the measurements.

`limbeck.exporting.cascade` writes it; whatever scores a model reads it by `ScoredModel.open`.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import expit, logit, softmax

from limbeck.runtimes.manifest import GateRowsFacts, read_as
from limbeck.support import files
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.tasks import TASK_TYPES, TaskType
from limbeck.tasks.rules import USUAL, Thresholds

CASCADE_NAME = "cascade.json"
SCHEMA = 1


# How confident a model is in a row, and how this relates to the labels.


def answers_several(kind: TaskType, outputs: int) -> bool:
    """Whether a row's classes do not exclude each other.

    Raises:
        LimbeckError: outputs that are no classes, which have no confidence.
    """
    raise_problems(confidence_problems(kind, outputs, f"outputs of kind {kind.name}"))
    return kind.outcomes(outputs) == 0


@problem_list
def confidence_problems(kind: TaskType, outputs: int, whose: str) -> Iterator[Problem]:
    """The problem with outputs that are not a row's classes: they have no confidence."""
    if _has_confidence(kind, outputs):
        return
    what = "a number" if kind.is_number(outputs) else f"kind {kind.name}"
    known = [TASK_TYPES.get(name) for name in TASK_TYPES]
    kinds = [one.name for one in known if _has_confidence(one, 2) and one.candidates is None]
    yield Problem(
        f"cascade: {whose}: {what} has no confidence to decide by",
        f"name models that predict classes: kind {', '.join(kinds)}, with two classes or more",
    )


def _has_confidence(kind: TaskType, outputs: int) -> bool:
    return 1 < kind.outcomes(outputs, exclusive=False) < math.inf


def centred(logits: np.ndarray, thresholds: Thresholds) -> np.ndarray:
    """Logits (n, C) that 0 decides: of several classes a row less the logits of the model's thresholds."""
    given = USUAL if isinstance(thresholds, str) else thresholds
    found: np.ndarray = logits - logit(np.asarray(given, dtype=np.float64))
    return found.astype(logits.dtype)


def confidence_of(logits: np.ndarray, temperature: float, *, several: bool) -> np.ndarray:
    """How sure `centred` logits (n, C) are, (n,): the probability of the likeliest class, or of the least sure one."""
    scaled = logits.astype(np.float64) / temperature
    sure = expit(np.abs(scaled)).min(axis=1) if several else softmax(scaled, axis=1).max(axis=1)
    return np.asarray(sure)


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore")


class CascadeMember(_Record):
    """One model of a cascade."""

    name: str
    """As it was named."""
    place: str
    """Its folder below the cascade's, or its Hub name."""
    max_length: int
    """Tokens that a text is cut to."""
    seconds: float
    """That a row cost when the cascade was measured, its tokenization included."""
    score: float
    """Its primary score alone, 0 to 100."""
    temperature: float = 1.0
    """The temperature that divides its logits before its confidence is computed."""
    threshold: float = 0.0
    """A row of which it is less sure than this, 0 to 1, is sent on."""
    backend: str | None = None
    """What computes an exported member."""
    decides: list[float] = Field(default_factory=lambda: [USUAL])
    """How likely each class of several has to be, one number for all of them or one each."""
    classes: list[str] = Field(default_factory=list)
    """For stored teacher outputs instead of a model: the classes in the cascade's order."""
    teacher: str = ""
    """Whose outputs they are."""
    timed: bool = True
    """Whether `seconds` was measured; optional for stored outputs."""

    @property
    def stored(self) -> bool:
        """Whether it is a store of teacher outputs."""
        return bool(self.classes)

    def is_sure(self, logits: np.ndarray, kind: TaskType) -> np.ndarray:
        """The rows, by its logits (n, C), of which it is sure enough to answer them (n,)."""
        several = answers_several(kind, logits.shape[1])
        plain = centred(logits, tuple(self.decides))
        return confidence_of(plain, self.temperature, several=several) >= self.threshold


class CascadePoint(_Record):
    """A cascade's results with some thresholds."""

    thresholds: list[float]
    sent: list[float]
    """Share of all rows, 0 to 1, that reach each member but the first."""
    score: float
    agreement: float
    """Share of rows, 0 to 100, that are predicted as the last member predicts them."""
    seconds: float
    """A row, in the mean."""


class CascadeManifest(_Record):
    """`cascade.json`. `folder` is where it was read from."""

    schema_version: int = SCHEMA
    kind: str
    """Task type, as a recipe calls it."""
    members: list[CascadeMember]
    """The fastest first."""
    wanted: dict[str, float]
    """The setting that the thresholds were chosen for: `max_drop`, `score`, `agreement` or `cost`."""
    gate: GateRowsFacts
    """The rows that chose them."""
    judged_by: str
    """`labels`, or `agreement` with the last member if the rows have no labels."""
    metric: str
    """The primary score's name."""
    chosen: CascadePoint
    """On the rows that chose the thresholds."""
    cross_fitted: CascadePoint | None = None
    """Each half of the rows with the thresholds that the other half chose; it has no thresholds of its own."""
    difference: dict[str, Any] | None = None
    """Score less the last member's on the cross-fitted rows, with its 95 % interval."""
    curve: list[CascadePoint] = Field(default_factory=list)
    known: dict[str, int] = Field(default_factory=dict)
    """By member how many of the rows it was trained or selected on, where these are many."""
    asks: dict[str, Any] = Field(default_factory=dict)
    """An endpoint instead of the last model: `endpoint`, settings that affect its answers; `prompt`; `columns`."""
    machine: str | None = None
    checksums: dict[str, str] = Field(default_factory=dict)
    folder: Path = Field(default=Path(), exclude=True)

    @property
    def max_length(self) -> int:
        """Tokens of a text that the member with the longest texts reads; each has a limit of its own."""
        return max(one.max_length for one in self.members)

    def answer(self, member: CascadeMember, logits: np.ndarray) -> np.ndarray:
        """A member's logits (n, C) in the form in which the last member's thresholds give the same decisions."""
        shift = centred(np.zeros_like(logits), tuple(self.members[-1].decides))
        found: np.ndarray = centred(logits, tuple(member.decides)) - shift
        return found

    @property
    def shown(self) -> CascadePoint:
        """What may be promised: rows that chose nothing, where they could be halved."""
        return self.cross_fitted or self.chosen

    def place_of(self, member: CascadeMember) -> str:
        """A member's folder, or Hub name; of a store its place, with the member of a team that is meant."""
        name, mark, one = member.place.partition("#")
        inside = self.folder / name
        return f"{inside}{mark}{one}" if inside.is_dir() else member.place

    def write(self, folder: Path) -> None:
        """Write it into a folder, atomically."""
        files.write_whole(folder / CASCADE_NAME, json.dumps(self.model_dump(), indent=1) + "\n")


def is_cascade(folder: str | Path) -> bool:
    """Whether a folder holds a cascade."""
    return (files.at_home(folder) / CASCADE_NAME).is_file()


def read_cascade(folder: str | Path) -> CascadeManifest:
    """The manifest of a cascade, whose files are held against their checksums.

    Raises:
        LimbeckError: a manifest that cannot be read, or damaged files.
    """
    path = files.at_home(folder) / CASCADE_NAME
    manifest = read_as(CascadeManifest, path, "make the cascade again: limbeck cascade")
    outside = [one.place for one in manifest.members if ".." in Path(one.place).parts]
    broken = [*outside, *files.damaged(path.parent, manifest.checksums)]
    if broken:
        raise LimbeckError(
            f"cascade {str(folder)!r} is damaged: {', '.join(broken)}",
            "copy the folder again, or make it again: limbeck cascade",
        )
    manifest.folder = path.parent
    return manifest
