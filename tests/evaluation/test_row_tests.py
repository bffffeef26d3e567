"""McNemar's exact test and the paired bootstrap: by hand, against enumeration, scikit-learn and a loop."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset
from scipy.optimize import minimize_scalar
from sklearn import metrics

from limbeck.evaluation.row_tests import mcnemar, row_tests, score_difference
from limbeck.records.facts import McNemarFacts
from limbeck.scoring.evaluation import _other_rows
from limbeck.scoring.scored_model import LoadedSplit, refuse_gaps
from limbeck.support.errors import LimbeckError
from limbeck.tables.classes import row_test_words
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


@pytest.mark.slow
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
    assert (found.difference.difference, found.mcnemar.p) == (0.0, 1.0)
    # Forty rows without one that differs still leave room for a difference, alike on both sides.
    assert (
        found.difference.high == pytest.approx(-found.difference.low) and found.difference.high > 5
    )


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


def test_models_of_other_kinds_keep_other_predictions():
    """Words beside class ids ended in a traceback, and gaps among the labels of a decoder did too."""
    records = [SimpleNamespace(examples=SimpleNamespace(fingerprints={"dev": "same"}))] * 2
    written = as_kind(TASKS["sst2"], "text")
    folders = [Path("one"), Path("two")]
    (found,) = _other_rows(folders, records, [TASKS["sst2"], written], "dev")
    assert "are of kinds sentence and text" in found.message
    assert _other_rows(folders, records, [written] * 2, "dev") == []
    rows = Dataset.from_dict({"label": [0, -100]})
    for task in (TASKS["sst2"], written):
        with pytest.raises(LimbeckError, match="1 of 2 rows have no label"):
            refuse_gaps(LoadedSplit(task=task, data="own", name="dev", rows=rows))


@pytest.mark.parametrize(("first", "second", "rows"), [(5, 1, 20), (0, 3, 12), (9, 4, 60)])
def test_the_score_interval_holds_what_the_likelihood_does_not_reject(first, second, rows):
    """Tango's interval, with the share of one side's rows found by climbing the likelihood itself."""
    found = score_difference(McNemarFacts(only_first=first, only_second=second, p=1), rows)

    def standardized(gap: float) -> float:
        def unlikely(q: float) -> float:
            p = q + gap
            return -(
                first * np.log(p) + second * np.log(q) + (rows - first - second) * np.log(1 - p - q)
            )

        q = minimize_scalar(
            unlikely, bounds=(max(0, -gap) + 1e-9, (1 - gap) / 2 - 1e-9), method="bounded",
            options={"xatol": 1e-10},
        ).x  # fmt: skip
        return (first - second - rows * gap) / np.sqrt(rows * (2 * q + gap - gap**2))

    assert standardized(found.low / 100) == pytest.approx(1.96, abs=0.02)
    assert standardized(found.high / 100) == pytest.approx(-1.96, abs=0.02)


def test_intervals_of_few_rows_cover_the_truth():
    """Twenty rows, 1,500 pairs of models of accuracies 85 and 80: a bootstrap covers some 80 %."""
    rng, covered = np.random.default_rng(5), 0
    for _ in range(1500):
        # By row: only the first is right with .12, only the second with .07.
        first, second, _ = rng.multinomial(20, [0.12, 0.07, 0.81])
        found = score_difference(McNemarFacts(only_first=first, only_second=second, p=1), 20)
        covered += found.low <= 5 <= found.high
    assert 0.92 < covered / 1500 < 0.995


def test_few_rows_are_said():
    task, right = TASKS["sst2"], np.array([0, 1] * 20)
    few = row_tests(task, predicted(1, right, 0.9), predicted(2, right, 0.7))
    assert few.difference.method == "score"
    assert "Tango's score interval over 40 rows" in row_test_words(few, "a", "b")[0]
    others = row_tests(TASKS["mrpc"], predicted(1, right, 0.9), predicted(2, right, 0.7))
    assert others.difference.method == "bootstrap"
    assert "rows it is too narrow" in row_test_words(others, "a", "b")[0]
