"""How much each teacher layer gives each student layer when moving mass costs what it costs.

Serves the transport mapping (BERT-EMD, EMD-ILD).
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from limbeck.functional.reductions import float32_or_wider, require_shape
from limbeck.support.errors import LimbeckError

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
    it with the live costs. Costs one transfer to the host and one back: of what runs every step,
    the only function that waits for the device.

    Raises:
        LimbeckError: shapes do not fit, a cost is not finite, or the weights are negative, zero in
            sum or of different sums.
    """
    students, teachers = costs.shape
    require_shape("student_weights", student_weights, (students,), "give one weight a layer")
    require_shape("teacher_weights", teacher_weights, (teachers,), "give one weight a layer")
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
    return torch.from_numpy(flow).to(device=costs.device, dtype=float32_or_wider(costs.dtype))


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
