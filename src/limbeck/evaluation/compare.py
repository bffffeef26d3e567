"""Does one method's score differ from another's, run by run? Paired tests that can return "unknown".

Pure functions of numbers, called by tables. Every test is two-
sided and returns None if it cannot compute a p-value.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

Key = TypeVar("Key")

# 2^14: up to 14 pairs every sign flip is tried, so the p-value is exact; above, this many sampled.
_FLIPS = 2**14


class Comparison(NamedTuple):
    """Method minus baseline over the runs both have."""

    difference: float
    """Mean of the paired differences, in points."""
    p: float | None
    """Two-sided p-value; None where no test is possible."""
    pairs: int
    low: float | None = None
    """The 95 % interval of this difference alone; None where there is no spread."""
    high: float | None = None
    margin: float | None = None
    """Within how many points the two are equal by two one-sided tests at 5 %: the larger end of the 90 % interval."""


class Spread(NamedTuple):
    """A variance of a mean, with the degrees of freedom that it was estimated by."""

    variance: float
    freedom: float


def summary(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation (n − 1); None where there are too few values."""
    if not values:
        return None, None
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def paired(
    method: Mapping[Key, float], baseline: Mapping[Key, float]
) -> tuple[list[float], list[float]]:
    """The scores of the keys that both sides have, in one order."""
    shared = [key for key in method if key in baseline]
    return [method[key] for key in shared], [baseline[key] for key in shared]


def paired_t_test(method: Sequence[float], baseline: Sequence[float]) -> Comparison | None:
    """Student's paired t-test; for a few seeds of one task. None without any pair.

    p is None for one pair, and where all differences are the same number other than zero: without
    any spread the test is undefined, however large the difference. All zero gives p = 1. A
    score that is not finite leaves nothing to test: p is None.
    """
    differences = _differences(method, baseline)
    if not len(differences):
        return None
    mean, pairs = float(differences.mean()), len(differences)
    if pairs < 2 or not np.isfinite(differences).all():
        return Comparison(mean, None, pairs)
    if not differences.any():
        return Comparison(0.0, 1.0, pairs)
    if _constant(differences, method, baseline):
        return Comparison(mean, None, pairs)
    return by_t(mean, [over_seeds(differences)], pairs)


def by_t(difference: float, spreads: Sequence[Spread], pairs: int) -> Comparison:
    """A difference whose variance is the sum of independent ones, by Student's t (Welch and Satterthwaite)."""
    from scipy import stats  # half a second, which a table without tests does not wait for

    total = sum(one.variance for one in spreads)
    if total <= 0:
        return Comparison(difference, None, pairs)
    freedom = total**2 / sum(one.variance**2 / one.freedom for one in spreads)
    error = float(np.sqrt(total))
    p = 2 * float(stats.t.sf(abs(difference) / error, freedom))
    half, less = (error * float(stats.t.ppf(level, freedom)) for level in (0.975, 0.95))
    return Comparison(
        difference, p, pairs, difference - half, difference + half, abs(difference) + less
    )


def over_seeds(differences: Sequence[float] | np.ndarray) -> Spread:
    """The variance of a mean over seeds, by the spread of the seeds."""
    return Spread(float(np.var(differences, ddof=1)) / len(differences), len(differences) - 1)


def seeds_and_rows(differences: Sequence[float] | np.ndarray, without: np.ndarray) -> Comparison:
    """A paired test that counts chance in the seeds and in the rows: what another seed, on other rows, would give.

    The variance of the mean difference is that over seeds plus that over rows, by the jackknife: each row, pair or
    query is left out once (Efron and Stein 1981). Nothing is sampled, so that no seed of a bootstrap decides. What
    seeds and rows do together counts twice, which makes the test a little careful.

    Args:
        differences: by seed, method less baseline on all rows (S,), at least two.
        without: the mean difference over seeds with each row left out (n,).
    """
    values = np.asarray(differences, dtype=float)
    return by_t(float(values.mean()), [over_seeds(values), over_rows(without)], len(values))


def over_rows(without: np.ndarray) -> Spread:
    """The variance of a statistic over rows, by its values with each of them left out (n,)."""
    rows = len(without)
    return Spread(float(np.var(without)) * (rows - 1), rows - 1)


class Pooled(NamedTuple):
    """Method less baseline, and its variance by the spread of several methods."""

    difference: float
    spread: Spread
    pairs: int
    methods: int
    """How many methods the spread is of; two are the compared ones alone."""


def pooled(scores: Mapping[Key, Mapping[int, float]], method: Key, baseline: Key) -> Pooled | None:
    """Method less baseline over their shared seeds, by a variance that is pooled over all methods with these seeds.

    A two-way analysis of variance (methods by seeds) without interaction: with few seeds, several methods estimate the
    spread far better than two. It assumes that they all spread alike. Methods that lack one of the seeds, or whose
    score there is not finite, are left out: a balanced table remains, where Student's t is exact. None if the two
    share fewer than two seeds, or one of them is left out.
    """
    seeds = sorted(scores[method].keys() & scores[baseline].keys())
    known = {name: [one.get(seed, np.nan) for seed in seeds] for name, one in scores.items()}
    whole = {name: own for name, own in known.items() if np.isfinite(own).all()}
    if len(seeds) < 2 or not {method, baseline} <= whole.keys():
        return None
    table = np.array(list(whole.values()))
    left = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    freedom = (len(table) - 1) * (len(seeds) - 1)
    difference = float(np.mean(whole[method]) - np.mean(whole[baseline]))
    variance = 2 * float((left**2).sum()) / freedom / len(seeds)
    # Subtracting leaves rounding errors, which are no spread.
    tiny = (1e-9 * max(np.abs(table).max(), 1.0)) ** 2
    spread = Spread(variance if variance > tiny else 0.0, freedom)
    return Pooled(difference, spread, len(seeds), len(table))


def smallest_p(pairs: int) -> float:
    """The smallest p of a sign-flip test of this many pairs: the two most extreme signs."""
    return min(1.0, 2.0 ** (1 - pairs))


def paired_permutation_test(
    method: Sequence[float], baseline: Sequence[float], seed: int = 0
) -> Comparison | None:
    """Sign-flip permutation test of the mean difference; for the average over tasks and seeds.

    The interval is Student's.

    Assumes only that without a difference either run of a pair could have been the other's, so
    tasks may differ in scale. Exact up to 14 pairs, beyond that by random flips sampled with `seed`.
    A score that is not finite leaves nothing to test: p is None.
    """
    from scipy import stats

    differences = _differences(method, baseline)
    if not len(differences):
        return None
    mean, pairs = float(differences.mean()), len(differences)
    if pairs < 2 or not np.isfinite(differences).all():
        return Comparison(mean, None, pairs)
    result = stats.permutation_test(
        (differences,),
        lambda flipped, axis: np.mean(flipped, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_FLIPS,
        rng=np.random.default_rng(seed),
    )
    return by_t(mean, [over_seeds(differences)], pairs)._replace(p=float(result.pvalue))


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Holm's step-down correction: p-values valid for all the comparisons together.

    The smallest of m is multiplied by m, the next by m − 1, and so on; never below the one before
    it and never above 1. Raises ValueError for a number that is no p-value.
    """
    if not all(0 <= p <= 1 for p in p_values.values()):
        raise ValueError(f"p-values are between 0 and 1: {list(p_values.values())}")
    corrected: dict[Key, float] = {}
    floor = 0.0
    for rank, (key, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p))
        corrected[key] = floor
    return corrected


def _differences(method: Sequence[float], baseline: Sequence[float]) -> np.ndarray:
    # The difference of two infinities is not a number, which the tests look for.
    with np.errstate(invalid="ignore"):
        found: np.ndarray = np.asarray(method, dtype=float) - np.asarray(baseline, dtype=float)
        return found


def _constant(differences: np.ndarray, method: Sequence[float], baseline: Sequence[float]) -> bool:
    # Subtracting leaves rounding errors of the scores' own size, which are no spread.
    size = max(np.abs(method).max(), np.abs(baseline).max(), 1.0)
    return bool(np.ptp(differences) <= 1e-9 * size)
