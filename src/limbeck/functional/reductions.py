"""Precision, and the one rule by which every loss becomes a scalar.

Used by every other file of `limbeck.functional`; spec "Reductions, the same everywhere".
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from limbeck.support.errors import LimbeckError

# Floor of a probability before its logarithm: a zero stays finite, and so does its gradient.
SMALLEST_PROBABILITY = 1e-12
SMALLEST_LOG_PROBABILITY = math.log(SMALLEST_PROBABILITY)

# True, or 1, for real tokens.
TokenMask = Bool[Tensor, "batch tokens"] | Integer[Tensor, "batch tokens"]


def float32_or_wider(dtype: torch.dtype) -> torch.dtype:
    """The type a loss computes in: float32, or float64 for float64 inputs."""
    return torch.promote_types(dtype, torch.float32)


def at_least_float32(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """bfloat16 and float16 become float32; float32 and float64 pass, without a copy."""
    return values.to(float32_or_wider(values.dtype))


def at_temperature(
    logits: Float[Tensor, "*shape"], temperature: float | int
) -> Float[Tensor, "*shape"]:
    """Logits divided by a temperature, in float32 or wider; without a copy at 1.

    Raises:
        LimbeckError: the temperature is not above 0.
    """
    require_positive("temperature", temperature)
    logits = at_least_float32(logits)
    return logits if temperature == 1 else logits / temperature


def without_autocast(values: Tensor) -> torch.autocast:
    """A block in which matrix products keep their operands' type.

    Autocast would round a float32 product to bfloat16, and the few digits of a dot product of two hidden
    states would not distinguish layers. Elementwise maths needs no such block.
    """
    return torch.autocast(values.device.type, enabled=False)


def mean_over_batch(
    totals: Float[Tensor, "batch *rest"], counts: Integer[Tensor, "batch *rest"]
) -> Float[Tensor, ""]:
    """Each example's total over its own count of valid entries, then the plain mean.

    A count of 0 gives 0: the example adds nothing, and still counts in the batch mean, so that the
    weight of the others does not depend on it.
    """
    return (totals / counts.clamp(min=1)).mean()


ExampleWeights = Float[Tensor, " batch"] | None
"""How much each example counts; None: all alike."""


def weighted_mean(
    values: Float[Tensor, " batch"], weights: ExampleWeights = None
) -> Float[Tensor, ""]:
    """Σ_i w_i·l_i / B of one value an example; without weights the plain mean.

    Over B, not over Σ w: an example's contribution does not depend on the weights of its neighbors, so
    that batches of a step, and processes, add up to the result of one large batch. An example of
    weight 0 adds nothing, whatever its value.
    """
    if weights is None:
        return values.mean()
    weights = at_least_float32(weights)
    # Multiplied, an infinite value would become NaN where it does not count.
    return (weights * values.masked_fill(weights == 0, 0.0)).mean()


# Errors for wrong shapes, in words a user can act on. Broadcasting would turn a student of
# another width, head count or label count into a wrong number without a word. These checks read
# shapes and Python numbers only, so they never wait for the device.


def require_same_shape(what: str, student: Sequence[int], teacher: Sequence[int], fix: str) -> None:
    """Raises `LimbeckError` unless the two shapes are equal; `fix` is the fix in its message."""
    if tuple(student) != tuple(teacher):
        raise LimbeckError(
            f"{what}: the student has shape {tuple(student)}, the teacher {tuple(teacher)}", fix
        )


def comparable(what: str, student: Tensor, teacher: Tensor, fix: str) -> tuple[Tensor, Tensor]:
    """Both in float32 or wider. Raises `LimbeckError` unless their shapes are equal."""
    require_same_shape(what, student.shape, teacher.shape, fix)
    return at_least_float32(student), at_least_float32(teacher)


def require_shape(
    what: str,
    tensor: Tensor,
    expected: Sequence[int],
    fix: str = "give a mask of that shape, true for real tokens",
) -> None:
    """Raises `LimbeckError` unless the tensor, by default a mask, has exactly this shape."""
    if tuple(tensor.shape) != tuple(expected):
        raise LimbeckError(f"{what} has shape {tuple(tensor.shape)}, not {tuple(expected)}", fix)


def require_positive(setting: str, value: float | int) -> None:
    """Raises `LimbeckError` unless the number is above zero."""
    if not value > 0:
        raise LimbeckError(f"{setting} is {value}", "give a number above 0; 1 leaves logits alone")


# MixUp: two inputs, or two outputs, on the line between them.
#
# Comes before both models (their embeddings are mixed) and after the student (its clean outputs are).


def mix(
    a: Float[Tensor, "*shape"], b: Float[Tensor, "*shape"], lam: float | int | Float[Tensor, "..."]
) -> Float[Tensor, "*shape"]:
    """lam·a + (1−lam)·b: CR-ILD's Mix_λ, on embeddings and on layer outputs.

    `lam` is a number, or a tensor that broadcasts (one λ an example: [batch, 1, 1]). The type of
    the inputs is kept, because the result may be a model's input.

    Raises:
        LimbeckError: the shapes differ.
    """
    require_same_shape("mix", a.shape, b.shape, "pad both inputs to one length")
    return lam * a + (1 - lam) * b
