"""Is one model better than another, or were the rows kind to it? Tests over the rows that both predicted.

Part of `limbeck.evaluation`. They show how far the choice of rows explains a difference between these two
models; the effect of another seed is measured in `limbeck.evaluation.compare`.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from limbeck.evaluation.class_predictions import Predictions, alike
from limbeck.records.facts import DifferenceFacts, KeptFacts, McNemarFacts, RowTests
from limbeck.tasks import Task
from limbeck.tasks.metrics import SampledScore, plain_metric

# A task's primary score on samples with replacement, and its interval. Stored
# predictions are sampled, so that no model runs.


LEVEL = 0.95
SAMPLES = 1000
# Numbers gathered at once.
_BATCH_NUMBERS = 2_000_000


def bootstrap(
    statistic: Callable[[np.ndarray], np.ndarray], rows: int, *, seed: int = 0
) -> tuple[float, float] | None:
    """Percentile interval of a statistic over rows, or other units; None where it is not defined in every sample.

    Args:
        statistic: numbers of rows (B, n) → a value for each of the B samples.
        rows: how many there are.
        seed: that samples them.
    """

    def along(numbers: np.ndarray, axis: int) -> np.ndarray:
        return statistic(np.moveaxis(np.asarray(numbers, dtype=np.int64), axis, -1))

    with warnings.catch_warnings():
        # A statistic that some sample leaves undefined, or that is the same in all of them.
        warnings.simplefilter("ignore", category=stats.DegenerateDataWarning)
        found = stats.bootstrap(
            (np.arange(rows),),
            along,
            n_resamples=SAMPLES,
            batch=max(1, _BATCH_NUMBERS // rows),
            vectorized=True,
            confidence_level=LEVEL,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
    if not np.isfinite([found.low, found.high]).all():
        return None
    return float(found.low), float(found.high)


@dataclass(frozen=True)
class SampledPrimary:
    """A model's primary score, to be computed of samples of its predictions.

    Attributes:
        score: of numbers of units (B, m).
        count: number of units.
        unit: the name of the units, in the plural: rows, pairs, queries.
    """

    score: SampledScore
    count: int
    unit: str


def primary_of_samples(task: Task, predictions: Predictions) -> SampledPrimary | None:
    """The primary score of samples of units: the mean of its metrics; None where one cannot be sampled again."""
    units = task.kind.sampled_units(task, predictions)
    if units is None:
        return None
    names = task.primary.split("+")
    parts = [task.kind.sampled_score(task, plain_metric(name), units.kept) for name in names]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None

    def score(chosen: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.mean([part(chosen) for part in known], axis=0)
        return found

    return SampledPrimary(score, len(units.kept["label"]), units.name)


SEED = 0
SIGNIFICANT = 0.05
FEW_ROWS = 200
"""With fewer rows the difference of two accuracies has a score interval instead of the bootstrap."""


def row_tests(task: Task, first: Predictions, second: Predictions) -> RowTests:
    """McNemar's exact test, and a paired bootstrap of the difference of the primary score.

    Args:
        task: whose classes and primary score are meant.
        first: a model's predictions.
        second: another's of the same rows, in the same order.

    Raises:
        ValueError: the labels are not the same ones.
    """
    if list(first["label"]) != list(second["label"]):
        raise ValueError("the two models were not scored on the same rows")
    one, other = (primary_of_samples(task, side) for side in (first, second))
    known = one if one is not None else other
    exact, rows = _of_classes(task, first, second), len(first["label"])
    if exact is not None and plain_metric(task.primary) == "accuracy" and rows < FEW_ROWS:
        difference: DifferenceFacts | None = score_difference(exact, rows)
    else:
        difference = None if one is None or other is None else bootstrap_difference(one, other)
    return RowTests(
        rows=rows if known is None else known.count,
        unit="rows" if known is None else known.unit,
        difference=difference,
        mcnemar=exact,
    )


def is_ahead(task: Task, tests: RowTests) -> bool | None:
    """Whether the first model is significantly better than the second by the primary score, p < 0.05.

    Accuracy of examples is decided by McNemar's exact test, every other score by the bootstrap's interval. None where
    there is neither.
    """
    if tests.mcnemar is not None and plain_metric(task.primary) == "accuracy":
        exact = tests.mcnemar
        return exact.only_first > exact.only_second and exact.p < SIGNIFICANT
    return None if tests.difference is None else tests.difference.low > 0


def mcnemar(first_right: np.ndarray, second_right: np.ndarray) -> McNemarFacts:
    """McNemar's exact test of two models' hits (n,) on the same rows, two-sided.

    If neither is better, a row that one of them alone has right is either's with probability ½ (McNemar 1947);
    the p-value is the binomial's own, no approximation. Without such rows it is 1.
    """
    only_first = int((first_right & ~second_right).sum())
    only_second = int((second_right & ~first_right).sum())
    either = only_first + only_second
    p = float(stats.binomtest(only_first, either, 0.5).pvalue) if either else 1.0
    return McNemarFacts(only_first=only_first, only_second=only_second, p=p)


def score_difference(counts: McNemarFacts, rows: int) -> DifferenceFacts:
    """First less second of two accuracies, points, with Tango's (1998) score interval.

    It holds all differences that a score test of the paired counts does not reject. Unlike a bootstrap's it is not
    too narrow where few rows differ.
    """
    first, second = counts.only_first, counts.only_second
    z = float(stats.norm.ppf(0.5 + LEVEL / 2))

    def score(gap: float) -> float:
        linear = -first - second + (2 * rows - first + second) * gap
        square = linear**2 + 8 * rows * second * gap * (1 - gap)
        only_second = (np.sqrt(max(square, 0.0)) - linear) / (4 * rows)
        variance = rows * (2 * only_second + gap * (1 - gap))
        found: float = (first - second - rows * gap) / np.sqrt(max(variance, 1e-12))
        return found

    seen, edge = (first - second) / rows, 1 - 1e-9
    low = brentq(lambda gap: score(gap) - z, -edge, seen) if score(-edge) > z else -1.0
    high = brentq(lambda gap: score(gap) + z, seen, edge) if score(edge) < -z else 1.0
    return DifferenceFacts(
        difference=100 * seen, low=100 * low, high=100 * high, level=LEVEL, method="score"
    )


def bootstrap_difference(first: SampledPrimary, second: SampledPrimary) -> DifferenceFacts | None:
    """First less second by the primary score, points, with a percentile interval: both are scored on the same
    samples, with replacement. None of fewer than two units, or where some sample leaves a score undefined.
    """
    if first.count < 2:
        return None

    def difference(chosen: np.ndarray) -> np.ndarray:
        return first.score(chosen) - second.score(chosen)

    interval = bootstrap(difference, first.count, seed=SEED)
    if interval is None:
        return None
    return DifferenceFacts(
        difference=float(difference(np.arange(first.count)[None])[0]),
        low=interval[0],
        high=interval[1],
        level=LEVEL,
        samples=SAMPLES,
        seed=SEED,
    )


def _of_classes(task: Task, first: Predictions, second: Predictions) -> McNemarFacts | None:
    # Words of one sentence are not independent of each other, so a tagger has no such test.
    if not task.kind.row_classes(task):
        return None
    right = task.kind.class_ids(task, first["label"])
    sides = (task.kind.class_ids(task, side["prediction"]) for side in (first, second))
    return mcnemar(*(alike(side, right) for side in sides))


# How much of its teacher's score a student keeps, with an interval over dev rows, pairs or queries.


def kept_share(
    task: Task, student: Predictions, teacher: Predictions | None, scores: tuple[float, float]
) -> KeptFacts | None:
    """Student's primary score over teacher's, with a percentile bootstrap interval over rows, pairs or queries.

    Of few rows' accuracies it is the score interval of their difference (`row_tests`), over the teacher's accuracy: a
    bootstrap of two models that answer alike would be certain.

    Args:
        task: whose primary score is meant.
        student: its predictions on dev.
        teacher: its predictions on the same rows; None where they are not known, and its score
            counts as exact.
        scores: primary scores of student and teacher, 0 to 100.

    Returns None if the teacher's score is not above 0, or the score cannot be sampled
    again.
    """
    own, theirs = scores
    of_student = primary_of_samples(task, student)
    if theirs <= 0 or of_student is None or of_student.count < 2:
        return None
    of_teacher = None if teacher is None else primary_of_samples(task, teacher)
    gap = None if teacher is None else row_tests(task, student, teacher).difference
    if gap is not None and gap.method == "score":
        return KeptFacts(
            share=own / theirs,
            low=1 + gap.low / theirs,
            high=1 + gap.high / theirs,
            level=LEVEL,
            rows=of_student.count,
            unit=of_student.unit,
            method="score",
        )

    def share(chosen: np.ndarray) -> np.ndarray:
        level = np.array(theirs) if of_teacher is None else of_teacher.score(chosen)
        return of_student.score(chosen) / np.where(level > 0, level, np.nan)

    # A teacher whose score is not above 0 in some sample: there is no interval then.
    interval = bootstrap(share, of_student.count)
    if interval is None:
        return None
    return KeptFacts(
        share=own / theirs,
        low=interval[0],
        high=interval[1],
        level=LEVEL,
        rows=of_student.count,
        unit=of_student.unit,
        paired=of_teacher is not None,
    )
