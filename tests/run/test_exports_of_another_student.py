"""A run that is trained again in its place: nothing of the student before passes for the new one's."""

from __future__ import annotations

import json
import logging
import shutil

import pytest

from card_runs import add_bench, add_export, make_run
from limbeck.cards.push import push_files
from limbeck.latency.contenders import contenders
from limbeck.predicting.about_model import facts_of
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.finish import refresh
from limbeck.runtimes.manifest import exports_of, read_export
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError

MADE_OF_ANOTHER = "made from another student"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A run with what was exported and timed of its student."""
    run = make_run(tmp_path_factory.mktemp("shipped"))
    add_export(run)
    add_bench(run)
    refresh(run)
    return run


def copy_of(run, place):
    shutil.copytree(run.parent, place)
    return place / run.name


def trained_again(run, **changes):
    recipe = Recipe.recorded(Record.load(run).recipe | changes, str(run))
    distill(recipe, out=run, overwrite=True)
    return run


@pytest.fixture(scope="module")
def replaced(shipped, tmp_path_factory):
    """The run with another student, and with the exports of the first, as from a backup."""
    run = trained_again(copy_of(shipped, tmp_path_factory.mktemp("again") / "place"), seed=2)
    shutil.copytree(shipped / "exported", run / "exported")
    return run


def card_of(run) -> str:
    return (run / "student" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_was_derived_of_the_student_goes_with_it(shipped, tmp_path, pages):
    run = copy_of(shipped, tmp_path / "place")
    assert "onnx-int8" in card_of(run) and "abc123" in card_of(run)
    (run / "exported" / "notes.txt").write_text("a person's")
    trained_again(run, seed=2)
    assert exports_of(run) == []
    assert [path.name for path in (run / "exported").rglob("*")] == ["notes.txt"]
    assert Record.load(run).bench is None
    for page in (card_of(run), (run / "report.html").read_text(encoding="utf-8")):
        assert "onnx-int8" not in page and "abc123" not in page


@pytest.mark.slow
def test_nothing_is_sent_scored_timed_or_run(replaced):
    export = replaced / "exported" / "onnx-int8"
    for ask in (
        lambda: push_files(replaced, "ada/small"),
        lambda: evaluate(replaced, backend="onnxruntime"),
        lambda: evaluate(export),
        lambda: contenders([str(replaced)]),
        lambda: contenders([str(export)]),
        lambda: facts_of(export),
    ):
        with pytest.raises(LimbeckError, match=MADE_OF_ANOTHER) as refused:
            ask()
        (problem,) = refused.value.problems
        assert f"limbeck export {replaced} --format onnx-int8 --overwrite" in problem.fix


@pytest.mark.slow
def test_card_and_page_leave_it_out_and_say_so(replaced, tmp_path, caplog):
    run = copy_of(replaced, tmp_path / "place")
    with caplog.at_level(logging.WARNING):
        refresh(run)
    (said,) = [one.getMessage() for one in caplog.records if MADE_OF_ANOTHER in one.getMessage()]
    assert "leaves it out" in said and "limbeck export" in said
    assert "onnx-int8" not in card_of(run)
    assert "onnx-int8" not in (run / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_same_student_keeps_its_exports(shipped, tmp_path):
    """Trained again to the same weights, byte for byte."""
    run = trained_again(copy_of(shipped, tmp_path / "place"))
    shutil.copytree(shipped / "exported", run / "exported")
    assert read_export(run / "exported" / "onnx-int8").measured.drop == 0.25
    assert any(file.name == "onnx-int8/model.onnx" for file in push_files(run, "ada/small"))


def test_an_export_that_says_nothing_of_its_student_is_not_trusted(shipped, tmp_path):
    run = copy_of(shipped, tmp_path / "place")
    file = run / "exported" / "onnx-int8" / "export.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({key: told[key] for key in told if key != "weights"}))
    with pytest.raises(LimbeckError, match="does not record the student"):
        read_export(file.parent)
    outside = shutil.copytree(file.parent, tmp_path / "elsewhere")
    assert read_export(outside).bytes == 500  # of no run, and nobody's


def test_times_of_a_replaced_export_are_forgotten(shipped, tmp_path):
    run = copy_of(shipped, tmp_path / "place")
    roles = [row.role for row in Record.load(run).bench.rows]
    assert roles == ["teacher", "student", "export"]
    shutil.rmtree(run / "exported")
    folder = add_export(run)
    refresh(run)  # the same file
    assert [row.role for row in Record.load(run).bench.rows] == roles
    told = json.loads((folder / "export.json").read_text())
    told["checksums"]["model.onnx"] = "another"
    (folder / "export.json").write_text(json.dumps(told))
    refresh(run)
    assert [row.role for row in Record.load(run).bench.rows] == ["teacher", "student"]
    assert "onnxruntime" not in card_of(run).split("## Size and latency")[1].split("##")[0]
