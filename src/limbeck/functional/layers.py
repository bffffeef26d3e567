"""How much each teacher layer speaks to each student layer, learned from the representations.

Serves the attention mapping.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from limbeck.functional.checks import require_same_shape, require_shape
from limbeck.functional.reductions import at_least_float32, without_autocast


def attention_weights(
    student: Float[Tensor, "batch student_layers width"],
    teacher: Float[Tensor, "batch teacher_layers width"],
    allowed: Bool[Tensor, "student_layers teacher_layers"] | None = None,
) -> Float[Tensor, "batch student_layers teacher_layers"]:
    """α_jk = softmax over the allowed teacher layers k of h_S^j · h_T^k, unscaled.

    ALP-KD Eq. 5 (`allowed` marks each student layer's bucket) and Eq. 6 (all layers). Each row sums
    to 1; layers not allowed get exactly 0; a student layer allowed none gets a row of zeros.
    Gradients flow to both sides.

    Raises:
        LimbeckError: the widths or batches differ, or `allowed` does not fit.
    """
    require_same_shape(
        "attention_weights (batch and width)",
        (student.shape[0], student.shape[-1]),
        (teacher.shape[0], teacher.shape[-1]),
        "map both sides to one width before the dot product",
    )
    student, teacher = at_least_float32(student), at_least_float32(teacher)
    with without_autocast(student):
        scores = student @ teacher.transpose(-1, -2)
    if allowed is None:
        return scores.softmax(-1)
    require_shape(
        "allowed",
        allowed,
        scores.shape[1:],
        "mark student layers in rows, teacher layers in columns",
    )
    closed = ~allowed.bool()
    # The least number, not −∞, and zero afterwards: a row without an allowed layer is 0, not NaN.
    least = torch.finfo(scores.dtype).min
    return scores.masked_fill(closed, least).softmax(-1).masked_fill(closed, 0.0)
