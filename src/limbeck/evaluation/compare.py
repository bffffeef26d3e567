"""Does one method's score differ from another's, run by run? Paired tests that can say "unknown".

Pure functions of numbers, called by tables. Every test is two-
sided and answers None where it has nothing to go on, never a p-value it could not compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import stats

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
    # One-sample on the differences is what the paired test is.
    return Comparison(mean, float(stats.ttest_1samp(differences, 0.0).pvalue), pairs)


def paired_permutation_test(
    method: Sequence[float], baseline: Sequence[float], seed: int = 0
) -> Comparison | None:
    """Sign-flip permutation test of the mean difference; for the average over tasks and seeds.

    Assumes only that without a difference either run of a pair could have been the other's, so
    tasks may differ in scale. Exact up to 14 pairs, beyond that by random flips sampled with `seed`.
    A score that is not finite leaves nothing to test: p is None.
    """
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
    return Comparison(mean, float(result.pvalue), pairs)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Holm's step-down correction: p-values valid for all the comparisons together.

    The smallest of m is multiplied by m, the next by m − 1, and so on; never below the one before
    it and never above 1. Raises ValueError for a number that is no p-value.
    """
    if not all(0 <= p <= 1 for p in p_values.values()):
        raise ValueError(f"p-values lie between 0 and 1: {list(p_values.values())}")
    corrected: dict[Key, float] = {}
    floor = 0.0
    for rank, (key, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p))
        corrected[key] = floor
    return corrected


def _differences(method: Sequence[float], baseline: Sequence[float]) -> np.ndarray:
    if len(method) != len(baseline):
        raise ValueError(f"{len(method)} scores cannot be paired with {len(baseline)}")
    # The difference of two infinities is not a number, which the tests look for.
    with np.errstate(invalid="ignore"):
        return np.asarray(method, dtype=float) - np.asarray(baseline, dtype=float)


def _constant(differences: np.ndarray, method: Sequence[float], baseline: Sequence[float]) -> bool:
    # Subtracting leaves rounding errors of the scores' own size, which are no spread.
    size = max(np.abs(method).max(), np.abs(baseline).max(), 1.0)
    return bool(np.ptp(differences) <= 1e-9 * size)
