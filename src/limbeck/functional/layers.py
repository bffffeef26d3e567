"""How much each teacher layer speaks to each student layer, learned from the representations.

Serves the attention mapping.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from limbeck.functional import reductions
from limbeck.support.errors import LimbeckError, check_choice


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
    """`attention_weights` with `sparsemax` or `entmax` (α = 1.5) instead of the softmax.

    ALP-KD's future work: teacher layers with little information get a weight of exactly 0.

    Raises:
        LimbeckError: as `attention_weights`, or `transform` is neither of the two.
    """
    check_choice("transform", transform, TRANSFORMS)
    scores, closed = _scores(student, teacher, allowed)
    weights = TRANSFORMS[transform](scores)
    return weights if closed is None else weights.masked_fill(closed, 0.0)


def _scores(
    student: Tensor, teacher: Tensor, allowed: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Dot products of every pair of layers, and which of them are closed, if any."""
    reductions.require_same_shape(
        "attention_weights (batch and width)",
        (student.shape[0], student.shape[-1]),
        (teacher.shape[0], teacher.shape[-1]),
        "map both sides to one width before the dot product",
    )
    student, teacher = reductions.at_least_float32(student), reductions.at_least_float32(teacher)
    with reductions.without_autocast(student):
        scores = student @ teacher.transpose(-1, -2)
    if allowed is None:
        return scores, None
    reductions.require_shape(
        "allowed",
        allowed,
        scores.shape[1:],
        "mark student layers in rows, teacher layers in columns",
    )
    closed = ~allowed.bool()
    # The least number, not −∞, and zero afterwards: a row without an allowed layer is 0, not NaN.
    return scores.masked_fill(closed, torch.finfo(scores.dtype).min), closed


# Softmax's sparse relatives: probabilities over the last dimension with exact zeros. Serve the
# attention mapping of `alp-sparse`. Both project the scores onto the probability simplex, in
# closed form after a sort; gradients flow to the scores that got a weight.


def sparsemax(scores: Float[Tensor, "*leading choices"]) -> Float[Tensor, "*leading choices"]:
    """The probabilities nearest to the scores (Martins & Astudillo 2016, Algorithm 1)."""
    # Shifted, which changes no weight: next to large scores the 1 below would be rounded away.
    scores = scores - scores.max(-1, keepdim=True).values
    ordered = scores.sort(-1, descending=True).values
    size = _places(scores)
    support = size * ordered > ordered.cumsum(-1) - 1.0
    count = support.sum(-1, keepdim=True).to(scores.dtype)
    threshold = (_over(ordered, support) - 1.0) / count
    return (scores - threshold).clamp_min(0.0)


def entmax(scores: Float[Tensor, "*leading choices"]) -> Float[Tensor, "*leading choices"]:
    """1.5-entmax (Peters et al. 2019, Algorithm 2): between softmax and sparsemax."""
    # Shifted as above.
    half = (scores - scores.max(-1, keepdim=True).values) / 2
    ordered = half.sort(-1, descending=True).values
    with torch.no_grad():
        size = _places(half)
        mean = ordered.cumsum(-1) / size
        spread = ordered.square().cumsum(-1) - size * mean.square()
        threshold = mean - ((1.0 - spread) / size).clamp_min(0.0).sqrt()
        support = threshold <= ordered
    # Once more over the support alone: the root's gradient outside it would be infinite.
    count = support.sum(-1, keepdim=True).to(half.dtype)
    mean = _over(ordered, support) / count
    spread = _over((ordered - mean).square(), support)
    threshold = mean - ((1.0 - spread) / count).clamp_min(torch.finfo(half.dtype).tiny).sqrt()
    return (half - threshold).clamp_min(0.0).square()


def _places(scores: Tensor) -> Tensor:
    return torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)


def _over(values: Tensor, support: Tensor) -> Tensor:
    return values.masked_fill(~support, 0.0).sum(-1, keepdim=True)


TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {"sparsemax": sparsemax, "entmax": entmax}


# The cheapest flow from teacher layers to student layers, for given costs of moving mass.
#
# Serves the transport mapping (BERT-EMD, EMD-ILD).


# A layer whose cost is zero would take all the mass.
_SMALLEST_COST = 1e-12

# Weights that went through float32 arithmetic agree better than this; a mistake does not.
_MASS_TOLERANCE = 1e-4


def transport_flow(
    costs: Float[Tensor, "student_layers teacher_layers"],
    student_weights: Float[Tensor, " student_layers"],
    teacher_weights: Float[Tensor, " teacher_layers"],
) -> Float[Tensor, "student_layers teacher_layers"]:
    """The flow f ≥ 0 of least Σ f·cost whose rows and columns sum to the two sides' weights.

    Rows sum to the student's weights, columns to the teacher's. BERT-EMD's inner problem, solved
    exactly by POT's network simplex in float64. The flow is a constant without gradient; multiply
    it with the live costs. Costs one transfer to the host and one back: among the functions of every step,
    the only one that waits for the device.

    Raises:
        LimbeckError: shapes do not fit, a cost is not finite, or the weights are negative, zero in
            sum or of different sums.
    """
    students, teachers = costs.shape
    reductions.require_shape(
        "student_weights", student_weights, (students,), "give one weight a layer"
    )
    reductions.require_shape(
        "teacher_weights", teacher_weights, (teachers,), "give one weight a layer"
    )
    with torch.no_grad():
        packed = torch.cat([costs.flatten(), student_weights, teacher_weights])
        values = packed.cpu().double().numpy()
    matrix = values[: students * teachers].reshape(students, teachers)
    supply = values[students * teachers : students * teachers + students]
    demand = values[students * teachers + students :]
    _require_transportable(values, supply, demand)
    # Here and not at the top: POT is slow to import and most methods move no mass.
    import ot

    # The two sums are made equal to the last bit, which the solver asks for.
    flow = ot.emd(supply, demand * (supply.sum() / demand.sum()), matrix)
    return torch.from_numpy(flow).to(
        device=costs.device, dtype=reductions.float32_or_wider(costs.dtype)
    )


def cheaper_layers_weigh_more(
    moved: Float[Tensor, " layers"], mass: Float[Tensor, " layers"]
) -> Float[Tensor, " layers"]:
    """BERT-EMD's cost attention: c_i = moved_i / w_i, w_i ← Σc / c_i, brought to sum 1.

    `moved` holds Σ_j f_ij·d_ij of each layer i, `mass` the masses w of that flow.
    """
    cost = (moved / mass).clamp_min(_SMALLEST_COST)
    weight = cost.sum() / cost
    return weight / weight.sum()


def _require_transportable(values: np.ndarray, supply: np.ndarray, demand: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise LimbeckError(
            "transport_flow: a cost or a weight is not finite",
            "look for the first non-finite loss: the learning rate may be too high",
        )
    mass, other = supply.sum(), demand.sum()
    if supply.min() < 0 or demand.min() < 0 or mass <= 0:
        raise LimbeckError(
            f"transport_flow: weights must be 0 or more and not all 0, got {supply} and {demand}",
            "normalise the weights of each side to sum to 1",
        )
    if abs(mass - other) > _MASS_TOLERANCE * mass:
        raise LimbeckError(
            f"transport_flow: student weights sum to {mass:.6g}, teacher weights to {other:.6g}",
            "normalise the weights of each side to sum to 1",
        )
