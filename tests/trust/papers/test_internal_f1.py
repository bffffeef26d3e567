"""Which F1 the internal-representations paper prints: worked out from its own dev numbers.

Its accuracy and F1 of MRPC and QQP stand side by side, and the dev sets' class counts are public.
For each printed accuracy every confusion table is tried: an F1 that none of them rounds to is not
the one that was printed.
"""

from __future__ import annotations

import numpy as np
import pytest

from limbeck.tables.profiles import columns_of_task
from limbeck.tasks import TASKS

# Aguilar et al. (2020), Table 1, experiments 1.0 to 3.6: accuracy, F1.
PRINTED = {
    "mrpc": [
        (83.09, 82.96), (76.23, 73.72), (77.21, 75.74), (83.58, 82.46), (79.66, 78.35),
        (83.09, 81.39), (81.62, 80.12), (82.35, 81.39), (81.37, 79.16), (70.10, 69.68),
    ],
    "qqp": [
        (91.44, 91.45), (90.58, 90.62), (90.61, 90.65), (91.32, 91.32), (91.08, 91.10),
        (91.37, 91.38), (91.22, 91.24), (91.25, 91.27), (91.21, 91.22), (91.20, 91.21),
    ],
}  # fmt: skip
# Dev rows of class 1 and class 0.
COUNTS = {"mrpc": (279, 129), "qqp": (14885, 25545)}
HALF = 0.005 + 1e-9


def tables(task: str, accuracy: float):
    """Every (true positives, true negatives) whose accuracy rounds to the printed one."""
    ones, zeros = COUNTS[task]
    total = ones + zeros
    low, high = (total * (accuracy + sign * HALF) / 100 for sign in (-1, 1))
    for right in range(int(np.ceil(low)), int(high) + 1):
        hit = np.arange(max(0, right - zeros), min(ones, right) + 1)
        yield hit, right - hit


def of_class(hits, members, wrongly_called):
    """F1 of one class in per cent, from the harmonic mean of precision and recall."""
    precision = hits / np.maximum(hits + wrongly_called, 1)
    recall = hits / members
    return 200 * precision * recall / np.maximum(precision + recall, 1e-12)


def printed_by(task: str, accuracy: float, f1: float) -> dict[str, tuple[int, int]]:
    """Kind of F1 → some confusion table (true positives, true negatives) that prints `f1`."""
    ones, zeros = COUNTS[task]
    found = {}
    for hit, quiet in tables(task, accuracy):
        one = of_class(hit, ones, zeros - quiet)
        zero = of_class(quiet, zeros, ones - hit)
        kinds = {
            "binary": one,
            "macro": (one + zero) / 2,
            "weighted": (ones * one + zeros * zero) / (ones + zeros),
        }
        for kind, values in kinds.items():
            fits = np.flatnonzero(np.abs(values - f1) <= HALF)
            if len(fits):
                found.setdefault(kind, (int(hit[fits[0]]), int(quiet[fits[0]])))
    return found


def test_the_printed_f1_is_weighted_by_class_not_of_class_one_nor_macro():
    fitting = [printed_by(t, *pair) for t, pairs in PRINTED.items() for pair in pairs]
    assert len(fitting) == 20
    counts = {kind: sum(kind in one for one in fitting) for kind in ("weighted", "macro", "binary")}
    assert counts == {"weighted": 20, "macro": 2, "binary": 0}


@pytest.mark.parametrize("task", sorted(PRINTED))
def test_the_profile_prints_that_f1(task):
    ones, zeros = COUNTS[task]
    for accuracy, f1 in PRINTED[task]:
        hit, quiet = printed_by(task, accuracy, f1)["weighted"]
        labels = np.repeat([1, 0], [ones, zeros])
        predicted = np.repeat([1, 0, 0, 1], [hit, ones - hit, quiet, zeros - quiet])
        scores = TASKS[task].scores(np.eye(2)[predicted], labels)
        columns = {
            one.title: one.value({"dev": scores}) for one in columns_of_task("internal", task)
        }
        assert sorted(columns.values()) == pytest.approx(sorted([accuracy, f1]), abs=2 * HALF)
        title = TASKS[task].title
        assert columns[f"{title} F1"] == pytest.approx(f1, abs=HALF)
        assert columns[f"{title} acc"] == pytest.approx(accuracy, abs=HALF)


def test_weighted_f1_by_hand():
    # Three of class 1, one of class 0; answers 1 1 0 0. Class 1: precision 1, recall 2/3, F1 .8.
    # Class 0: precision 1/2, recall 1, F1 2/3. Weighted: (3 · .8 + 2/3) / 4.
    scores = TASKS["mrpc"].scores(np.eye(2)[[1, 1, 0, 0]], np.array([1, 1, 1, 0]))
    assert scores["weighted_f1"] == pytest.approx(100 * (2.4 + 2 / 3) / 4)
    assert scores["f1"] == pytest.approx(80.0)
    # Nothing else changes by it: the score that selects is still the mean of accuracy and F1.
    assert scores["primary"] == pytest.approx((75.0 + 80.0) / 2)


def test_weighted_f1_of_one_answer_only():
    scores = TASKS["mrpc"].scores(np.eye(2)[[1, 1, 1, 1]], np.array([1, 1, 1, 0]))
    # Class 1: 6/7; class 0 is never called: 0.
    assert scores["weighted_f1"] == pytest.approx(100 * 0.75 * 6 / 7)
