"""Sentence embeddings compared: one by one, by the other sentences of a batch, and in contrast with negatives.

Follows pooling and normalization. Vectors that are compared directly need one width; similarities may come
from embeddings of any.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Integer
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
    is 2 − 2·cos for every width, which fits terms of layers without a factor.

    Raises:
        LimbeckError: the shapes differ.
    """
    student, teacher = reductions.comparable("embedding_mse", student, teacher, _FIX)
    return reductions.weighted_mean((student - teacher).square().sum(-1), weights)


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
    student, teacher = reductions.comparable("embedding_cosine", student, teacher, _FIX)
    cosine = F.cosine_similarity(student, teacher, dim=-1)
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

    Relational KD by pairs (Park et al. 2019, Eq. 3, with the cosine instead of their distance;
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


def info_nce(
    student: Float[Tensor, "batch width"],
    positive: Float[Tensor, "batch width"],
    negatives: Float[Tensor, "batch negatives width"],
    mask: Bool[Tensor, "batch negatives"] | Integer[Tensor, "batch negatives"] | None = None,
    *,
    temperature: float | int,
) -> Float[Tensor, ""]:
    """−log softmax of the positive among positive and negatives, by cosine/τ; mean over the batch.

    CoDIR's objective. 0 without negatives; log(1 + K) when all K negatives equal the positive. The
    mask is true where there is a negative, so that each example may have as many as it has.

    Raises:
        LimbeckError: shapes do not fit, or the temperature is not above 0.
    """
    reductions.require_positive("temperature", temperature)
    reductions.require_same_shape(
        "info_nce", student.shape, positive.shape, "map both sides to one width"
    )
    reductions.require_same_shape(
        "info_nce (batch and width of the negatives)",
        student.shape,
        (negatives.shape[0], negatives.shape[-1]),
        "give K negatives of the student's width for each example: [batch, K, width]",
    )
    absent = None
    if mask is not None:
        reductions.require_shape(
            "mask", mask, negatives.shape[:2], "give one of that shape, true where a negative is"
        )
        absent = ~mask.bool()
        negatives = negatives.masked_fill(absent.unsqueeze(-1), 0.0)
    candidates = torch.cat([positive.unsqueeze(1), negatives], 1)
    cosine = F.cosine_similarity(
        reductions.at_least_float32(student).unsqueeze(1),
        reductions.at_least_float32(candidates),
        dim=-1,
    )
    if absent is not None:
        cosine = cosine.masked_fill(F.pad(absent, (1, 0)), -torch.inf)
    first = torch.zeros(student.shape[0], dtype=torch.long, device=student.device)
    return F.cross_entropy(cosine / temperature, first)


def moved_unit(
    old: Float[Tensor, "batch width"],
    new: Float[Tensor, "batch width"],
    known: Bool[Tensor, " batch"],
    *,
    momentum: float | int,
) -> Float[Tensor, "batch width"]:
    """m·old + (1 − m)·new/‖new‖ of length 1; new/‖new‖ itself where no old one is known.

    How a memory of CoDIR's teacher vectors follows them.
    """
    unit = F.normalize(new, dim=-1)
    moved = momentum * old + (1 - momentum) * unit
    return F.normalize(torch.where(known.unsqueeze(-1), moved, unit), dim=-1)


# Embeddings of queries and passages in one batch: a query's similarity to its passages, and to
# everyone else's.
#
# Follows pooling and normalization. A batch contains the texts of several tuples, one below another: a
# query, passages that belong to it, perhaps others that only look relevant. `queries` numbers the tuples; `grades` are
# NaN for queries, above 0 for passages that belong to their query, and 0 for other passages.


_TUPLES_FIX = "give every text the number of its tuple, and a grade: NaN for the query"


def query_similarities(
    embeddings: Float[Tensor, "batch width"],
    queries: Int[Tensor, " batch"],
    grades: Float[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """e_q · e_p of each passage p with the query q of its tuple; 0 for queries, and where the query is not there.

    The inner product: the cosine of embeddings of length 1.

    Raises:
        LimbeckError: the shapes differ.
    """
    vectors = _checked("query_similarities", embeddings, queries, grades)
    asked = grades.isnan()
    theirs = (queries[:, None] == queries[None, :]) & asked[:, None] & ~asked[None, :]
    with reductions.without_autocast(vectors):
        return torch.where(theirs, vectors @ vectors.T, 0.0).sum(0)


def pair_contrast(
    embeddings: Float[Tensor, "batch width"],
    queries: Int[Tensor, " batch"],
    grades: Float[Tensor, " batch"],
    tokens: Int[Tensor, "batch tokens"] | None = None,
    *,
    temperature: float | int,
) -> Float[Tensor, ""]:
    """−ln of exp(cos(q, p⁺)/τ) / Σ_p exp(cos(q, p)/τ) over p⁺ and the other passages p of the batch; mean over queries.

    InfoNCE with in-batch negatives (van den Oord et al. 2018; multiple negatives ranking, Henderson et al. 2017): a
    tuple's own negatives are among the others'. A query without its positive in the batch does not count. With
    `tokens`, a passage that is a positive in another tuple of the same query, or has the same text as a
    positive, is no negative; in the papers it is.

    Raises:
        LimbeckError: the shapes differ, or the temperature is not above 0.
    """
    reductions.require_positive("temperature", temperature)
    _checked("pair_contrast", embeddings, queries, grades)
    asked = grades.isnan()
    right = (queries[:, None] == queries[None, :]) & asked[:, None] & (grades > 0)[None, :]
    negative = ~asked[None, :] & ~_known(right, tokens)
    cosines = cosine_matrix(embeddings) / temperature
    # A finite number: a sum over nothing has a gradient of NaN.
    others = torch.where(negative, cosines, torch.finfo(cosines.dtype).min / 2).logsumexp(1)
    losses = torch.where(right, F.softplus(others[:, None] - cosines), 0.0)
    counts = right.sum(1)
    by_query = losses.sum(1) / counts.clamp(min=1)
    return by_query.sum() / (counts > 0).sum().clamp(min=1)


def _known(right: Tensor, tokens: Tensor | None) -> Bool[Tensor, "batch batch"]:
    """Which passages are known to belong to a query, by its text and theirs."""
    if tokens is None:
        return right
    alike = (tokens[:, None] == tokens[None, :]).all(-1).float()
    with reductions.without_autocast(alike):
        return (alike @ right.float() @ alike) > 0


def _checked(what: str, embeddings: Tensor, queries: Tensor, grades: Tensor) -> Tensor:
    rows = embeddings.shape[:1]
    reductions.require_shape(f"{what}: queries", queries, rows, _TUPLES_FIX)
    reductions.require_shape(f"{what}: grades", grades, rows, _TUPLES_FIX)
    return reductions.at_least_float32(embeddings)
