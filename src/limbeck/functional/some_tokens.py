"""Soft labels over a vocabulary of which a teacher's outputs hold some tokens only.

The first k tokens with the rest as one further outcome, or tokens sampled with their counts: what
storing needs is k or n numbers a position instead of a vocabulary's. Both sides are softened by one
temperature, and the teacher's is fixed when its outputs are made: p^(1/τ) of a rest is not known.
"""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from limbeck.functional.reductions import at_least_float32, require_positive, weighted_mean
from limbeck.support.errors import LimbeckError


def top_tokens(
    logits: Float[Tensor, "*batch vocabulary"], k: int, *, temperature: float | int = 1.0
) -> tuple[Integer[Tensor, "*batch k"], Float[Tensor, "*batch k"], Float[Tensor, "*batch"]]:
    """The k likeliest tokens: ids, their ln softmax(z/τ), and the logarithm of all others' together.

    The last is −inf where k is the whole vocabulary.

    Raises:
        LimbeckError: k is not between 1 and the vocabulary's size, or τ not above 0.
    """
    require_positive("temperature", temperature)
    if not 1 <= k <= logits.shape[-1]:
        raise LimbeckError(
            f"top_tokens: k is {k}, and the vocabulary has {logits.shape[-1]} tokens",
            "keep at least one token, and no more than there are",
        )
    logs = (at_least_float32(logits) / temperature).log_softmax(-1)
    kept, ids = logs.topk(k, dim=-1)
    # Summed over the others themselves: 1 − Σ has no digits left where little is left.
    tail = logs.scatter(-1, ids, float("-inf")).logsumexp(-1)
    return ids, kept, tail


def outcomes(
    logits: Float[Tensor, "*batch vocabulary"],
    ids: Integer[Tensor, "*batch k"],
    *,
    temperature: float | int = 1.0,
) -> Float[Tensor, "*batch outcomes"]:
    """ln softmax(z/τ) of some tokens, and behind them that of all others together."""
    logs = (at_least_float32(logits) / temperature).log_softmax(-1)
    tail = logs.scatter(-1, ids, float("-inf")).logsumexp(-1, keepdim=True)
    return torch.cat([logs.gather(-1, ids), tail], -1)


def topk_kl(
    student_logits: Float[Tensor, "batch vocabulary"],
    topk_ids: Integer[Tensor, "batch k"],
    topk_logprobs: Float[Tensor, "batch k"],
    tail_logprob: Float[Tensor, " batch"],
    *,
    temperature: float | int = 1.0,
    weights: Float[Tensor, " batch"] | None = None,
) -> Float[Tensor, ""]:
    """KL(P_T ‖ P_S) over k + 1 outcomes, the teacher's k likeliest tokens and all others together.

    P_S are the student's probabilities of the same outcomes, of softmax(z_S/τ). A lower bound of the KL
    over the vocabulary (the data-processing inequality), equal to it at k = V. Without the tail both
    sides would be renormalised, and a student is taught that the rest cannot be. τ is the temperature
    at which `top_tokens` made the teacher's numbers.

    Raises:
        LimbeckError: the temperature is not above 0.
    """
    require_positive("temperature", temperature)
    ours = outcomes(student_logits, topk_ids, temperature=temperature)
    theirs = at_least_float32(torch.cat([topk_logprobs, tail_logprob.unsqueeze(-1)], -1))
    share = theirs.exp()
    # Where the teacher leaves nothing both logarithms may be −inf.
    nothing = share == 0
    surprise = theirs.masked_fill(nothing, 0.0) - ours.masked_fill(nothing, 0.0)
    return weighted_mean((share * surprise).sum(-1), weights)


def sample_tokens(
    logits: Float[Tensor, "batch vocabulary"],
    n: int,
    *,
    temperature: float | int = 1.0,
    generator: torch.Generator | None = None,
) -> tuple[Integer[Tensor, "batch n"], Integer[Tensor, "batch n"]]:
    """n tokens sampled with replacement from softmax(z/τ): ids in ascending order, and counts.

    A token stands n times where it was sampled n times, its count at the first of them and 0 at the
    others, so that both have one shape for all positions; the counts of a position sum to n.

    Raises:
        LimbeckError: n is below 1, or τ not above 0.
    """
    require_positive("temperature", temperature)
    require_positive("n", n)
    shares = (at_least_float32(logits) / temperature).softmax(-1)
    return counted(torch.multinomial(shares, n, replacement=True, generator=generator))


def counted(
    drawn: Integer[Tensor, "*batch n"],
) -> tuple[Integer[Tensor, "*batch n"], Integer[Tensor, "*batch n"]]:
    """Sampled tokens in ascending order, and counts (as `sample_tokens` returns them)."""
    ids = drawn.sort(-1).values
    starts = torch.ones_like(ids, dtype=torch.bool)
    starts[..., 1:] = ids[..., 1:] != ids[..., :-1]
    # Which run of equal ids each place belongs to, then how long that run is.
    run = starts.long().cumsum(-1) - 1
    lengths = torch.zeros_like(ids).scatter_add_(-1, run, torch.ones_like(ids))
    return ids, torch.where(starts, lengths.gather(-1, run), 0)


def sampled_cross_entropy(
    student_logits: Float[Tensor, "batch vocabulary"],
    sampled_ids: Integer[Tensor, "batch n"],
    sampled_counts: Integer[Tensor, "batch n"],
    *,
    temperature: float | int = 1.0,
    weights: Float[Tensor, " batch"] | None = None,
) -> Float[Tensor, ""]:
    """−Σ_i (c_i / Σ c)·ln softmax(z_S/τ)_i over the sampled tokens, mean over the batch.

    Random Sampling KD (Anshumann et al. 2025) with the teacher's distribution as the proposal, whose
    importance weights p/q are 1: E[c_i / n] is the teacher's probability of token i, so that value and
    gradient are unbiased estimates of `soft_cross_entropy`'s, where those of the likeliest k alone are
    not. τ is the temperature at which `sample_tokens` drew, on both sides; the paper's own τ is that of the
    proposal alone, and 1 in its experiments. A position without any count adds 0.

    Raises:
        LimbeckError: the temperature is not above 0.
    """
    require_positive("temperature", temperature)
    found = sampled_surprises(student_logits, sampled_ids, sampled_counts, temperature=temperature)
    return weighted_mean(found, weights)


def sampled_surprises(
    student_logits: Float[Tensor, "batch vocabulary"],
    sampled_ids: Integer[Tensor, "batch n"],
    sampled_counts: Integer[Tensor, "batch n"],
    *,
    temperature: float | int = 1.0,
) -> Float[Tensor, " batch"]:
    """As `sampled_cross_entropy`, of each row."""
    logs = (at_least_float32(student_logits) / temperature).log_softmax(-1)
    counts = sampled_counts.to(logs.dtype)
    found = logs.gather(-1, sampled_ids).masked_fill(sampled_counts == 0, 0.0)
    totals = counts.sum(-1).clamp(min=1)
    return -(counts * found).sum(-1) / totals
