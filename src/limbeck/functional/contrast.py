"""The student told apart: nearer to its own teacher vector than to those of other examples.

Follows pooling and projection; the negatives come from a memory bank.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from limbeck.functional import reductions
from limbeck.functional.embeddings import cosine_matrix


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
# Follows pooling and normalisation. A batch holds the texts of several tuples under each other: a
# query, what belongs to it, perhaps what only looks so. `queries` numbers the tuples; `grades` are
# NaN for queries, above 0 for passages that belong to their query, and 0 for those that do not.


_FIX = "give every text the number of its tuple, and a grade: NaN for the query"


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
    tuple's own negatives stand among the others'. A query without its positive in the batch does not count. With
    `tokens`, a passage that another tuple of the same query calls positive, or whose text is that of a
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
    reductions.require_shape(f"{what}: queries", queries, rows, _FIX)
    reductions.require_shape(f"{what}: grades", grades, rows, _FIX)
    return reductions.at_least_float32(embeddings)
