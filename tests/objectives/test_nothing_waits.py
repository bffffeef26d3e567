"""No term asks the device for a number: on an accelerator each such question would stop the step.

Transfers of whole tensors, as transport makes one, are no operation that a processor could show. The
models' own passes are not looked at: transformers asks of each mask whether all of it is real.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tiny_runs as tiny
from limbeck import catalog
from limbeck.capture import capture
from limbeck.moment import Moment
from limbeck.objectives import ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.teachers import Teacher

GIVEN = {"pkd": {"objectives.patience.mapping.layers": {1: 4}}}
STAGES = [
    (method, stage.number)
    for method in catalog.names()
    for stage in Recipe.load(method, **GIVEN.get(method, {})).stages()
    if stage.recipe.needs_teacher and stage.recipe.mixup is None and stage.recipe.kind != "text"
]
# Its negatives are those of other labels seen so far: how many there are, and which, is asked.
ASKS = {"codir"}
# What has to know values before it can go on.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "_unique2", "equal"}


class Waits(TorchDispatchMode):
    """Names the operations that wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        by_mask = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        if name in WAITING or by_mask:
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def batch() -> dict[str, torch.Tensor]:
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0]])
    generator = torch.Generator().manual_seed(0)
    return {
        "input_ids": torch.randint(4, 14, (3, 6), generator=generator) * mask,
        "attention_mask": mask,
        "labels": torch.tensor([0, 1, 1]),
        "index": torch.arange(3),
    }


@pytest.mark.parametrize(("method", "number"), STAGES)
def test_the_terms_of_a_step_wait_for_no_number(method, number):
    stage = Recipe.load(method, **GIVEN.get(method, {})).stages()[number - 1].recipe
    student, teacher = tiny.bert(3, seed=2), Teacher(tiny.bert(12, seed=1))
    shape = Shape(ModelShape.of(student), ModelShape.of(teacher.model), rows=8)
    objectives = Objectives(stage.objectives, shape, stage.curriculum)
    examples, moment = batch(), Moment()
    ours = capture(student, examples, objectives.request("student", moment))
    theirs = teacher(examples, objectives.request("teacher", moment))
    with Waits() as waits:
        sum(objectives(ours, theirs, examples, moment).values()).backward()
    assert bool(waits.found) == (method in ASKS), waits.found
