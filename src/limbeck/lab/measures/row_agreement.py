"""On which rows teacher and student are right, both, one or none. Part of `limbeck.lab.measures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from limbeck.evaluation.class_predictions import ClassPredictions

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
    """Rows on which both models are as right as said; examples with the largest distance of probabilities first."""

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
        alike: of those that both have wrong how many they predict alike.
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
        student: likewise.
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
        # A model that writes its answer may write what is no class.
        return names[number] if number < len(names) else "none of them"

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
