"""From the scores of several teachers to the probability that each is sampled.

Used once a run, before the first step, by the teachers of SKD.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Num
from torch import Tensor

from limbeck.support.errors import LimbeckError


def rank_distribution(
    scores: Num[Tensor, " teachers"] | Num[np.ndarray, " teachers"] | Sequence[float | int],
) -> Float[Tensor, " teachers"]:
    """p_i = r_i / Σ r, with rank r = 1 for the worst score; ties share the mean of their ranks.

    SKDBERT Eq. 2 (scores of the teachers) and Eq. 3 (of students distilled from each). The paper
    ranks without ties; the mean rank is ours, and keeps the sum.

    The result is of the scores' float type; plain numbers give torch's default type.

    Raises:
        LimbeckError: there is no score, or one is not finite.
    """
    # Here and not at the top: scipy.stats is slow to import and most runs have one teacher.
    from scipy.stats import rankdata

    values = torch.as_tensor(scores)
    if not torch.is_floating_point(values):
        values = values.to(torch.get_default_dtype())
    if values.numel() == 0 or not bool(values.isfinite().all()):
        raise LimbeckError(
            f"teachers cannot be ranked by the scores {values.tolist()}",
            "give one finite score a teacher; evaluate those that have none",
        )
    ranks = torch.from_numpy(rankdata(values.detach().cpu().double().numpy()))
    return (ranks / ranks.sum()).to(device=values.device, dtype=values.dtype)
