"""Entries of a study that are written once for several names, against the same ones written out."""

from __future__ import annotations

import pytest

from limbeck.lab.study.study_file import expand_names
from limbeck.support.errors import LimbeckError


def test_keys_items_and_values_are_written_out_in_order() -> None:
    found = expand_names(
        {
            "names": {"size": [26, "8x4"], "size.net": {26: "a", "8x4": {"depth": 8}}},
            "methods": {
                "alone": None,
                "by {size}": {"of": "{size}", "net": "{size.net}", "teachers": ["R-{size}", "x"]},
                "last": {"teachers": ["x", "R-{size}"]},
            },
        }
    )
    assert found == {
        "methods": {
            "alone": None,
            "by 26": {"of": 26, "net": "a", "teachers": ["R-26", "x"]},
            "by 8x4": {"of": "8x4", "net": {"depth": 8}, "teachers": ["R-8x4", "x"]},
            "last": {"teachers": ["x", "R-26", "R-8x4"]},
        }
    }
    assert list(found["methods"]) == ["alone", "by 26", "by 8x4", "last"]


def test_several_names_in_a_key_are_every_combination() -> None:
    names = {"team.members": {"T1-T2": ["T1", "T2"], "T3": ["T3"]}, "how": ["uniform", "rank"]}
    found = expand_names({"names": names, "m": {"{team} {how}": {"of": "{team.members}"}}})
    assert list(found["m"]) == ["T1-T2 uniform", "T1-T2 rank", "T3 uniform", "T3 rank"]
    assert [one["of"] for one in found["m"].values()] == [["T1", "T2"]] * 2 + [["T3"]] * 2


def test_a_table_may_be_a_list_in_the_order_of_its_names() -> None:
    names = {"n.lr": [0.1, 0.2], "n": ["A", "B"]}
    assert expand_names({"names": names, "{n}": {"lr": "{n.lr}"}}) == {
        "A": {"lr": 0.1},
        "B": {"lr": 0.2},
    }


def test_later_patterns_and_written_entries_are_laid_over_earlier_ones() -> None:
    found = expand_names(
        {
            "names": {"all": ["A", "B", "C"], "some": ["B", "C"]},
            "C": {"seed": 3},
            "{all}": {"seed": 1, "lr": 1},
            "{some}": {"seed": 2},
        }
    )
    assert found == {
        "A": {"seed": 1, "lr": 1},
        "B": {"seed": 2, "lr": 1},
        "C": {"seed": 3, "lr": 1},
    }
    assert list(found) == ["C", "A", "B"]


def test_other_braces_stay_and_null_takes_a_name_away() -> None:
    raw = {"at": "runs/{task}", "init": "{model}", "names": {"gone": None}}
    assert expand_names(raw) == {"at": "runs/{task}", "init": "{model}"}
    assert expand_names({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"names": [1]}, ["names: [1] are no lists"]),
        ({"names": {"n": "A"}, "{n}": 1}, ["names.n: 'A' is no list of words and numbers"]),
        ({"names": {"n": ["A", "A"]}, "{n}": 1}, ["names.n: has A twice"]),
        ({"names": {"task": ["A"]}, "{task}": 1}, ["names.task: {task} is filled in elsewhere"]),
        ({"names": {"a b": ["A"]}}, ["names.a b: is no word of letters"]),
        (
            {"names": {"n": ["A", "B"], "n.x": {"A": 1, "C": 2}}, "{n}": "{n.x}"},
            ["unknown name in names.n.x: 'C'", "names.n.x: no value for B"],
        ),
        ({"names": {"n": ["A", "B"], "n.x": [1]}, "{n}": "{n.x}"}, ["names.n.x: [1] is no table"]),
        ({"m": {"{n}": 1}}, ["m.{n}: the study lists no names, and {n} is one"]),
        ({"names": {"size": ["A"]}, "{siz}": 1}, ["unknown name in {siz}: 'siz'"]),
        ({"names": {"n": ["A"]}, "{n}": "{n.lr}"}, ["unknown name in {n}: 'n.lr'"]),
        ({"names": {"n": ["A"]}, "m": "{n}"}, ["m: no key around {n} has {n}"]),
        ({"names": {"n": ["A"]}, "m": 1}, ["names.n: {n} is not used"]),
        ({"names": {"n": ["A"]}, "{n}": {"x": {"n": None}}}, ["{n}.x: {n} is no text"]),
        (
            {"names": {"n": [*range(40)], "m": [*range(40)]}, "{n}{m}": 1},
            ["{n}{m}: {n}{m} expands"],
        ),
    ],
)
def test_what_is_wrong_with_names_is_said(raw, said) -> None:
    with pytest.raises(LimbeckError) as caught:
        expand_names(raw)
    found = [problem.message for problem in caught.value.problems]
    assert len(found) == len(said), found
    assert all(one.startswith(start) for one, start in zip(found, said, strict=True)), found
    assert all(problem.fix for problem in caught.value.problems)
