"""`compile=True`: the same training through compiled graphs."""

from __future__ import annotations

import pytest
import torch
from tiny_trainers import make, still

import tiny_runs as tiny
from limbeck.activations import CompiledCapture, forward

pytestmark = pytest.mark.own_arithmetic


@pytest.fixture(autouse=True)
def _traced_backend(monkeypatch) -> None:
    # Graphs are traced and run as they are: what a compiler makes of them is torch's matter.
    monkeypatch.setattr(forward, "BACKEND", "eager")
    torch.compiler.reset()


# No method that pools: the shape checks of the test suite cannot be traced.
@pytest.mark.parametrize("method", [pytest.param("kd", marks=pytest.mark.slow), "distilbert"])
@pytest.mark.slow
def test_compiled_training_ends_where_plain_training_ends(tmp_path, method):
    ended = []
    for compile in (False, True):
        teacher = tiny.knowing_teacher(4)
        trainer = make(tmp_path, method=method, student=still(2), teacher=teacher, compile=compile)
        trainer.train()
        ended.append(trainer)
    plain, fast = (trainer.student.state_dict() for trainer in ended)
    for name, value in plain.items():
        torch.testing.assert_close(fast[name], value, rtol=1e-4, atol=1e-6, msg=name)
    graphs = [ended[1].distiller._capture, ended[1].teacher._capture]
    assert all(isinstance(part, CompiledCapture) for part in graphs)
    assert all(any(graph is not None for graph in part._graphs.values()) for part in graphs)
