"""Sentence embeddings compared: one by one, and by what they say of the other sentences of a batch.

Follows pooling and normalisation. What is compared one by one has to have one width; similarities may come
from embeddings of any.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from limbeck.functional import reductions

_FIX = "map one side to the other's width with a projection, or compare similarities"


def embedding_mse(
    student: Float[Tensor, "batch width"],
    teacher: Float[Tensor, "batch width"],
    *,
    weights: reductions.ExampleWeights = None,
) -> Float[Tensor, ""]:
    """‖s − t‖², summed over the width, mean over the batch (Reimers and Gurevych 2020, §2).

    Their mean over the width too is this divided by it; summed, the value of embeddings of length 1
    is 2 − 2·cos whatever their width, and stands beside terms of layers without a factor.

    Raises:
        LimbeckError: the shapes differ.
    """
    reductions.require_same_shape("embedding_mse", student.shape, teacher.shape, _FIX)
    difference = reductions.at_least_float32(student) - reductions.at_least_float32(teacher)
    return reductions.weighted_mean(difference.square().sum(-1), weights)


def embedding_cosine(
    student: Float[Tensor, "batch width"],
    teacher: Float[Tensor, "batch width"],
    *,
    weights: reductions.ExampleWeights = None,
) -> Float[Tensor, ""]:
    """1 − cos(s, t), mean over the batch; 1 where either is zero.

    Raises:
        LimbeckError: the shapes differ.
    """
    reductions.require_same_shape("embedding_cosine", student.shape, teacher.shape, _FIX)
    cosine = F.cosine_similarity(
        reductions.at_least_float32(student), reductions.at_least_float32(teacher), dim=-1
    )
    return reductions.weighted_mean(1 - cosine, weights)


def cosine_matrix(embeddings: Float[Tensor, "batch width"]) -> Float[Tensor, "batch batch"]:
    """The cosine of every two embeddings of a batch, in at least float32."""
    unit = F.normalize(reductions.at_least_float32(embeddings), dim=-1)
    with reductions.without_autocast(unit):
        return unit @ unit.T


def similarity_mse(
    student: Float[Tensor, "batch width"], teacher: Float[Tensor, "batch other"]
) -> Float[Tensor, ""]:
    """(cos(s_i, s_j) − cos(t_i, t_j))², mean over all i ≠ j of the batch; 0 of a single example.

    Relational KD by pairs (Park et al. 2019, Eq. 3, with the cosine in place of their distance;
    similarity-preserving KD, Tung and Mori 2019, without its norm by rows).

    Raises:
        LimbeckError: the batches differ.
    """
    _require_one_batch("similarity_mse", student, teacher)
    count = len(student)
    difference = cosine_matrix(student) - cosine_matrix(teacher)
    apart = ~torch.eye(count, dtype=torch.bool, device=difference.device)
    return (difference.square() * apart).sum() / max(count * (count - 1), 1)


def similarity_kl(
    student: Float[Tensor, "batch width"],
    teacher: Float[Tensor, "batch other"],
    *,
    temperature: float | int = 1.0,
) -> Float[Tensor, ""]:
    """KL(p_T ‖ p_S) of p_i = softmax over j ≠ i of cos(x_i, x_j)/τ, mean over i; 0 of a single example.

    The listwise form of in-batch similarities (SEED, Fang et al. 2021, Eq. 3, without its queue).

    Raises:
        LimbeckError: the batches differ, or the temperature is not above 0.
    """
    reductions.require_positive("temperature", temperature)
    _require_one_batch("similarity_kl", student, teacher)
    if len(student) < 2:
        return 0.0 * reductions.at_least_float32(student).sum()
    ours, theirs = (_others(cosine_matrix(side)) / temperature for side in (student, teacher))
    return F.kl_div(
        ours.log_softmax(-1), theirs.log_softmax(-1), reduction="batchmean", log_target=True
    )


def _others(matrix: Float[Tensor, "batch batch"]) -> Float[Tensor, "batch rest"]:
    """The matrix without its diagonal."""
    count = len(matrix)
    # Each row of the flat matrix but the first value, cut at B + 1, starts behind a diagonal entry.
    return matrix.flatten()[1:].view(count - 1, count + 1)[:, :-1].reshape(count, count - 1)


def _require_one_batch(what: str, student: Tensor, teacher: Tensor) -> None:
    reductions.require_same_shape(
        f"{what} (examples)", student.shape[:1], teacher.shape[:1], "give both sides the same batch"
    )
