"""How the processes of a run share a step, without starting any: `test_processes` trains in two."""

from __future__ import annotations

import sys

import pytest

import limbeck
from limbeck.cli.finished import last_lines
from limbeck.preflight.checking import check_share
from limbeck.records import Record
from limbeck.records.facts import Execution
from limbeck.support.machine import share_of_step


@pytest.mark.parametrize(
    ("processes", "batch", "accumulation", "share"),
    [
        (1, 32, 1, (32, 1, 1)),
        (2, 32, 1, (16, 1, 2)),
        (2, 5, 4, (5, 2, 1)),  # whole passes are dealt out first
        (4, 8, 2, (4, 1, 2)),
        (4, 8, 6, (4, 3, 2)),
        (3, 32, 1, None),
        (2, 5, 3, None),
    ],
)
def test_a_step_holds_as_many_examples_whatever_the_processes(
    monkeypatch, processes, batch, accumulation, share
):
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    found = share_of_step(batch, accumulation)
    assert found == share
    if found is not None:
        assert processes * found.batch_size * found.accumulation == batch * accumulation
    assert bool(check_share(batch, accumulation)) == (share is None)


def test_what_does_not_divide_is_refused_with_a_batch_that_does(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    (problem,) = check_share(32, 1)
    assert problem.severity == "error"
    assert problem.message.startswith("batch_size 32: 3 processes")
    assert "batch_size=33" in problem.fix
    assert check_share(33, 1) == []


@pytest.mark.parametrize(
    ("processes", "said"), [((), ""), ((1,), ""), ((2,), "2"), ((2, 1), "2, then 1")]
)
def test_records_say_how_many_processes_ran(processes, said):
    assert Execution(processes=processes).processes_said == said


def interrupt(*_args, **_kwargs):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_another_number_of_processes_goes_on_with_a_word(tmp_path, monkeypatch, caplog):
    settings = {"task": "sst2", "data": "pocket", "train_rows": 64, "epochs": 1}
    settings |= {"student.init": "pocket", "student.config": {"num_hidden_layers": 1}}

    def run():
        return limbeck.distill("finetune", tmp_path / "run", report=False, **settings)

    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as first:
        first.setattr(sys.modules["limbeck.run.begin"].machine, "processes", lambda: 2)
        first.setattr(sys.modules["limbeck.run.distill"], "finish", interrupt)
        run()
    assert Record.load(tmp_path / "run").execution.processes == (2,)
    with caplog.at_level("WARNING"):
        result = run()
    assert "begun by 2 processes and continues with 1" in caplog.text
    assert result.record.execution.processes == (2, 1)
    assert ("Ran in", "2, then 1 processes") in last_lines(result.record, result.path)
