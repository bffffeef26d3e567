"""Picked layer numbers, worked by hand."""

from __future__ import annotations

import pytest

from limbeck import tasks
from limbeck.students import pick_layers
from limbeck.students.build import default_pick
from limbeck.support.errors import LimbeckError


@pytest.mark.parametrize(
    ("pick", "keep", "total", "picked"),
    [
        ("first", 3, 6, [1, 2, 3]),
        ("last", 3, 6, [4, 5, 6]),
        ("skip", 6, 12, [2, 4, 6, 8, 10, 12]),
        ("skip", 5, 12, [2, 5, 7, 10, 12]),
        ("upper", 6, 12, [2, 4, 6, 8, 10, 12]),
        ("upper", 5, 12, [3, 6, 8, 10, 12]),
        ("first", None, 3, [1, 2, 3]),
        ([5, 1], None, 6, [1, 5]),
    ],
)
def test_pick_layers_by_hand(pick, keep, total, picked):
    assert pick_layers(pick, keep, total) == picked


@pytest.mark.parametrize(
    ("kind", "pick"),
    [
        *(
            ("sentence", "skip"),
            ("multi-label", "skip"),
            ("ordinal", "skip"),
            ("pair-score", "skip"),
        ),
        *(("embedding", "upper"), ("tokens", "first"), ("spans", "first"), ("causal-lm", "skip")),
    ],
)
def test_the_pick_of_each_task_type_without_rows(kind, pick):
    assert default_pick(tasks.get_task_type(kind)) == pick


@pytest.mark.parametrize("pick", ["first", "last", "skip", "upper"])
def test_every_rule_gives_distinct_existing_layers(pick):
    for total in range(1, 25):
        for keep in range(1, total + 1):
            picked = pick_layers(pick, keep, total)
            assert len(set(picked)) == keep and picked == sorted(picked)
            assert picked[0] >= 1 and picked[-1] <= total


@pytest.mark.parametrize(
    ("pick", "keep", "words"),
    [
        ("frist", 2, "did you mean 'first'"),
        ("first", 7, "choose a number from 1 to 6"),
        ("first", 0, "choose a number from 1 to 6"),
        ([0, 7], None, r"\[0, 7\] are not layers of a model that has 6"),
        ([2, 2], None, "name each layer once"),
        ([], None, "name each layer once"),
    ],
)
def test_bad_picks_say_what_exists(pick, keep, words):
    with pytest.raises(LimbeckError, match=words):
        pick_layers(pick, keep, 6)
