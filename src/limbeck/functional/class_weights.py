"""How much each class weighs where classes are of very different sizes, and easy examples less than hard ones.

Read by the hard labels of `limbeck.functional`.
"""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from limbeck.functional.reductions import SMALLEST_PROBABILITY
from limbeck.support.errors import LimbeckError

ClassWeights = Float[Tensor, " classes"] | None
"""What the loss of each class is multiplied by; None: all alike."""


def balanced_weights(rows: Integer[Tensor, " classes"]) -> Float[Tensor, " classes"]:
    """n / (K·n_c): every class adds as much as every other (King and Zeng 2001; scikit-learn's "balanced").

    `rows` n_c are the labelled examples of each class, n their sum and K the number of classes that have
    any. The mean weight of an example is 1. A class without examples weighs 1.
    """
    counts = rows.to(torch.float32)
    present = counts > 0
    even = counts.sum() / present.sum().clamp(min=1)
    return torch.where(present, even / counts.clamp(min=1), 1.0)


def balanced_positive_weights(
    positives: Integer[Tensor, " classes"], rows: int
) -> Float[Tensor, " classes"]:
    """(n − n_c) / n_c: in each class the examples that are of it weigh as much as those that are not.

    `positives` n_c are the examples of each class among n `rows` with labels. A class of none or of all
    weighs 1.
    """
    counts = positives.to(torch.float32)
    usable = (counts > 0) & (counts < rows)
    return torch.where(usable, (rows - counts) / counts.clamp(min=1), 1.0)


def focal_factor(
    log_probability: Float[Tensor, "*shape"], gamma: float | int
) -> Float[Tensor, "*shape"]:
    """(1 − p)^γ of p = exp(log p): what an example still counts of which the model is sure (Lin et al. 2017, Eq. 4).

    Raises:
        LimbeckError: γ is below 0.
    """
    if gamma < 0:
        raise LimbeckError(f"gamma is {gamma}", "give 0 or more; the paper's is 2")
    # A root has no gradient at 0.
    unsure = -torch.expm1(log_probability)
    return unsure.clamp(min=SMALLEST_PROBABILITY) ** gamma
