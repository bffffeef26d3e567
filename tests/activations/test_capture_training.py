"""Capture under what training adds: gradient checkpointing, autocast, DDP, torch.compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from families import BY_NAME, FAMILIES, Family
from torch import Tensor, nn

from limbeck.activations import ActivationKey, CompiledCapture, Request, capture
from limbeck.activations import forward as compiled
from limbeck.support.errors import LimbeckError

REQUEST = Request.hidden([1, 3]) | Request.hidden([2], pool="mean") | Request.attention([2])


class Captured(nn.Module):
    """A student and what is captured of it, as the engine holds them: one forward, one number."""

    def __init__(self, student: Any, request: Request) -> None:
        super().__init__()
        self.student = student
        self.request = request

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        trace = capture(self.student, batch, self.request)
        total = sum(
            trace.values[seen].square().mean() for seen in sorted(self.request.items, key=str)
        )
        return total + trace.logits.square().sum() if self.request.logits else total


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def _enable_checkpointing(model: Any, reentrant: bool) -> None:
    """Under its new name where transformers has it."""
    old = type(model).gradient_checkpointing_enable
    getattr(type(model), "activation_checkpointing_enable", old)(
        model, {"use_reentrant": reentrant}
    )


checkpointed = pytest.mark.parametrize(
    "family",
    [f for f in FAMILIES if f.name in ("bert", "deberta-v2", "t5", "bart", "vit", "llama", "gpt2")],
    ids=lambda family: family.name,
)


@checkpointed
def test_gradient_checkpointing_gives_the_same_gradients(family: Family) -> None:
    expected = Captured(family.build(), REQUEST)
    expected(family.batch()).backward()
    model = family.build()
    _enable_checkpointing(model, reentrant=False)
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for module in model.modules():  # attention dropout that is a number, not a module
        for name in ("dropout", "attention_dropout", "activation_dropout", "layerdrop"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    captured = Captured(model, REQUEST)
    captured(family.batch()).backward()
    gradients, wanted = _gradients(captured), _gradients(expected)
    assert gradients.keys() == wanted.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-6)


def test_reentrant_checkpointing_is_refused_where_it_would_cut_the_graph() -> None:
    model = BY_NAME["bert"].build()
    _enable_checkpointing(model, reentrant=True)
    model.enable_input_require_grads()
    model.train()
    with pytest.raises(LimbeckError, match="use_reentrant"):
        capture(model, BY_NAME["bert"].batch(), Request.attention([1]))


@pytest.mark.parametrize("name", ["bert", "deberta-v2", "t5", "llama", "vit"])
def test_bfloat16_autocast(name: str) -> None:
    family = BY_NAME[name]
    model, batch = family.build(), family.batch()
    request = REQUEST | Request.of_logits()
    plain = capture(model, batch, request)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trace = capture(model, batch, request)
    for seen in request.items:
        found, expected = trace[seen].float(), plain[seen]
        if (
            "attention_mask" in batch and seen.pool is None
        ):  # what stands at padding may be rounding alone, normalised
            real = batch["attention_mask"].bool()
            by_token = (
                one if seen.what == "hidden" else one.transpose(1, 2) for one in (found, expected)
            )
            found, expected = (one[real] for one in by_token)
        torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)
    if family.maps:
        assert trace[ActivationKey("probabilities", 2)].dtype == torch.float32
        sums = trace[ActivationKey("probabilities", 2)].sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.own_arithmetic
def test_one_graph_under_compile(name: str) -> None:
    family = BY_NAME[name]
    batch = family.batch()
    # Pooling is left out here only because the shape checks of the test suite cannot be traced.
    whole = Request.hidden([1, 3]) | Request.attention([2]) | Request.of_logits()
    for request in (whole, Request.hidden([1]) | Request.attention([2])):
        torch.compiler.reset()
        captured = Captured(family.build(), request)
        expected = captured(batch)
        expected.backward()
        wanted = _gradients(captured)
        captured.zero_grad()
        compiled = torch.compile(captured, backend="eager", fullgraph=True)
        got = compiled(batch)
        torch.testing.assert_close(got, expected)
        got.backward()
        for key, gradient in _gradients(captured).items():
            torch.testing.assert_close(gradient, wanted[key])
        assert "forward" not in {key for m in captured.modules() for key in vars(m)}


@pytest.mark.slow
def test_a_compiled_model_shows_a_request_it_was_not_compiled_with() -> None:
    family = BY_NAME["bert"]
    model, batch = family.build(), family.batch()
    torch.compiler.reset()
    expected = capture(family.build(), batch, REQUEST | Request.of_logits())
    model.compile(backend="eager")
    model(**batch)
    trace = capture(model, batch, REQUEST | Request.of_logits())
    for seen in REQUEST.items:
        torch.testing.assert_close(trace[seen], expected[seen])


@pytest.fixture
def traced_backend(monkeypatch) -> None:
    """Graphs are traced and run as they are: what a compiler makes of them is torch's matter."""
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("traced_backend")
@pytest.mark.own_arithmetic
def test_compiled_capture_equals_capture_for_batches_of_any_size() -> None:
    family = BY_NAME["bert"]
    model = family.build()
    whole = Request.hidden([1, 3]) | Request.attention([2]) | Request.of_logits()
    fast = CompiledCapture(model)
    batch = family.batch()
    short = {name: value[:2, :4] for name, value in batch.items() if value.dim() == 2}
    for request, sizes in ((whole, (batch, batch, short, batch)), (Request.hidden([1]), (batch,))):
        for examples in sizes:
            got, wanted = fast(examples, request), capture(model, examples, request)
            assert set(got.values) == set(request.items)
            for seen in request.items:
                torch.testing.assert_close(got[seen], wanted[seen])
            assert torch.equal(got.mask(), wanted.mask())
            assert (got.logits is None) is (wanted.logits is None)


@pytest.mark.usefixtures("traced_backend")
def test_after_four_requests_capture_runs_uncompiled() -> None:
    family = BY_NAME["bert"]
    fast, batch = CompiledCapture(family.build()), family.batch()
    requests = [Request.hidden(range(k + 1)) for k in range(3)]
    requests += [Request.attention([k + 1]) for k in range(3)]
    for request in requests + requests:
        assert set(fast(batch, request).values) == set(request.items)
    assert [graph is not None for graph in fast._graphs.values()].count(True) <= 4


def test_inside_distributed_data_parallel(tmp_path: Path) -> None:
    family = BY_NAME["bert"]
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        plain = Captured(family.build(), REQUEST)
        plain(family.batch()).backward()
        captured = Captured(family.build(), REQUEST)
        parallel = nn.parallel.DistributedDataParallel(captured, find_unused_parameters=True)
        with pytest.raises(LimbeckError, match="inside the module"):
            capture(parallel, family.batch(), REQUEST)  # type: ignore[arg-type]
        parallel(family.batch()).backward()
        for name, gradient in _gradients(plain).items():
            assert torch.equal(_gradients(captured)[name], gradient)
    finally:
        torch.distributed.destroy_process_group()
