"""`finetune --grid` and `team` hand the right things to the library."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from limbeck.cli.app import app
from limbeck.cli.options import parse_axes
from limbeck.support.cells import CellTable
from limbeck.support.errors import LimbeckError, Problem


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.fixture
def trained(monkeypatch) -> list:
    """Replaces `train_grid`; holds its calls. The second member has failed."""
    calls: list = []

    def train_grid(*args: object, **kwargs: object) -> list:
        calls.append((args, kwargs))
        problem = Problem("b: no room", "make some")
        return [
            SimpleNamespace(name="a", record=None, problems=()),
            SimpleNamespace(name="b", record=None, problems=(problem,)),
        ]

    monkeypatch.setattr("limbeck.run.train_grid", train_grid)
    return calls


def test_a_grid_takes_models_and_axes_to_the_next_option(trained: list) -> None:
    line = (
        "finetune --grid bert-8-128-2 runs/x student.layers=2,[1,4] lr=1e-4,5e-5 --task sst2 seed=3"
    )
    ended = invoke(*line.split())
    assert trained == [
        (
            ("finetune",),
            {
                "models": ["bert-8-128-2", "runs/x"],
                "axes": {"student.layers": [2, [1, 4]], "lr": [0.0001, 0.00005]},
                "task": "sst2",
                "seed": 3,
                "out": Path("runs/sst2-team"),
                "overwrite": False,
                "show": True,
            },
        )
    ]
    # The table and the folder are shown all the same, and the failure last.
    assert "runs/sst2-team" in ended.stdout
    assert "b: no room" in ended.stderr
    assert ended.exit_code == 2


def test_settings_after_other_options_stay_settings(trained: list) -> None:
    invoke(
        *["finetune", "--grid", "a", "--layers", "2", "3", "epochs=2", "--out", "T", "--overwrite"]
    )
    ((_, given),) = trained
    assert (given["models"], given["axes"]) == (["a"], {})
    assert (given["student.layers"], given["epochs"]) == ([2, 3], 2)
    assert (given["out"], given["overwrite"]) == (Path("T"), True)


def test_axes_are_lists_of_yaml_values() -> None:
    assert parse_axes(["a=1,x,null,true", "b.c=[1,2]", "d=1e-3"]) == {
        "a": [1, "x", None, True],
        "b.c": [[1, 2]],
        "d": [0.001],
    }
    with pytest.raises(LimbeckError) as caught:
        parse_axes(["a=1,[2", "b=1", "b=2"])
    assert len(caught.value.problems) == 2


def test_team_passes_its_options(monkeypatch) -> None:
    calls: list = []
    look = SimpleNamespace(
        team=SimpleNamespace(examples=9),
        models={"a": 1, "b": 2},
        task=SimpleNamespace(title="SST-2"),
        split="dev",
        data="D",
    )
    monkeypatch.setattr(
        "limbeck.scoring.look_at_team", lambda *args, **kwargs: calls.append((args, kwargs)) or look
    )
    table = CellTable("", [["the tables"]])
    monkeypatch.setattr("limbeck.tables.team.team_table", lambda team, models: table)
    monkeypatch.setattr("limbeck.tables.team.pairs_table", lambda team: table)
    monkeypatch.setattr("limbeck.tables.team.team_notes", lambda team: [])
    line = "team A B --task sst2 --data D --text-columns x y --label-column z"
    ended = invoke(*line.split(), "--split", "test")
    assert ended.exit_code == 0, ended.output
    assert "the tables" in ended.output
    assert "SST-2: 9 examples of dev" in ended.output
    asked = {"task": "sst2", "data": "D", "split": "test", "label_column": "z"}
    assert calls == [((["A", "B"],), asked | {"text_columns": ["x", "y"]})]
