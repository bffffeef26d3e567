"""What stands behind a student's last layer, and training it alone. Part of `limbeck.training`."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

from limbeck.objectives.curriculum import Curriculum
from limbeck.support.step_state import StepState


def head_of(student: PreTrainedModel) -> list[nn.Parameter]:
    """The weights behind a model's last layer: of its head, and of the pooling before it.

    None that the body uses too, as a tied output embedding; none at all where a model does not say
    what its body is.
    """
    body = student.base_model
    pooler = getattr(body, "pooler", None)
    pooling = [] if pooler is None else [*pooler.parameters()]
    inside = {id(weight) for weight in body.parameters()} - {id(weight) for weight in pooling}
    return [weight for weight in student.parameters() if id(weight) not in inside]


def train_head_alone(
    student: PreTrainedModel, curriculum: Curriculum, step_state: StepState
) -> None:
    """After a backward pass: if a curriculum says so, no other weight of the student is moved.

    An optimiser passes by a weight without a gradient: neither momentum nor decay moves it, and the
    norm that is clipped is the head's.
    """
    if not curriculum.head_alone(step_state):
        return
    head = {id(weight) for weight in head_of(student)}
    for weight in student.parameters():
        if id(weight) not in head:
            weight.grad = None
