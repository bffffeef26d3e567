"""What is typed becomes recipe settings: values, lists, clashes, and one help text for each."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from limbeck.cli.options import (
    SETTINGS,
    ManyValues,
    flags_given,
    is_setting,
    merge,
    parse_settings,
    parse_value,
)
from limbeck.recipe import Recipe, StudentSpec
from limbeck.recipe.fields import descriptions
from limbeck.support.errors import LimbeckError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("1e-4", 0.0001),
        ("5E-5", 0.00005),
        ("-2.e3", -2000.0),
        ("1/3", "1/3"),
        ("bf16", "bf16"),
        ("null", None),
        ("true", True),
        ("[2, 4, 6]", [2, 4, 6]),
        ("{start: 0, end: 1}", {"start": 0, "end": 1}),
        ("1e", "1e"),
        ("query: ", "query: "),
        ("title: none | text: ", "title: none | text: "),
        ("two words ", "two words "),
        ('"query: "', "query: "),
        ("{a: b}", {"a": "b"}),
        ('""', ""),
    ],
)
def test_values_are_yaml_with_scientific_numbers(text: str, value: object) -> None:
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_settings_may_hold_equal_signs_dots_and_dashes() -> None:
    assert parse_settings(["objectives.rail-l.weight=2", "teacher=runs/a=b"]) == {
        "objectives.rail-l.weight": 2,
        "teacher": "runs/a=b",
    }


def test_a_path_with_an_equal_sign_is_no_setting() -> None:
    assert not is_setting("runs/lr=1/recipe.yaml")
    assert not is_setting("=3")
    assert is_setting("seed=")


def test_all_bad_settings_are_told_at_once() -> None:
    with pytest.raises(LimbeckError) as caught:
        parse_settings(["epochs", "lr=[1", "seed=1", "seed=2"])
    said = str(caught.value)
    assert len(caught.value.problems) == 3
    assert "'epochs'" in said
    assert "'lr=[1'" in said
    assert "seed=1 and seed=2 disagree" in said


def test_flags_and_settings_meet_in_one_mapping() -> None:
    merged = merge({"layers": [1, 3], "lr": 0.0001}, ["lr=1e-4", "student.pick=skip"])
    assert merged == {"student.layers": [1, 3], "lr": 0.0001, "student.pick": "skip"}


def test_a_flag_and_a_setting_that_disagree_name_both() -> None:
    with pytest.raises(LimbeckError) as caught:
        merge({"layers": 3, "batch_size": 8}, ["student.layers=2", "batch_size=16"])
    said = str(caught.value)
    assert "--layers 3 and student.layers=2 disagree" in said
    assert "--batch-size 8 and batch_size=16 disagree" in said


def test_only_what_was_typed_counts() -> None:
    parameters = {"layers": ["3"], "text_columns": [], "seed": 0, "lr": None, "out": "runs/x"}
    assert flags_given(parameters) == {"layers": 3, "seed": 0}
    assert flags_given({"layers": ["2", "4"]}) == {"layers": [2, 4]}
    stacks = flags_given({"layers": ["{encoder: 3, decoder: 1}"]})
    assert stacks == {"layers": {"encoder": 3, "decoder": 1}}


@pytest.mark.parametrize(
    ("typed", "columns", "rest"),
    [
        (["--columns", "a", "b c", "--name", "x", "--columns", "d"], ["a", "b c", "d"], []),
        (["--columns", "a", "seed=1"], ["a"], ["seed=1"]),
        (["--columns", "a", "own.yaml"], ["a"], ["own.yaml"]),
        (["own", "--columns", "a", "b"], ["a", "b"], ["own"]),
    ],
)
def test_list_options_take_their_values_side_by_side(
    typed: list[str], columns: list[str], rest: list[str]
) -> None:
    app = typer.Typer()
    seen = {}

    @app.command(cls=ManyValues)
    def command(
        rest: Annotated[list[str] | None, typer.Argument()] = None,
        columns: Annotated[list[str] | None, typer.Option()] = None,
        name: str = "",
    ) -> None:
        seen.update(rest=rest or [], columns=columns)

    assert CliRunner().invoke(app, typed).exit_code == 0
    assert seen == {"columns": columns, "rest": rest}


def test_an_option_of_one_value_that_is_given_twice_is_refused() -> None:
    app = typer.Typer()

    @app.command(cls=ManyValues)
    def command(
        teacher: str = "",
        teachers: Annotated[list[str] | None, typer.Option()] = None,
        seed: int = 0,
        show: bool = True,
    ) -> None:
        """Flags and lists may be repeated."""

    def problems(*typed: str) -> list[tuple[str, str]]:
        error = CliRunner().invoke(app, typed).exception
        assert isinstance(error, LimbeckError)
        return [(problem.message, problem.fix) for problem in error.problems]

    assert problems("--teacher", "a", "--teacher=b", "--seed", "1", "--seed", "1") == [
        ("--teacher: given 2 times, and it takes one value", "write several as --teachers A B"),
        ("--seed: given 2 times, and it takes one value", "give it once"),
    ]
    fine = ["--show", "--show", "--teachers", "a", "--teachers", "b", "--teacher", "c"]
    assert CliRunner().invoke(app, fine).exit_code == 0


def test_each_flag_is_a_recipe_setting_with_the_fields_own_help() -> None:
    fields = {name: field.description for name, field in Recipe.model_fields.items()}
    fields |= {
        f"student.{name}": field.description for name, field in StudentSpec.model_fields.items()
    }
    assert descriptions() == fields
    assert set(SETTINGS.values()) <= set(fields)
