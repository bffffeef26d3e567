"""How much each teacher layer speaks to each student layer, learned from the representations.

Serves the attention mapping.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from limbeck.functional.checks import require_same_shape, require_shape
from limbeck.functional.reductions import at_least_float32, without_autocast
from limbeck.functional.sparse import TRANSFORMS
from limbeck.support.errors import LimbeckError, unknown


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
    scores, closed = _scores(student, teacher, allowed)
    weights = scores.softmax(-1)
    return weights if closed is None else weights.masked_fill(closed, 0.0)


def sparse_attention_weights(
    student: Float[Tensor, "batch student_layers width"],
    teacher: Float[Tensor, "batch teacher_layers width"],
    allowed: Bool[Tensor, "student_layers teacher_layers"] | None = None,
    *,
    transform: str = "sparsemax",
) -> Float[Tensor, "batch student_layers teacher_layers"]:
    """`attention_weights` with `sparsemax` or `entmax` (α = 1.5) in place of the softmax.

    ALP-KD's future work: teacher layers that say little get a weight of exactly 0.

    Raises:
        LimbeckError: as `attention_weights`, or `transform` is none of the two.
    """
    if transform not in TRANSFORMS:
        raise LimbeckError(unknown("transform", transform, list(TRANSFORMS)))
    scores, closed = _scores(student, teacher, allowed)
    weights = TRANSFORMS[transform](scores)
    return weights if closed is None else weights.masked_fill(closed, 0.0)


def _scores(
    student: Tensor, teacher: Tensor, allowed: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Dot products of every pair of layers, and which of them are closed, if any."""
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
        return scores, None
    require_shape(
        "allowed",
        allowed,
        scores.shape[1:],
        "mark student layers in rows, teacher layers in columns",
    )
    closed = ~allowed.bool()
    # The least number, not −∞, and zero afterwards: a row without an allowed layer is 0, not NaN.
    return scores.masked_fill(closed, torch.finfo(scores.dtype).min), closed
