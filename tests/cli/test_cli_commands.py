"""Each command hands the right things to the library, and ends as it should when it is stopped."""

import logging
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner, Result

from limbeck.cli.app import SETTINGS, app, silence_libraries
from limbeck.data import RowsAsked
from limbeck.recipe import catalog, teacher_text
from limbeck.records.facts import Examples
from limbeck.support.errors import LimbeckError, Problem


@pytest.fixture(autouse=True)
def _leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    # The command line sets these for its process; here it shares one with the other tests.
    for name in SETTINGS:
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(logging.getLogger("limbeck"), "handlers", [])
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list:
    """Replaces the library behind the commands; holds what each of them was called with."""
    made: list = []

    def noting(name: str, answer: object):
        def call(*args: object, **kwargs: object) -> object:
            made.append((name, args, kwargs))
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return call

    recipe, run, scoring, quickstart = (
        ModuleType(f"limbeck.{name}") for name in ("recipe", "run", "scoring", "lab.quickstart")
    )
    record = SimpleNamespace(
        best=SimpleNamespace(epoch=2, primary=70.125),
        last=SimpleNamespace(epoch=3, primary=69.5),
        scores={"dev": {"accuracy": 70.125}},
        kind="distill",
        student=SimpleNamespace(parameters=None, latency_ms=None, layers=2),
        kept=None,
        recipe={},
        teacher=None,
        examples=Examples(),
        outputs=[],
        classes=[],
        floor=None,
        execution=SimpleNamespace(processes_said=""),
        vocabulary=None,
        picked_layers=None,
        best_constant=None,
    )
    result = SimpleNamespace(path=Path("runs/it"), record=record)
    recipe.teacher_text = teacher_text
    recipe.Recipe = SimpleNamespace(load=noting("load", "the recipe"))
    run.distill = noting("distill", result)
    scored = SimpleNamespace(
        scores={"accuracy": 61.0, "f1": None}, classification=None, row_tests=None
    )
    scoring.evaluation_of = noting("evaluate", scored)
    quickstart.quickstart = noting("quickstart", None)
    for module in (recipe, run, scoring, quickstart):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_methods_lists_every_recipe_once_under_its_family() -> None:
    head, _, said = invoke("methods").output.partition("\nBaselines\n")
    assert [line.split()[0] for line in head.splitlines()[1:]] == list(catalog.RECOMMENDED)
    lines = ["Baselines", *said.splitlines()]
    for entry in catalog.available():
        assert sum(line.split()[:1] == [entry.method] for line in lines) == 1
        assert any(line.strip().endswith(entry.summary) for line in lines)
    for family in {entry.family for entry in catalog.available()}:
        assert lines.count(catalog.FAMILIES[family]) == 1


def test_a_method_shows_formula_paper_and_recipe() -> None:
    entry = catalog.find("rail-kd-l")
    said = invoke("methods", "rail-kd-l").output
    assert entry.formula in said
    assert entry.paper in said
    assert entry.text in said


def test_methods_fit_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    said = invoke("methods").output
    assert max(map(len, said.splitlines())) <= 40
    # Wrapped, not cut.
    assert "…" not in said


def test_distill_by_method_and_flags(calls: list) -> None:
    line = "distill --method rail-kd-l --teacher T --layers 2 4 --task mrpc --data D --out S seed=7"
    ended = invoke(*line.split(), "--text-columns", "first", "second")
    assert ended.exit_code == 0, ended.output
    load, distill = calls
    assert load == (
        "load",
        ("rail-kd-l",),
        {
            "seed": 7,
            "teacher": "T",
            "task": "mrpc",
            "data": "D",
            "student.layers": [2, 4],
            "text_columns": ["first", "second"],
        },
    )
    assert distill == (
        "distill",
        ("the recipe",),
        {"out": Path("S"), "overwrite": False, "show": True},
    )
    assert "accuracy 70.1" in ended.output
    assert "(best epoch, 2 of 3; the last has 69.5)" in ended.output
    assert str(Path("runs/it")) in ended.output


def test_distill_from_a_file_may_change_its_method(calls: list) -> None:
    assert invoke("distill", "own.yaml", "epochs=2", "--method", "kd").exit_code == 0
    assert calls[0] == ("load", ("own.yaml",), {"epochs": 2, "method": "kd"})


def test_distill_takes_a_methods_name_in_place_of_a_file(calls: list) -> None:
    assert invoke("distill", "kd", "--lr", "1e-4").exit_code == 0
    assert calls[0] == ("load", ("kd",), {"lr": 0.0001})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "method: none is given"),
        ("kd alp-kd", "kd, alp-kd"),
        ("kd --teacher a b", "several teachers --teachers A B"),
        ("--method kd --teacher a b", "several teachers --teachers A B"),
        ("kd --method alp-kd", "'kd' and the method 'alp-kd' disagree"),
        ("--method kd method=alp-kd", "--method kd and method=alp-kd disagree"),
    ],
)
def test_distill_needs_exactly_one_recipe(calls: list, line: str, said: str) -> None:
    ended = invoke("distill", *line.split())
    assert ended.exit_code == 2
    assert said in ended.output
    assert not calls


def test_finetune_is_the_recipe_of_that_name(calls: list) -> None:
    line = "finetune --model pocket --task cola --data pocket --layers 3 --max-steps 5 --overwrite"
    assert invoke(*line.split()).exit_code == 0
    assert calls[0] == (
        "load",
        ("finetune",),
        {
            "student.init": "pocket",
            "task": "cola",
            "data": "pocket",
            "student.layers": 3,
            "max_steps": 5,
        },
    )
    assert calls[1][2]["overwrite"] is True
    assert calls[1][2]["out"] is None


def test_finetune_has_one_method(calls: list) -> None:
    ended = invoke("finetune", "method=kd")
    assert ended.exit_code == 2
    assert "limbeck distill" in ended.output
    assert not calls


def test_evaluate_prints_each_score(calls: list) -> None:
    line = "evaluate runs/it --task scitail --data D --label-column y"
    ended = invoke(*line.split(), "--text-columns", "a", "b")
    assert ended.exit_code == 0, ended.output
    asked = RowsAsked("scitail", "D", text_columns=["a", "b"], label_column="y")
    assert calls == [("evaluate", (Path("runs/it"), asked), {})]
    assert "accuracy 61.0, f1 –" in ended.output


def test_quickstart_passes_its_options(calls: list) -> None:
    line = "quickstart --out q --seeds 1 --task cola --labels 500 --jobs 3"
    assert invoke(*line.split()).exit_code == 0
    said = {"out": Path("q"), "seeds": 1, "task": "cola", "labels": 500, "jobs": 3}
    assert calls == [("quickstart", (), said)]


@pytest.mark.parametrize("line", ["nonsense", "distill --nonsense", "evaluate", "distill --lr x"])
def test_a_usage_error_is_not_zero(line: str) -> None:
    ended = invoke(*line.split())
    assert ended.exit_code == 2
    assert "Traceback" not in ended.output


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def call(*_: object, **__: object) -> None:
        raise error

    module = ModuleType("limbeck.scoring")
    module.evaluation_of = call
    monkeypatch.setitem(sys.modules, "limbeck.scoring", module)


def test_problems_are_listed_with_their_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [Problem("odd", "", "warning"), Problem("no [bold]layer[/] 9", "choose 1..6")]
    failing(monkeypatch, LimbeckError(problems))
    ended = invoke("evaluate", "x")
    assert ended.exit_code == 2
    assert ended.stderr.splitlines()[1:] == [
        "1 thing to fix, 1 warning:",
        "1. error: no [bold]layer[/] 9",
        "   fix: choose 1..6",
        "2. warning: odd",
    ]
    assert ended.stdout == ""


@pytest.mark.parametrize("line", ["--debug evaluate x", "evaluate x --debug"])
def test_debug_shows_the_error_itself(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    error = LimbeckError("wrong")
    failing(monkeypatch, error)
    assert invoke(*line.split()).exception is error


def test_ctrl_c_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    ended = invoke("evaluate", "x")
    assert ended.exit_code == 130
    assert "run the same command again to continue" in ended.stderr


def test_a_refused_file_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, PermissionError(13, "Permission denied", "out/record.json"))
    ended = invoke("evaluate", "x")
    assert ended.exit_code == 2
    assert "'out/record.json': permission denied" in ended.stderr


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError("the network is gone")
    failing(monkeypatch, error)
    assert invoke("evaluate", "x").exception is error


def test_library_messages_become_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("limbeck.scoring")

    def evaluation_of(*_: object, **__: object) -> SimpleNamespace:
        logging.getLogger("limbeck.students").warning("kept %d layers", 3)
        return SimpleNamespace(scores={}, classification=None, row_tests=None)

    module.evaluation_of = evaluation_of
    monkeypatch.setitem(sys.modules, "limbeck.scoring", module)
    ended = invoke("evaluate", "x")
    assert (
        ended.stderr
        == "limbeck evaluate: loading PyTorch and Transformers …\nnote: kept 3 layers\n"
    )


def test_what_loads_pytorch_says_so_before_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal as in a log file; what needs none says nothing."""
    from limbeck.cli.options import Loads

    begun: list[str] = []
    monkeypatch.setattr("limbeck.cli.options.show_loading", begun.append)

    class Slow(ModuleType):
        def __getattr__(self, name: str) -> object:
            assert begun
            raise LimbeckError("imported")

    monkeypatch.setitem(sys.modules, "limbeck.scoring", Slow("limbeck.scoring"))
    assert "imported" in invoke("evaluate", "x").stderr
    assert len(begun) == 1
    group: Any = typer.main.get_command(app)
    commands = group.commands
    quick = {name for name, command in commands.items() if not isinstance(command, Loads)}
    assert quick == {"methods", "outputs", "quickstart", "table"}


def test_a_users_own_verbosity_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "info")
    monkeypatch.delenv("DATASETS_VERBOSITY")
    silence_libraries()
    assert os.environ["TRANSFORMERS_VERBOSITY"] == "info"
    assert os.environ["DATASETS_VERBOSITY"] == "error"


def test_version() -> None:
    assert invoke("--version").output.startswith("limbeck ")
