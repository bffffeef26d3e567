"""YAML and JSON without guesses: what a number is, what occurs twice, what no setting can hold."""

import json
import time

import pytest
import yaml

from limbeck.support.errors import LimbeckError
from limbeck.support.plain import (
    check_plain,
    read_json,
    read_text,
    read_yaml,
    write_yaml,
)


def refused(read, *arguments) -> str:
    begun = time.perf_counter()
    with pytest.raises(LimbeckError) as caught:
        read(*arguments)
    assert time.perf_counter() - begun < 10
    assert all(problem.fix for problem in caught.value.problems)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30", "1:30"),
        ("1:30.5", "1:30.5"),
        ("yes", "yes"),
        ("off", "off"),
        ("010", "010"),
        ("0x10", "0x10"),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("1e-4", 1e-4),
        ("-2.E3", -2000.0),
        (".5", 0.5),
        ("-7", -7),
        ("+3", 3),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("[2, {a: b}]", [2, {"a": "b"}]),
    ],
)
def test_a_word_is_a_number_only_where_everyone_would_read_one(text, value):
    read = read_yaml(f"key: {text}", "it")["key"]
    assert read == value and type(read) is type(value)


# A billion values in nine short lines.
BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "'a' occurs twice, line 3"),
        ("a: {b: 1, b: 2}", "'b' occurs twice"),
        ("1: a\ntrue: b", "occurs twice"),
        ("a: " + "9" * 5000, "5000 digits"),
        ("a: 9223372036854775808", "a: a number beyond 64 bits"),
        ("a: 1e400", "a: inf is no finite number"),
        ("a: .nan", "a: nan is no finite number"),
        ("[" * 100_000, "nested too deep"),
        ("- " * 2_000 + "x", "nested too deep"),
        ("a: &a [*a]", "nested too deep"),
        (BOMB, "more than 100000 values"),
        ('a: [x, "\\ud800"]', "a.2: '\\ud800' holds characters that cannot be written"),
        ('a: "\\0"', "cannot be written"),
        ("a: !!int 1:30", "'1:30' is no int, line 1"),
        ("a: !!bool maybe", "'maybe' is no bool"),
        ("a: !!float x", "'x' is no float"),
        ("a: !!binary aGk=", "a value of type bytes"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        ("? [1]\n: 2", "unhashable"),
        ("a: [1", "line 1"),
        ("--- a\n--- b", "is not YAML"),
        ("1.5: 2", "no name"),
    ],
)
def test_yaml_that_says_nothing_clear_is_refused_with_the_place(text, said):
    message = refused(read_yaml, text, "recipe mine.yaml")
    assert said in message and message.startswith("recipe mine.yaml")


def test_anchors_and_merges_still_work():
    text = "base: &base {lr: 1, epochs: 2}\nown: {<<: *base, lr: 3}\n"
    assert read_yaml(text, "it")["own"] == {"lr": 3, "epochs": 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ('[{"b": {"a": 1, "a": 2}}]', "the key 'a' occurs twice"),
        ("[" * 100_000, "nested too deep"),
        ("[" * 40 + "]" * 40, "nested too deep"),
        ("9" * 5000, "limit"),
        ("1e400", "inf is no finite number"),
        ("NaN", "nan is no finite number"),
        ('{"a": "\\ud800"}', "a: '\\ud800' holds"),
        ('{"a":\n1,}', "line 2"),
        ("", "line 1"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_json_that_says_nothing_clear_is_refused(text, said):
    assert said in refused(read_json, text, "manifest.json")


def test_constants_may_stand_for_no_number():
    assert read_json('{"a": NaN}', "it", constant=lambda _: None) == {"a": None}


@pytest.mark.parametrize(
    "value",
    ["1e-4", "yes", "no", "1:30", "010", "~", "null", "", "true", "<<", "=", ".inf", "a: b",
     "2020-01-01", 1e-5, 1e22, 1.5, -3, None, True, "é", [1, {"b": []}]],
)  # fmt: skip
def test_what_is_written_is_read_as_the_same_here_and_elsewhere(value):
    text = write_yaml({"key": value})
    assert read_yaml(text, "it") == yaml.safe_load(text) == {"key": value}


def test_values_from_python_become_plain(tmp_path):
    numpy = pytest.importorskip("numpy")
    given = {"a": (1, numpy.float32(0.5)), "b": tmp_path, "c": numpy.int64(3)}
    made = check_plain(given, "it")
    assert made == {"a": [1, 0.5], "b": str(tmp_path), "c": 3}
    assert json.loads(json.dumps(made)) == made
    assert "a value of type set" in refused(check_plain, {"a": {1}}, "it")


def test_a_file_of_text_is_a_file_of_text(tmp_path):
    assert "is a folder" in refused(read_text, tmp_path)
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refused(read_text, tmp_path / "x")
