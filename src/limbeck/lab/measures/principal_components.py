"""Where both models put the same examples: principal components and cosines. Part of `limbeck.lab.measures`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import PCA

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class StatePoints:
    """Examples in the plane of the first two principal components.

    Attributes:
        student_layer: whose states are shown, 0 for the embedding output.
        teacher_layer: likewise.
        student: a point for each example.
        teacher: likewise, in the same order.
        together: whether both are in one plane, of the components of all states; each has its own where widths differ.
        explained: the shares of variance of the two components, of the student's and of the teacher's plane.
        cosines: of each example the cosine between both states; None where widths differ.
        labels: class ids of the examples; None of a task without classes.
        names: of the classes.
    """

    student_layer: int
    teacher_layer: int
    student: Points
    teacher: Points
    together: bool
    explained: tuple[tuple[float, float], tuple[float, float]]
    cosines: tuple[float, ...] | None
    labels: tuple[int, ...] | None = None
    names: tuple[str, ...] = ()


def state_points(
    student: np.ndarray,
    teacher: np.ndarray,
    *,
    layers: tuple[int, int] = (0, 0),
    labels: np.ndarray | None = None,
    names: tuple[str, ...] = (),
) -> StatePoints:
    """Principal components of both models' states (ALP-KD, Figure 4).

    Args:
        student: states (n, d) of n examples.
        teacher: states (n, e) of the same examples.
        layers: the student's and the teacher's, for the heading.
        labels: class ids (n,).
        names: of the classes.

    Raises:
        ValueError: fewer than two examples, or another number on either side.
    """
    if len(student) != len(teacher) or len(student) < 2:
        raise ValueError(f"{len(student)} states of the student, {len(teacher)} of the teacher")
    together = student.shape[1] == teacher.shape[1]
    if together:
        plane = PCA(n_components=2, svd_solver="full").fit(np.concatenate([student, teacher]))
        planes = plane, plane
    else:
        planes = tuple(
            PCA(n_components=2, svd_solver="full").fit(one) for one in (student, teacher)
        )
    cosines = None
    if together:
        lengths = np.linalg.norm(student, axis=1) * np.linalg.norm(teacher, axis=1)
        dots = (student * teacher).sum(axis=1)
        cosines = tuple(map(float, dots / np.maximum(lengths, np.finfo(float).tiny)))
    return StatePoints(
        *layers,
        _points(planes[0].transform(student)),
        _points(planes[1].transform(teacher)),
        together,
        (_pair(planes[0].explained_variance_ratio_), _pair(planes[1].explained_variance_ratio_)),
        cosines,
        None if labels is None else tuple(map(int, labels)),
        names,
    )


def _points(given: np.ndarray) -> Points:
    return tuple((float(x), float(y)) for x, y in given)


def _pair(given: np.ndarray) -> tuple[float, float]:
    return float(given[0]), float(given[1])
