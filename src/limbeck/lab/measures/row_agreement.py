"""On which rows teacher and student are right, both, one or none. Part of `limbeck.lab.measures`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from limbeck.evaluation.calibration import BINS, calibration_error, reliability
from limbeck.evaluation.class_predictions import ClassPredictions
from limbeck.records import Record

CELLS = ((True, True), (True, False), (False, True), (False, False))
"""(teacher right, student right), in the order of internal-kd's Table 3."""


@dataclass(frozen=True)
class AgreementExample:
    """A row, and both models' probabilities of every class where they are known."""

    row: int
    label: str
    teacher: str
    student: str
    teacher_probabilities: tuple[float, ...] | None
    student_probabilities: tuple[float, ...] | None
    text: dict[str, str] | None = None


@dataclass(frozen=True)
class AgreementCell:
    """Rows on which each model is right or wrong as given; examples with the most different probabilities first."""

    teacher_right: bool
    student_right: bool
    count: int
    examples: tuple[AgreementExample, ...]


@dataclass(frozen=True)
class RowAgreement:
    """Teacher and student over the same rows.

    Attributes:
        names: classes in the order of their ids.
        cells: right and right, right and wrong, wrong and right, wrong and wrong; the teacher first.
        rows: how many there are.
        alike: of the rows that both have wrong, the number that they predict alike.
    """

    names: tuple[str, ...]
    cells: tuple[AgreementCell, ...]
    rows: int
    alike: int


def agreement_of(
    names: Sequence[str],
    labels: np.ndarray,
    teacher: ClassPredictions,
    student: ClassPredictions,
    *,
    texts: Mapping[str, Sequence[Any]] | None = None,
    examples: int = 3,
) -> RowAgreement:
    """Count rows by who is right (Aguilar et al. 2020, Tables 3 and 4).

    Args:
        names: the classes in the order of their ids.
        labels: class ids (n,).
        teacher: its predictions of the n rows.
        student: its predictions of the n rows.
        texts: text columns of the rows, to be shown with examples; None shows none.
        examples: the most that are kept of each cell.

    Raises:
        ValueError: no rows, or predictions of another number of rows.
    """
    if not len(labels) or not len(labels) == len(teacher.ids) == len(student.ids):
        raise ValueError(
            f"{len(labels)} labels, {len(teacher.ids)} and {len(student.ids)} predictions"
        )
    right = teacher.ids == labels, student.ids == labels
    far = _distance(teacher, student)
    cells = []
    for wanted in CELLS:
        inside = np.flatnonzero((right[0] == wanted[0]) & (right[1] == wanted[1]))
        order = inside[np.argsort(-far[inside], kind="stable")][:examples]
        shown = tuple(_example(int(r), names, labels, teacher, student, texts) for r in order)
        cells.append(AgreementCell(*wanted, len(inside), shown))
    alike = ~right[0] & ~right[1] & (teacher.ids == student.ids)
    return RowAgreement(tuple(names), tuple(cells), len(labels), int(alike.sum()))


def _distance(teacher: ClassPredictions, student: ClassPredictions) -> np.ndarray:
    """Total variation distance by row (n,); 0 where probabilities are not known."""
    if teacher.probabilities is None or student.probabilities is None:
        return np.zeros(len(teacher.ids))
    found: np.ndarray = 0.5 * np.abs(teacher.probabilities - student.probabilities).sum(axis=1)
    return found


def _example(
    row: int,
    names: Sequence[str],
    labels: np.ndarray,
    teacher: ClassPredictions,
    student: ClassPredictions,
    texts: Mapping[str, Sequence[Any]] | None,
) -> AgreementExample:
    def named(number: int) -> str:
        # A model that writes its answer may write a text that is no class.
        return names[number] if number < len(names) else "no class"

    def shares(given: ClassPredictions) -> tuple[float, ...] | None:
        return None if given.probabilities is None else tuple(map(float, given.probabilities[row]))

    said = None if texts is None else {name: str(values[row]) for name, values in texts.items()}
    return AgreementExample(
        row,
        named(int(labels[row])),
        named(int(teacher.ids[row])),
        named(int(student.ids[row])),
        shares(teacher),
        shares(student),
        said,
    )


# How sure models are and how right, as curves that can be kept.


@dataclass(frozen=True)
class CurvePoint:
    """The rows predicted with a probability in (low, high]; None if there are no such rows."""

    low: float
    high: float
    rows: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class ReliabilityCurve:
    """One model's reliability.

    Attributes:
        error: expected calibration error, 0 to 100 (Guo et al. 2017, Eq. 3).
        confidence: mean probability of the predictions, 0 to 1.
        accuracy: 0 to 1; above it, `confidence` is too high.
        points: of every bin of probabilities.
        rows: how many were predicted.
    """

    error: float
    confidence: float
    accuracy: float
    points: tuple[CurvePoint, ...]
    rows: int


def reliability_curve(
    confidence: np.ndarray, right: np.ndarray, *, bins: int = BINS
) -> ReliabilityCurve:
    """Calibration error and reliability of predictions.

    Args:
        confidence: the predictions' own probabilities (n,), 0 to 1.
        right: whether each is right (n,).
        bins: how many equally wide bins [0, 1] is cut into.

    Raises:
        ValueError: no predictions, or shapes that differ.
    """
    if not len(confidence) or confidence.shape != right.shape:
        raise ValueError(f"{confidence.shape} probabilities, {right.shape} predictions")
    hits = right.astype(float)
    found = reliability(confidence, hits, bins)
    points = tuple(CurvePoint(**one.model_dump()) for one in found)
    return ReliabilityCurve(
        100 * calibration_error(found),
        float(confidence.mean()),
        float(hits.mean()),
        points,
        len(confidence),
    )


# How a run came to its score: dev scores and losses, and which layers learned when.


@dataclass(frozen=True)
class RunCourse:
    """A run, epoch by epoch, its stages after each other.

    Attributes:
        steps: optimization steps at the end of each epoch, counted through all stages.
        epochs: the same in epochs.
        scores: primary dev score of each, 0 to 100; None where none was taken.
        terms: of each training term, `loss` being their sum, its mean over the epoch.
        learned: the student layer whose turn ended with an epoch, None for none; where layers have turns.
        metric: the name of the scores.
    """

    steps: tuple[int, ...]
    epochs: tuple[int, ...]
    scores: tuple[float | None, ...]
    terms: dict[str, tuple[float | None, ...]]
    learned: tuple[int | None, ...]
    metric: str


def run_course(record: Record, metric: str = "primary dev score") -> RunCourse:
    """The course of a run, from its record (Aguilar et al. 2020, Figures 4 and 10).

    Raises:
        ValueError: no epoch was recorded.
    """
    if not record.epochs:
        raise ValueError("no epoch was recorded")
    lengths: dict[int, int] = {}
    for one in record.epochs:
        lengths[one.stage] = max(lengths.get(one.stage, 0), one.step)
    steps = [
        one.step + sum(length for stage, length in lengths.items() if stage < one.stage)
        for one in record.epochs
    ]
    names = dict.fromkeys(name for one in record.epochs for name in one.train)
    return RunCourse(
        tuple(steps),
        tuple(range(1, len(steps) + 1)),
        tuple(one.dev.get("primary") for one in record.epochs),
        {name: tuple(one.train.get(name) for one in record.epochs) for name in names},
        _learned(record),
        metric,
    )


def _learned(record: Record) -> tuple[int | None, ...]:
    """The newest layer of each epoch that is not the newest of the next one any more."""
    newest = [
        max((pair[0] for pairs in one.active_layers.values() for pair in pairs), default=None)
        for one in record.epochs
    ]
    # Where all layers learn together from the first epoch on, none has a turn.
    if len(set(newest)) == 1:
        return (None,) * len(newest)
    following = [*newest[1:], None]
    return tuple(
        layer if layer != after else None for layer, after in zip(newest, following, strict=True)
    )
