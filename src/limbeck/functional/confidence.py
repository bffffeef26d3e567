"""How sure a model is of an example: of its likeliest class, and over all of them; and who is sure enough.

Read logits of classes; serve the weights of examples.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer, Num
from torch import Tensor

from limbeck.functional.reductions import at_least_float32
from limbeck.support.errors import LimbeckError


def top_probability(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    """max_c softmax(z)_c, between 1/C and 1: the confidence in the likeliest class."""
    return at_least_float32(logits).softmax(-1).amax(-1)


def normalized_entropy(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    """−Σ_c p_c·ln p_c / ln C of p = softmax(z): 0 for a certain model, 1 for one that knows nothing.

    Raises:
        LimbeckError: there is one class, of which everyone is certain.
    """
    if logits.shape[-1] < 2:
        raise LimbeckError("normalized_entropy: there is one output", "give logits of classes")
    logs = at_least_float32(logits).log_softmax(-1)
    surprise = logs.masked_fill(logs.isinf(), 0.0)  # of a class that is ruled out
    return -(logs.exp() * surprise).sum(-1) / math.log(logits.shape[-1])


def class_thresholds(
    confidence: Float[Tensor, ""], shares: Float[Tensor, " classes"]
) -> Float[Tensor, " classes"]:
    """m·q(c) / max_c' q(c'): FreeMatch's self-adaptive thresholds (Wang et al. 2023, Eq. 8).

    `confidence` is the mean top probability m, `shares` the mean probability q of each class: a class
    of which the model is less sure has a lower threshold.
    """
    return confidence * shares / shares.max()


def class_means(
    values: Float[Tensor, " batch"],
    classes: Integer[Tensor, " batch"],
    default: Float[Tensor, " classes"],
) -> Float[Tensor, " classes"]:
    """The mean value of each class's examples; the default's if a class has no examples.

    Asks nowhere how many there are, which an accelerator would be waited for.
    """
    member = F.one_hot(classes, len(default)).float()
    counts = member.sum(0)
    means = (member * values.unsqueeze(-1)).sum(0) / counts.clamp(min=1)
    return torch.where(counts > 0, means, default)


def sure_and_unsure(
    confidence: Float[Tensor, " batch"],
    uncertainty: Float[Tensor, " batch"],
    least_confidence: Float[Tensor, " batch"],
    least_uncertainty: Float[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """p·u where p ≥ τ_T and u ≥ τ_S, otherwise 0: LLKD's weights (Li et al. 2024).

    `confidence` p is the teacher's, `uncertainty` u the student's, each with the least of it that counts.
    """
    kept = (confidence >= least_confidence) & (uncertainty >= least_uncertainty)
    return torch.where(kept, confidence * uncertainty, 0.0)


# From the scores of several teachers to the probability that each is sampled.
#
# Used once a run, before the first step, by the teachers of SKD.


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
            "give one finite score per teacher; evaluate the teachers without a score",
        )
    ranks = torch.from_numpy(rankdata(values.detach().cpu().double().numpy()))
    return (ranks / ranks.sum()).to(device=values.device, dtype=values.dtype)
