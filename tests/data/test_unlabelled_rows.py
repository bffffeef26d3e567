"""Rows without labels beside the labelled ones: which are kept, dropped and refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from datasets import DatasetDict, Value

from limbeck.data import Conditions
from limbeck.data.splits import make_split
from limbeck.data.text_rows import TextRows, UnlabelledRows, with_unlabelled
from limbeck.support.errors import LimbeckError
from limbeck.tasks import MULTI_LABEL, TASKS, Task

TASK = TASKS["sst2"]


def split(texts, labels):
    return make_split(TASK, {"sentence": texts}, labels)


def file(*texts, name="more.csv", blank=0):
    column = pa.chunked_array([pa.array(texts, pa.large_string())])
    return TextRows({"sentence": column}, (name,), ("sentence",), blank)


@pytest.fixture
def splits():
    return DatasetDict(
        train=split(["one", "two", "three"], [0, 1, -100]),
        dev=split(["four", "five"], [0, 1]),
        test=split(["six"], None),
    )


def test_they_stand_below_the_others_with_numbers_of_their_own(splits):
    splits["train"] = splits["train"].select([1, 2, 0])  # as a sample has them
    found, counts = with_unlabelled(TASK, splits, [file("seven"), file("eight")], "refuse")
    train = found["train"]
    assert train["sentence"][:] == ["two", "three", "one", "seven", "eight"]
    assert train["label"][:] == [1, -100, 0, -100, -100]
    assert train["index"][:] == [1, 2, 0, 3, 4]
    assert counts == UnlabelledRows(kept=3)
    assert found["dev"] is splits["dev"]


def test_of_several_labels_none_is_known():
    task = Task("own", "own", ("sentence",), ("a", "b"), ("f1",), "f1", kind=MULTI_LABEL)
    train = make_split(task, {"sentence": ["one", "two"]}, [[1.0, 0.0], [0.0, 0.0]])
    splits = DatasetDict(train=train)
    found, counts = with_unlabelled(task, splits, [file("three", "one"), file("four")], "refuse")
    assert counts == UnlabelledRows(kept=2, repeated=1)
    labels = found["train"].with_format("numpy")["label"][:]
    np.testing.assert_array_equal(labels, [[1, 0], [0, 0], [np.nan] * 2, [np.nan] * 2])
    assert found["train"].features == train.features | {"sentence": Value("large_string")}
    none, counts = with_unlabelled(task, splits, [file("two")], "refuse")
    assert none["train"]["sentence"][:] == ["one", "two"] and counts.repeated == 1


def test_a_text_that_is_there_already_is_left_out(splits):
    more = [file("two", "seven", "three", blank=2), file("seven", "eight")]
    found, counts = with_unlabelled(TASK, splits, more, "refuse")
    assert found["train"]["sentence"][3:] == ["seven", "eight"]
    assert counts == UnlabelledRows(kept=3, repeated=3, blank=2)


def test_rows_that_are_scored_are_refused_with_their_number(splits):
    more = [file("seven", "four", "six"), file("five", name="others.txt")]
    with pytest.raises(LimbeckError) as caught:
        with_unlabelled(TASK, splits, more, "refuse")
    (problem,) = caught.value.problems
    assert "3 of 5 rows" in problem.message and "(2 in dev, 1 in test)" in problem.message
    assert "more.csv: 'four'; more.csv: 'six'; others.txt: 'five'" in problem.message
    assert "unlabelled_duplicates=drop" in problem.fix
    found, counts = with_unlabelled(TASK, splits, more, "drop")
    assert found["train"]["sentence"][:] == ["one", "two", "three", "seven"]
    assert counts == UnlabelledRows(kept=2, scored=3)


def test_rows_of_ones_own_without_a_label_are_held_against_dev_too(splits):
    splits["train"] = split(["one", "four", "five", "two"], [0, -100, 1, -100])
    with pytest.raises(
        LimbeckError, match=r"1 of 2 rows .*\(1 in dev\): the training rows: 'four'"
    ):
        with_unlabelled(TASK, splits, [], "refuse")
    found, counts = with_unlabelled(TASK, splits, [], "drop")
    # A labeled row stays whatever dev holds.
    assert found["train"]["sentence"][:] == ["one", "five", "two"]
    assert counts == UnlabelledRows(kept=1, scored=1)


def test_all_labelled_and_no_files_is_left_alone(splits):
    splits["train"] = split(["one"], [0])
    found, counts = with_unlabelled(TASK, splits, [], "refuse")
    assert found is splits and counts == UnlabelledRows()


def test_conditions_are_the_labelled_rows(splits):
    rows = split([f"text {n}" for n in range(8)], [0, -100, 1, -100, 0, 1, 0, 1])
    few = Conditions(train_rows=4, stratified=True, label_noise=0.5).apply(rows, TASK)
    assert few["label"][4:] == [-100, -100]
    assert few["sentence"][4:] == ["text 1", "text 3"]
    right = dict(zip(rows["sentence"], rows["label"], strict=True))
    wrong = [right[t] != y for t, y in zip(few["sentence"], few["label"], strict=True)]
    assert sum(wrong) == 2
