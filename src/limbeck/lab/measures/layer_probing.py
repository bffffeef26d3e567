"""How much of the label each layer holds: a linear classifier, or a linear regression, on its frozen states.

Part of `limbeck.lab.measures`.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from limbeck.tasks.metrics import spearman

Progressed = Callable[[int, int], None]
"""Called with the number of parts that are done, and of all parts."""

_ITERATIONS = 2000

_ROUNDING = 1e-6
"""Share of the labels' range: predictions that differ by less are a constant."""

ACCURACY, SPEARMAN = "accuracy", "Spearman's ρ"
"""What probes of classes, and of numbers, are scored by; both times 100."""


def nobody(done: int, total: int) -> None:
    """Progress that is not shown."""


@dataclass(frozen=True)
class ProbedLayers:
    """A linear probe of each layer of one model.

    Attributes:
        layers: their numbers, 0 for the embedding output.
        scores: accuracy (0 to 100) or, of numbers, 100 × Spearman's ρ, on rows that the probes have not seen, unless
            `fitted` is set.
        train_rows: how many a probe was fitted on.
        scored_rows: how many it was scored on.
        baseline: accuracy of always predicting the most frequent class of the fitted rows, 0 to 100; for numbers 0,
            the score of a constant.
        unconverged: layers whose probe had not converged after as many iterations as it was given.
        measure: what scores are, `ACCURACY` or `SPEARMAN`.
        fitted: whether scores are of the very rows that the probes were fitted on.
    """

    layers: tuple[int, ...]
    scores: tuple[float, ...]
    train_rows: int
    scored_rows: int
    baseline: float
    unconverged: tuple[int, ...] = ()
    measure: str = ACCURACY
    fitted: bool = False


def probe_layers(
    train: Sequence[np.ndarray],
    train_labels: np.ndarray,
    scored: Sequence[np.ndarray],
    labels: np.ndarray,
    *,
    layers: Sequence[int] | None = None,
    numbers: bool = False,
    strength: float = 1.0,
    progressed: Progressed = nobody,
) -> ProbedLayers:
    """Fit a logistic regression, of numbers a ridge regression, on each layer's states and score it on others.

    Features are standardised by the fitted rows, so that the penalty means the same for every layer.

    Args:
        train: of each layer the states (n, d) that probes are fitted on.
        train_labels: class ids, or numbers (n,).
        scored: for each layer the states (m, d) that they are scored on.
        labels: of these rows (m,).
        layers: the layers' numbers; from 0 by default.
        numbers: whether labels are numbers.
        strength: scikit-learn's C, the inverse of the penalty's weight (Ridge's alpha).
        progressed: called with the number of layers that are done.

    Raises:
        ValueError: fewer than two classes, or numbers, to fit, or shapes that do not fit.
    """
    if len(np.unique(train_labels)) < 2:
        raise ValueError("a probe needs rows of two classes at least")
    places = tuple(range(len(train)) if layers is None else layers)
    scores, unconverged = [], []
    for done, (number, own, other) in enumerate(zip(places, train, scored, strict=True), start=1):
        linear = (
            Ridge(alpha=1 / strength)
            if numbers
            else LogisticRegression(C=strength, max_iter=_ITERATIONS)
        )
        probe = make_pipeline(StandardScaler(), linear)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", ConvergenceWarning)
            probe.fit(own, train_labels)
        if any(issubclass(one.category, ConvergenceWarning) for one in said):
            unconverged.append(number)
        scores.append(_score(probe, other, np.asarray(labels), numbers))
        progressed(done, len(places))
    return ProbedLayers(
        places,
        tuple(scores),
        len(train_labels),
        len(labels),
        0.0 if numbers else _most_frequent(train_labels, labels),
        tuple(unconverged),
        SPEARMAN if numbers else ACCURACY,
    )


def _score(probe: Pipeline, states: np.ndarray, labels: np.ndarray, numbers: bool) -> float:
    """Accuracy, or the rank correlation of numbers, each times 100."""
    if numbers:
        predicted = probe.predict(states)
        # If all states are equal, as a first token's embedding is, only rounding errors remain.
        constant = np.ptp(predicted) <= _ROUNDING * np.ptp(labels)
        return 0.0 if constant else spearman(predicted, labels)
    return 100 * float(probe.score(states, labels))


def _most_frequent(fitted: np.ndarray, labels: np.ndarray) -> float:
    """Accuracy of the most frequent class, 0 to 100."""
    classes, counts = np.unique(fitted, return_counts=True)
    return 100 * float(np.mean(np.asarray(labels) == classes[counts.argmax()]))


# Where both models put the same examples: principal components and cosines.


Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class StatePoints:
    """Examples in the plane of the first two principal components.

    Attributes:
        student_layer: whose states are shown, 0 for the embedding output.
        teacher_layer: whose states are shown, 0 for the embedding output.
        student: a point for each example.
        teacher: a point for each example, in the same order.
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
