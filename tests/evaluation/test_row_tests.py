"""McNemar's exact test and the paired bootstrap: by hand, against enumeration, scikit-learn and a loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn import metrics

from limbeck.evaluation.row_tests import mcnemar, row_tests
from limbeck.tasks import TASKS, as_kind


def sides(first: str, second: str) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.array([letter == "x" for letter in side]) for side in (first, second))


def test_mcnemar_by_hand():
    # Two rows only the first has right, eight only the second: 2 · (1 + 10 + 45) / 2^10.
    found = mcnemar(*sides("xx........xxx", "..xxxxxxxxxxx"))
    assert (found.only_first, found.only_second) == (2, 8)
    assert found.p == pytest.approx(112 / 1024)
    assert mcnemar(*sides("xx..", "xx..")).p == 1.0


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 5), (3, 4), (6, 1)])
def test_mcnemar_is_the_share_of_coin_tosses_that_are_no_likelier(only_first, only_second):
    tosses = only_first + only_second
    sums = [sum(side) for side in itertools.product((0, 1), repeat=tosses)]
    far = abs(only_first - tosses / 2)
    wanted = sum(abs(heads - tosses / 2) >= far for heads in sums) / len(sums)
    first = np.arange(tosses) < only_first
    assert mcnemar(first, ~first).p == pytest.approx(wanted)


def predicted(seed: int, right: np.ndarray, share: float) -> dict[str, list]:
    wrong = np.random.default_rng(seed).random(len(right)) > share
    return {"prediction": np.where(wrong, 1 - right, right).tolist(), "label": right.tolist()}


def test_the_interval_is_that_of_a_loop_by_scikit_learn():
    task, right = TASKS["mrpc"], np.random.default_rng(1).integers(0, 2, 300)
    first, second = predicted(2, right, 0.85), predicted(3, right, 0.8)

    def score(side, rows):
        given = np.array(side["prediction"])[rows]
        accuracy = metrics.accuracy_score(right[rows], given)
        return 50 * (accuracy + metrics.f1_score(right[rows], given))

    found = row_tests(task, first, second).difference
    everyone = np.arange(300)
    assert found.difference == pytest.approx(score(first, everyone) - score(second, everyone))
    rng = np.random.default_rng(7)
    samples = [rng.integers(0, 300, 300) for _ in range(300)]
    low, high = np.percentile([score(first, s) - score(second, s) for s in samples], [2.5, 97.5])
    # Of 300 and 1000 samples the percentiles themselves have an error of a tenth of the width.
    assert found.low == pytest.approx(low, abs=0.25 * (high - low))
    assert found.high == pytest.approx(high, abs=0.25 * (high - low))


def test_turned_round_everything_turns_its_sign():
    task, right = TASKS["sst2"], np.random.default_rng(1).integers(0, 2, 100)
    first, second = predicted(2, right, 0.9), predicted(3, right, 0.7)
    one, other = row_tests(task, first, second), row_tests(task, second, first)
    assert one.difference.difference == pytest.approx(-other.difference.difference)
    assert one.difference.low == pytest.approx(-other.difference.high, abs=2.0)
    assert one.mcnemar.only_first == other.mcnemar.only_second and one.mcnemar.p == other.mcnemar.p
    assert one.difference.low > 0 and one.mcnemar.p < 0.01 and one.rows == 100


def test_a_model_against_itself_shows_nothing():
    task, right = TASKS["sst2"], np.array([0, 1] * 20)
    rows = predicted(1, right, 0.8)
    found = row_tests(task, rows, rows)
    assert (found.difference.low, found.difference.high, found.mcnemar.p) == (0.0, 0.0, 1.0)


def test_what_each_task_type_can_be_tested_by():
    numbers = {"label": [0.5, 2.0, 3.5, 4.0], "prediction": [1.0, 2.0, 3.0, 4.5]}
    found = row_tests(TASKS["stsb"], numbers, numbers | {"prediction": [4.0, 1.0, 2.0, 0.0]})
    assert found.mcnemar is None and found.difference.difference > 0
    words = {"label": ["positive", "negative"], "prediction": ["positive", "nonsense"]}
    written = row_tests(as_kind(TASKS["sst2"], "text"), words, words | {"prediction": ["?", "?"]})
    assert (written.mcnemar.only_first, written.mcnemar.only_second) == (1, 0)
    tags = {"label": [[0, 1], [2]], "prediction": [[0, 2], [2]]}
    assert row_tests(TASKS["ner"], tags, tags).mcnemar is None


def test_other_rows_are_refused():
    rows = {"label": [0, 1], "prediction": [0, 1]}
    with pytest.raises(ValueError, match="same rows"):
        row_tests(TASKS["sst2"], rows, rows | {"label": [1, 0]})
