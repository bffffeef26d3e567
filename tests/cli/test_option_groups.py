"""Options that stand in a dataclass are those of the command, as if it had them itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args, get_origin

import pytest
import typer
from typer.testing import CliRunner

from limbeck.cli.options import ManyValues, settings_flags, takes_groups, typed
from limbeck.exporting.settings import ExportSettings
from limbeck.labelling.settings import LabelSettings
from limbeck.predicting.settings import PredictSettings
from limbeck.recipe import StudentSpec
from limbeck.support.errors import LimbeckError


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(help="How wide.", min=1)]
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Several.")] = None
    tall: Annotated[bool, typer.Option("--tall")] = False


@pytest.fixture
def invoke():
    seen = []

    @takes_groups
    def draw(*, name: str = "box", size: Size, colour: Annotated[str, typer.Argument()]) -> None:
        """Draw a thing."""
        seen.append((name, size, colour))

    app = typer.Typer()
    app.command(cls=ManyValues)(draw)

    def run(line):
        return CliRunner().invoke(app, line.split(), env={"COLUMNS": "120", "NO_COLOR": "1"}), seen

    return run


def test_a_command_is_given_its_groups(invoke):
    ended, seen = invoke("red --width 3 --tag a b --tall --name hat")
    assert ended.exit_code == 0, ended.output
    assert seen == [("hat", Size(3, ["a", "b"], True), "red")]
    assert typed(seen[0][1]) == {"width": 3, "tags": ["a", "b"], "tall": True}


def test_what_is_not_typed_is_left_to_who_is_called(invoke):
    _, seen = invoke("red --width 3")
    assert typed(seen[0][1]) == {"width": 3, "tall": False}


@pytest.mark.parametrize("line", ["red", "red --width 0", "--width 3"])
def test_needs_and_limits_hold(invoke, line):
    ended, seen = invoke(line)
    assert ended.exit_code == 2 and not seen


def test_help_is_the_commands_own_and_its_groups(invoke):
    ended, _ = invoke("--help")
    assert all(text in ended.output for text in ("Draw a thing", "How wide", "--tall", "colour"))


@pytest.mark.parametrize("group", [ExportSettings, LabelSettings, PredictSettings])
def test_every_choice_of_a_setting_can_be_typed(group):
    """Words and numbers alike, as `--embedding-bits 4`."""
    kept = []

    def use(*, own) -> None:
        kept.append(own)

    use.__annotations__["own"] = Annotated[dict, settings_flags("Options", group)]
    app = typer.Typer()
    app.command(cls=ManyValues)(takes_groups(use))
    for name, field in group.model_fields.items():
        if get_origin(field.annotation) is Literal:
            flag = (field.json_schema_extra or {}).get("flag", f"--{name.replace('_', '-')}")
            for choice in get_args(field.annotation):
                ended = CliRunner().invoke(app, [flag, str(choice)])
                assert ended.exit_code == 0, ended.output
                assert getattr(group.checked(kept.pop()), name) == choice


def test_a_wrong_number_is_answered_with_the_choices():
    with pytest.raises(LimbeckError, match=r"unknown embedding_bits '5'\n *fix: choices: 4, 8"):
        ExportSettings.checked({"embedding_bits": 5})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"vocabulary": "150%"},
            r"vocabulary is '150%': no size .*\n *fix: write a number of tokens",
        ),
        ({"tokenizer": 5}, "^tokenizer is 5: input should be greater than or equal to 100"),
        ({"layers": 1.5}, "^layers is 1.5: input should be a valid integer"),
    ],
)
def test_a_wrong_size_is_answered_with_the_rule_for_its_type(given, said):
    with pytest.raises(LimbeckError, match=said):
        StudentSpec.checked(given)
