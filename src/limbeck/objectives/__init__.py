"""Compared how: the terms of a loss, each asking for what it needs and returning one named scalar.

On the way of a training step: after `mapping` and `projections`, before `schedules` weigh and the
engine adds.
"""

from limbeck.objectives.base import Objective
from limbeck.objectives.group import Objectives
from limbeck.objectives.layers import LayerMatch
from limbeck.objectives.predictions import HardLabel, SoftLabel, hard_label
from limbeck.objectives.shape import ModelShape, Shape
from limbeck.objectives.spec import HardSpec, LayerSpec, SoftSpec, TermSpec

__all__ = [
    "HardLabel",
    "HardSpec",
    "LayerMatch",
    "LayerSpec",
    "ModelShape",
    "Objective",
    "Objectives",
    "Shape",
    "SoftLabel",
    "SoftSpec",
    "TermSpec",
    "hard_label",
]
