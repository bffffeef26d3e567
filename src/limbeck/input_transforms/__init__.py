"""Changes to a step's inputs before student and teacher read them, open to the outside.

A transform is registered by name (`INPUT_TRANSFORMS`), as MixUp is, and chosen by a recipe's `mixup` or
`input_transform`. The engine knows `StepInputs` alone, which it gives to student and teachers alike.
"""

from limbeck.input_transforms.input_transform import (
    INPUT_TRANSFORMS,
    InputTransform,
    ModelPass,
    StepInputs,
    TransformSettings,
    TransformSpec,
    chosen,
)
from limbeck.input_transforms.masked_kd import MaskedKD, MaskedKDSettings
from limbeck.input_transforms.mixup import Mixture, Mixup, MixupSpec

__all__ = [
    "INPUT_TRANSFORMS",
    "InputTransform",
    "MaskedKD",
    "MaskedKDSettings",
    "Mixture",
    "Mixup",
    "MixupSpec",
    "ModelPass",
    "StepInputs",
    "TransformSettings",
    "TransformSpec",
    "chosen",
]
