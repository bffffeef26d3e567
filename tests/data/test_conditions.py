"""Fewer rows and wrong labels: exact counts by hand, only what was asked for, always the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from limbeck.data import Conditions
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TOKENS, Task

NAMES = ("red", "green", "blue")
TASK = Task("colours", "Colours", ("text",), NAMES, ("accuracy",), "accuracy")
NUMBERS = Task("stars", "Stars", ("text",), (), ("pearson",), "pearson")


def rows(*counts: int) -> Dataset:
    """So many rows of each class, one class after the other."""
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    columns = {
        "text": [f"text {row}" for row in range(len(labels))],
        "label": labels,
        "index": list(range(len(labels))),
    }
    kinds = {
        "text": Value("string"),
        "label": ClassLabel(names=list(NAMES)),
        "index": Value("int64"),
    }
    return Dataset.from_dict(columns, features=Features(kinds))


def counts(data: Dataset) -> dict[int, int]:
    return dict(Counter(data["label"]))


def test_no_condition_changes_nothing():
    data = rows(3, 2)
    assert Conditions().apply(data, TASK) is data


# ---- fewer rows ----


def test_fewer_rows_are_those_of_the_datasets_librarys_shuffle():
    data = rows(30, 20)
    for seed in (0, 1):
        chosen = Conditions(train_rows=10, train_rows_seed=seed).apply(data, TASK)
        assert chosen["index"][:] == data.shuffle(seed=seed)["index"][:10]


@pytest.mark.parametrize(
    ("there", "wanted", "kept"),
    [
        ((60, 30, 10), 10, {0: 6, 1: 3, 2: 1}),  # exact tenths
        ((60, 30, 10), 5, {0: 3, 1: 2}),  # 3, 1.5, 0.5: the tie goes to the lower class
        ((5, 3, 3), 4, {0: 2, 1: 1, 2: 1}),  # 1.82, 1.09, 1.09
        ((7, 7, 7), 20, {0: 7, 1: 7, 2: 6}),  # 6.67 each
        ((8, 1), 9, {0: 8, 1: 1}),  # all
    ],
)
def test_stratified_proportions_by_hand(there, wanted, kept):
    data = rows(*there)
    for seed in (0, 1, 2):
        drawn = Conditions(train_rows=wanted, train_rows_seed=seed, stratified=True)
        chosen = drawn.apply(data, TASK)
        assert counts(chosen) == kept
        assert len(set(chosen["index"])) == wanted


def test_stratified_rows_follow_their_seed_and_are_mixed():
    data = rows(60, 40)
    draws = [
        Conditions(train_rows=50, train_rows_seed=seed, stratified=True).apply(data, TASK)
        for seed in (0, 0, 1)
    ]
    first, again, other = (list(draw["index"]) for draw in draws)
    assert first == again
    assert set(first) != set(other)
    # Not one class after the other.
    assert len(set(draws[0]["label"][:10])) == 2


# ---- noise ----


def changed(noisy: Dataset, clean: Dataset) -> list[tuple[int, int]]:
    """(row, new class) wherever the class is another."""
    both = zip(noisy["label"], clean["label"], strict=True)
    return [(row, new) for row, (new, old) in enumerate(both) if new != old]


@pytest.mark.parametrize(
    ("count", "rate", "expected"),
    [
        (50, 0.3, 15),
        (5, 0.3, 2),  # 1.5 rounds up
        (15, 0.1, 2),  # 1.5
        (100, 0.145, 15),  # 14.5, although 0.145 · 100 is 14.499… in binary
        (10, 0.04, 0),
        (7, 0.99, 7),  # 6.93
    ],
)
def test_the_exact_share_gets_another_class(count, rate, expected):
    clean = rows(count // 2, count - count // 2)
    condition = Conditions(label_noise=rate)
    noisy = condition.apply(clean, TASK)
    assert len(changed(noisy, clean)) == expected == condition.relabelled(count)


def test_noise_leaves_everything_else_alone():
    clean = rows(20, 10, 10)
    noisy = Conditions(label_noise=0.5).apply(clean, TASK)
    assert noisy.features == clean.features
    assert noisy.column_names == clean.column_names
    for column in ("text", "index"):
        assert noisy[column][:] == clean[column][:]


def test_the_other_classes_are_equally_likely():
    clean = rows(6000)
    new = Counter(
        label for _, label in changed(Conditions(label_noise=0.5).apply(clean, TASK), clean)
    )
    assert sum(new.values()) == 3000
    # Four standard deviations of a fair coin thrown 3000 times.
    assert abs(new[1] - 1500) < 4 * np.sqrt(3000) / 2


def test_noise_follows_its_own_seed():
    clean = rows(30, 30)
    draws = [
        changed(Conditions(label_noise=0.3, label_noise_seed=seed).apply(clean, TASK), clean)
        for seed in (0, 0, 1)
    ]
    assert draws[0] == draws[1] != draws[2]
    # A plain function of rows and seed, so that the cache of encoded rows is found again.
    prints = {Conditions(label_noise=0.3).apply(rows(30, 30), TASK)._fingerprint for _ in "ab"}
    assert len(prints) == 1


def test_noise_comes_after_the_rows_are_drawn():
    data = rows(60, 40)
    both = Conditions(train_rows=20, label_noise=0.25)
    fewer = Conditions(train_rows=20).apply(data, TASK)
    noisy = both.apply(data, TASK)
    assert noisy["index"][:] == fewer["index"][:]
    assert len(changed(noisy, fewer)) == 5


# ---- what cannot be ----


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (Conditions(train_rows=9), "train_rows: 9 of 4 training rows"),
        (Conditions(label_noise=0.5), "label_noise: there is no other class to give: stars"),
        (Conditions(train_rows=2, stratified=True), "stratified: there are no classes"),
    ],
)
def test_what_does_not_fit_is_refused(conditions, message):
    data = rows(2, 2).remove_columns("label").add_column("label", [1.0, 2.0, 3.5, 4.0])
    with pytest.raises(LimbeckError, match=message):
        conditions.apply(data, NUMBERS)


def test_labels_that_are_lists_have_no_class():
    data = rows(2).remove_columns("label").add_column("label", [[0, 1], [2]])
    with pytest.raises(LimbeckError, match="has no class for each row"):
        Conditions(label_noise=0.5).apply(data, replace(TASK, kind=TOKENS))


def test_a_single_class_has_no_other():
    one = Task("one", "One", ("text",), ("red",), ("accuracy",), "accuracy")
    with pytest.raises(LimbeckError, match="single class"):
        Conditions(label_noise=0.5).apply(rows(4), one)
