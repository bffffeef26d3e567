"""Which terms can move the student at all: one tiny real forward and backward pass.

Part of `limbeck.preflight`. Nothing stays behind: gradients are computed beside `.grad`, random
states and buffers (memory banks, running statistics) are put back.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.activations import Request, capture
from limbeck.static.row_adam import rows_of
from limbeck.support.errors import Problem, problem_list

Terms = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


@problem_list
def check_weights(weights: Mapping[str, float]) -> Iterator[Problem]:
    """Terms that are configured but weighted by zero, and weights that are no loss at all."""
    for name, weight in weights.items():
        if not math.isfinite(weight):
            yield Problem(f"objectives.{name}: its weight is {weight}", "give a finite weight")
        elif weight == 0:
            yield Problem(
                f"objectives.{name}: its weight is 0, so it never influences the student",
                "give it a weight, or take it out (it costs time all the same)",
                "warning",
            )
    if weights and all(weight == 0 for weight in weights.values()):
        yield Problem("objectives: every weight is 0, so nothing is learned", "give one a weight")


def check_influence(
    terms: Terms,
    weights: Mapping[str, float],
    student: nn.Module,
    batch: Mapping[str, Tensor],
    modules: Iterable[nn.Module] = (),
) -> list[Problem]:
    """Terms whose value does not depend on the student, or is not a finite number.

    `terms(batch)` gives the unweighted terms by name, as the engine computes them. `weights` holds
    the largest weight each ever has; terms of weight 0 are left to `check_weights`. `modules` are
    others that `terms` runs and whose buffers it may write (objectives). The student runs in the
    mode it is in.
    """
    parameters = [weight for weight in student.parameters() if weight.requires_grad]
    if not parameters:
        return [Problem("student: no parameter can be trained", "unfreeze some of them")]
    problems = []
    with _untouched([student, *modules], batch), torch.enable_grad():
        values = terms(batch)
        for name, value in values.items():
            if weights.get(name, 1.0) != 0:
                problems += _check_term(name, value, parameters)
    return problems


# A student of an encoder's first layers starts at a thousandth and less, one that has its last layer above a hundredth.
_ALIKE = 3e-3
# The rates of the steps after which such a student was first seen to tell texts apart, added up.
_ON_THE_PLATEAU = 7e-3


@problem_list
def check_start(
    student: PreTrainedModel, batch: Mapping[str, Tensor], travel: float
) -> Iterator[Problem]:
    """A student that gives all texts one answer at the start, and a training too short to change that.

    Lower layers of an encoder write nothing of the text into the token that a class is read off, so that a student of
    them begins on a plateau: its outputs hardly differ, nor do the gradients of its examples.

    Args:
        student: of a class or number for a whole text.
        batch: a few real examples.
        travel: the learning rates of all steps, added up.
    """
    if travel >= _ON_THE_PLATEAU or len(batch["input_ids"]) < 2:
        return
    was = student.training
    student.eval()
    with torch.no_grad():
        logits = capture(student, batch, Request.of_logits()).logits
    student.train(was)
    assert logits is not None  # asked for
    spread = float(logits.float().std(0).max())
    if not spread < _ALIKE:
        return
    yield Problem(
        f"student: it starts with nearly the same outputs for all texts (logits differ by {spread:.1g}), and "
        f"the learning rates of its steps add up to {travel:.2g}; it would answer one class for all texts until "
        f"they add up to about {_ON_THE_PLATEAU:g}",
        "leave epochs and lr out, or raise them; --pick skip keeps the last layer, which tells texts apart",
        "warning",
    )


@problem_list
def _check_term(name: str, value: Tensor, parameters: list[nn.Parameter]) -> Iterator[Problem]:
    if not torch.isfinite(value).all():
        yield Problem(
            f"objectives.{name}: its value on the first batch is {value.item()}",
            "check labels, temperature and precision",
        )
        return
    gradients: list[Tensor] = []
    if value.requires_grad:
        found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        gradients = [rows_of(gradient)[1] for gradient in found if gradient is not None]
    if not gradients:
        yield Problem(
            f"objectives.{name}: it does not depend on any weight of the student that is "
            "trained, so it cannot influence it",
            "let it look at a layer above frozen ones, or take it out",
        )
        return
    if not all(torch.isfinite(gradient).all() for gradient in gradients):
        yield Problem(
            f"objectives.{name}: its gradient on the first batch is not finite",
            "check labels, temperature and precision",
        )
        return
    if not any(gradient.count_nonzero() for gradient in gradients):
        yield Problem(
            f"objectives.{name}: its gradient on the first batch is exactly zero",
            "expected where the student starts as a copy of the layers it is compared with; "
            "otherwise map other layers",
            "warning",
        )
        return


@contextmanager
def _untouched(modules: list[nn.Module], batch: Mapping[str, Tensor]) -> Iterator[None]:
    """Give random states and buffers back as they were."""
    buffers = [
        (buffer, buffer.detach().clone()) for module in modules for buffer in module.buffers()
    ]
    accelerators = {tensor.device for tensor in batch.values() if tensor.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(accelerators, key=str)):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
