"""Scores of a query's candidates: distributions over a list, margins, and pairs in the right order.

A batch contains the candidates of several queries, one below another; `queries` is the query of each. Nothing is
compared across queries. Means are taken over a query's own candidates or pairs first, then over the queries
that have any.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from limbeck.functional import reductions
from limbeck.support.errors import LimbeckError

PairWeighting = Literal["uniform", "lambda_rank", "ndcg_loss2", "ndcg_loss2_plus"]
_MU = 10.0  # of NDCG-Loss2++, Wang et al. 2018
_FIX = "give every candidate one score from both models, and the number of its query"


def listwise_kl(
    student: Float[Tensor, " batch"],
    teacher: Float[Tensor, " batch"],
    queries: Int[Tensor, " batch"],
    *,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
) -> Float[Tensor, ""]:
    """Σ_i p_i·(ln p_i − ln q_i) over each query's candidates, p and q the softmax of scores/τ among them.

    ListNet's top-one distributions (Cao et al. 2007) of teacher and student. A query with one candidate in the
    batch carries no information and does not count.

    Raises:
        LimbeckError: the shapes differ, or the temperature is not above 0.
    """
    reductions.require_positive("temperature", temperature)
    ours, theirs, same = _lists("listwise_kl", student, teacher, queries)
    log_q = _log_shares(ours / temperature, same)
    log_p = _log_shares(theirs / temperature, same)
    value = _by_list(log_p.exp() * (log_p - log_q), same, same.sum(1) > 1)
    return value * temperature**2 if scale_by_t2 else value


def listwise_cross_entropy(
    scores: Float[Tensor, " batch"], grades: Float[Tensor, " batch"], queries: Int[Tensor, " batch"]
) -> Float[Tensor, ""]:
    """−Σ_i (y_i / Σ_j y_j)·ln q_i over each query's candidates, q the softmax of scores among them.

    The softmax loss of Bruch et al. 2019: grades y, 0 for passages that are not relevant. A candidate whose grade is
    NaN is left out of its list; a query without anything relevant, or with one candidate, does not count.

    Raises:
        LimbeckError: the shapes differ.
    """
    ours, judged, same = _lists("listwise_cross_entropy", scores, grades, queries)
    known = ~judged.isnan()
    gains = torch.where(known, judged, 0.0)
    # The diagonal stays, as a sum over nothing has no logarithm.
    among = same & (known[None, :] | _diagonal(same))
    totals = _sums(gains, same)
    shares = torch.where(known, gains / totals.clamp(min=torch.finfo(gains.dtype).tiny), 0.0)
    several = (same & known[None, :]).sum(1) > 1
    return _by_list(-shares * _log_shares(ours, among), same, (totals > 0) & several)


def margin_mse(
    student: Float[Tensor, " batch"],
    teacher: Float[Tensor, " batch"],
    queries: Int[Tensor, " batch"],
    grades: Float[Tensor, " batch"] | None = None,
) -> Float[Tensor, ""]:
    """((s_i − s_j) − (t_i − t_j))² of pairs of a query's candidates (Hofstätter et al. 2020, Margin-MSE).

    With grades the pairs of which i is the more relevant, in the paper one positive and one negative; a NaN is in
    none. Without them all pairs. The paper takes the mean over the pairs of a batch, which is the same where every
    query has as many.

    Raises:
        LimbeckError: the shapes differ.
    """
    ours, theirs, same = _lists("margin_mse", student, teacher, queries)
    if grades is None:
        pairs = same & torch.ones_like(same).triu(1)
    else:
        pairs = same & _above("margin_mse", grades, ours)
    ahead = ours - theirs
    return _by_pair((ahead[:, None] - ahead[None, :]).square(), same, pairs)


def ranked_pairs(
    scores: Float[Tensor, " batch"],
    targets: Float[Tensor, " batch"],
    queries: Int[Tensor, " batch"],
    *,
    weighting: PairWeighting = "uniform",
) -> Float[Tensor, ""]:
    """w_ij·ln(1 + exp(s_j − s_i)) for the pairs of a query's candidates whose target i is above target j.

    RankNet (Burges et al. 2005) with weights of 1, otherwise LambdaLoss (Wang et al. 2018): `lambda_rank`
    is |G_i − G_j|·|1/D_i − 1/D_j| with discounts D of the student's own ranks, `ndcg_loss2` has
    |1/D_|i−j| − 1/D_{|i−j|+1}| instead of that, `ndcg_loss2_plus` is 10 times that and the first together. Two
    departures: G is (target − least target of the list) over the best DCG, without 2^y, since targets may be a
    teacher's scores; and the sum is a mean over the pairs.

    Args:
        scores: of the student.
        targets: grades, or a teacher's scores; a NaN is in no pair.
        queries: whose candidate each is.
        weighting: of the pairs.

    Raises:
        LimbeckError: the shapes differ, or there is no such weighting.
    """
    ours, wanted, same = _lists("ranked_pairs", scores, targets, queries)
    pairs = same & _above("ranked_pairs", targets, ours)
    losses = F.softplus(ours[None, :] - ours[:, None])
    return _by_pair(losses * _pair_weights(weighting, ours, wanted, same), same, pairs)


# ---- lists in a batch ----


def _lists(what: str, first: Tensor, second: Tensor, queries: Tensor) -> tuple[Tensor, ...]:
    """Both sides in float32 or wider, and which pairs (B, B) are of one query."""
    first, second = reductions.comparable(what, first, second, _FIX)
    reductions.require_shape(f"{what}: queries", queries, first.shape, _FIX)
    return first, second, queries[:, None] == queries[None, :]


def _diagonal(same: Tensor) -> Tensor:
    return torch.eye(len(same), dtype=torch.bool, device=same.device)


def _sums(values: Tensor, same: Tensor) -> Tensor:
    """The sum over each row's list. No matrix product: autocast would round it."""
    return torch.where(same, values[None, :], 0.0).sum(1)


def _log_shares(values: Tensor, among: Tensor) -> Tensor:
    """ln softmax of each row among the rows of its list."""
    return values - torch.where(among, values[None, :], -torch.inf).logsumexp(1)


def _by_list(values: Tensor, same: Tensor, counted: Tensor) -> Tensor:
    """The sum of values (B) over each list, then the mean over the lists that are counted; 0 without any."""
    firsts = ~(same & torch.ones_like(same).tril(-1)).any(1)
    kept = torch.where(counted, values, 0.0)
    return kept.sum() / (firsts & counted).sum().clamp(min=1)


def _by_pair(values: Tensor, same: Tensor, pairs: Tensor) -> Tensor:
    """The mean of values (B, B) over each list's pairs, then over the lists that have any."""
    counts = _sums(pairs.sum(1).to(values.dtype), same)
    rows = torch.where(pairs, values, 0.0).sum(1) / counts.clamp(min=1)
    return _by_list(rows, same, counts > 0)


def _above(what: str, targets: Tensor, scores: Tensor) -> Bool[Tensor, "batch batch"]:
    """Which pairs have their first target above the second; NaN is above nothing."""
    reductions.require_shape(f"{what}: targets", targets, scores.shape, _FIX)
    return targets[:, None] > targets[None, :]


# ---- weights of pairs ----


def _pair_weights(weighting: str, scores: Tensor, targets: Tensor, same: Tensor) -> Tensor:
    """(B, B), without a gradient."""
    if weighting == "uniform":
        return torch.ones_like(scores[:, None] - scores[None, :])
    if weighting not in ("lambda_rank", "ndcg_loss2", "ndcg_loss2_plus"):
        raise LimbeckError(
            f"weighting is {weighting!r}",
            "choices: uniform, lambda_rank, ndcg_loss2, ndcg_loss2_plus",
        )
    own, known = scores.detach(), ~targets.isnan()
    least = torch.where(same & known[None, :], targets[None, :], torch.inf).amin(1)
    gains = torch.where(known, targets - least, 0.0).detach()
    best = _sums(gains / _discount(_ranks(gains, same)), same)
    gains = gains / best.clamp(min=torch.finfo(gains.dtype).tiny)
    apart = (gains[:, None] - gains[None, :]).abs()
    ranks = _ranks(own, same)
    by_rank = (1 / _discount(ranks[:, None]) - 1 / _discount(ranks[None, :])).abs()
    if weighting == "lambda_rank":
        return apart * by_rank
    # Two candidates of one list have different ranks; of others and the diagonal nothing is read.
    gap = (ranks[:, None] - ranks[None, :]).abs().clamp(min=1)
    by_gap = 1 / _discount(gap) - 1 / _discount(gap + 1)
    return apart * (by_gap if weighting == "ndcg_loss2" else _MU * by_gap + by_rank)


def _ranks(values: Tensor, same: Tensor) -> Tensor:
    """1 for the greatest of each list; of equals the earlier comes first."""
    earlier = torch.ones_like(same).tril(-1)
    ahead = (values[None, :] > values[:, None]) | ((values[None, :] == values[:, None]) & earlier)
    return 1 + (same & ahead).sum(1).to(values.dtype)


def _discount(ranks: Tensor) -> Tensor:
    return torch.log2(1 + ranks)
