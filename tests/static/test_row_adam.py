"""The optimizer beside torch's own, and the rows that it leaves alone."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from static_models import batch, student
from torch import nn

from limbeck.static import RowAdam, clip_gradients, set_apart

sparse = functools.partial(torch.sparse_coo_tensor, check_invariants=True)


def steps(optimizer, weight: nn.Parameter, gradients: list[torch.Tensor]) -> torch.Tensor:
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
    return weight.detach()


def test_with_dense_gradients_it_is_adamw() -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(5, 3), [torch.randn(5, 3) for _ in range(6)]
    settings = {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    found = steps(RowAdam([ours], **settings), ours, gradients)
    torch.testing.assert_close(
        found, steps(torch.optim.AdamW([theirs], **settings), theirs, gradients)
    )


def test_with_sparse_gradients_it_is_sparse_adam() -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(6, 3), []
    for _ in range(8):
        rows = torch.randint(0, 6, (1, 4))  # some rows twice
        gradients.append(sparse(rows, torch.randn(4, 3), (6, 3)))
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    found = steps(RowAdam([ours], lr=0.05), ours, gradients)
    expected = steps(torch.optim.SparseAdam([theirs], lr=0.05), theirs, gradients)
    torch.testing.assert_close(found, expected)


def test_decay_reaches_the_rows_of_a_step_alone() -> None:
    weight = nn.Parameter(torch.ones(3, 2))
    gradient = sparse(torch.tensor([[1]]), torch.zeros(1, 2), (3, 2))
    steps(RowAdam([weight], lr=0.1, weight_decay=0.5), weight, [gradient])
    torch.testing.assert_close(weight.detach(), torch.tensor([[1.0, 1], [0.95, 0.95], [1, 1]]))


def test_a_step_of_a_student_leaves_other_tokens_bit_for_bit() -> None:
    made = student(num_labels=2, pairs=40, token_dropout=0.0).train()
    before = copy.deepcopy(made.state_dict())
    optimizer = RowAdam(made.parameters(), lr=0.1, weight_decay=0.1)
    made(**batch(["good film", "good"])).logits.square().sum().backward()
    optimizer.step()
    changed = (made.vectors.weight != before["vectors.weight"]).any(1)
    assert changed.nonzero()[:, 0].tolist() == [4, 6]
    assert (made.pairs.weight != before["pairs.weight"]).any(1).sum() == 1
    assert all((made.state_dict()[name] != before[name]).all() for name in before if "head" in name)


def test_a_resumed_optimizer_goes_on_as_it_was() -> None:
    torch.manual_seed(0)
    gradients = [torch.randn(4, 2) for _ in range(6)]
    whole, broken = nn.Parameter(torch.ones(4, 2)), nn.Parameter(torch.ones(4, 2))
    expected = steps(RowAdam([whole], lr=0.1), whole, gradients)
    first = RowAdam([broken], lr=0.1)
    steps(first, broken, gradients[:3])
    second = RowAdam([broken], lr=0.1)
    second.load_state_dict(first.state_dict())
    assert torch.equal(steps(second, broken, gradients[3:]), expected)


def test_its_closure_is_called_with_gradients() -> None:
    weight = nn.Parameter(torch.ones(2))

    def closure() -> torch.Tensor:
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert RowAdam([weight], lr=0.5).step(closure).item() == 2.0
    assert weight.tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("max_norm", [0.5, 1e3, float("inf")])
def test_clipping_is_torchs_of_the_same_gradients_written_out(max_norm) -> None:
    torch.manual_seed(0)
    rows = torch.tensor([[0, 2, 2]])  # one twice: the norm is of the sum
    gradients = [sparse(rows, torch.randn(3, 2), (4, 2)), torch.randn(3)]
    ours, theirs = ([nn.Parameter(torch.zeros(g.shape)) for g in gradients] for _ in range(2))
    for one, other, gradient in zip(ours, theirs, gradients, strict=True):
        one.grad, other.grad = gradient.clone(), gradient.to_dense().clone()
    unread = nn.Parameter(torch.zeros(1))
    norm = clip_gradients([*ours, unread], max_norm)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs, max_norm))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad.to_dense(), other.grad)


def test_a_weight_that_is_set_apart_moves_at_its_own_rate_and_all_follow_the_schedule() -> None:
    """Adam's first step is the learning rate, whatever the gradient."""
    slow, fast = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    optimizer = RowAdam([{"params": [slow, fast], "weight_decay": 0.0}], lr=0.1)
    set_apart(optimizer, fast, 30.0)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
    for weight in (slow, fast):
        weight.grad = torch.tensor([2.0, -7.0])
    optimizer.step()
    torch.testing.assert_close(slow.detach(), torch.tensor([-0.05, 0.05]))
    torch.testing.assert_close(fast.detach(), torch.tensor([-1.5, 1.5]))
