"""The stored part of a teacher's distribution over a vocabulary, instead of its logits: some tokens and their numbers.

The likeliest k with the rest as one further outcome, or n sampled ones with their counts. The sampled tokens of
an example depend on its number alone, so that a teacher in another batch or process samples the same ones.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.autograd.function import once_differentiable

from limbeck.functional import labelled_positions, reductions
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import send

_CACHED = 2**20
"""Logits in one piece on a CPU, a few megabytes."""

# Soft labels over a vocabulary of which a teacher's outputs hold some tokens only.
#
# The first k tokens with the rest as one further outcome, or tokens sampled with their counts: what
# storing needs is k or n numbers a position instead of a vocabulary's. Both sides are softened by one
# temperature, and the teacher's is fixed when its outputs are made: p^(1/τ) of a rest is not known.


def top_tokens(
    logits: Float[Tensor, "*batch vocabulary"], k: int, *, temperature: float | int = 1.0
) -> tuple[Integer[Tensor, "*batch k"], Float[Tensor, "*batch k"], Float[Tensor, "*batch"]]:
    """The k likeliest tokens: ids, their ln softmax(z/τ), and the logarithm of all others' together.

    The last is −inf if k is the complete vocabulary.

    Raises:
        LimbeckError: k is not between 1 and the vocabulary's size, or τ not above 0.
    """
    if not 1 <= k <= logits.shape[-1]:
        raise LimbeckError(
            f"top_tokens: k is {k}, and the vocabulary has {logits.shape[-1]} tokens",
            "keep at least one token, and no more than there are",
        )
    logs = reductions.at_temperature(logits, temperature).log_softmax(-1)
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
    """ln softmax(z/τ) of some different tokens, and behind them the value of all others together."""
    found: Tensor = _Outcomes.apply(logits, ids, temperature)  # type: ignore[no-untyped-call]
    return found


class _Outcomes(torch.autograd.Function):
    """Outcomes in pieces that fit a cache; for the gradient only the logits and the outcomes are kept.

    Of another token it is p/p_rest·g_rest − p·Σg, of an own one g − p·Σg. Rows whose outcomes get no gradient get none.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, temperature: float | int) -> Tensor:
        found = []
        for rows, own in _in_pieces(logits, ids):
            scaled = reductions.at_temperature(rows, temperature)
            rest = scaled.scatter(-1, own, -torch.inf).logsumexp(-1, keepdim=True)
            found.append(torch.cat([scaled.gather(-1, own), rest], -1))
        values = torch.cat(found)
        total = values.logsumexp(-1, keepdim=True)
        ctx.temperature, ctx.shape = temperature, (*ids.shape[:-1], values.shape[-1])
        ctx.save_for_backward(logits, ids, values, total)
        return (values - total).view(ctx.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        logits, ids, values, total = ctx.saved_tensors
        found = torch.empty_like(logits)
        sides = found, logits, ids, upstream, values, total
        for place, rows, own, up, value, whole in _in_pieces(*sides):
            inner = (up - (value - whole).exp() * up.sum(-1, keepdim=True)) / ctx.temperature
            gradient = (
                (reductions.at_temperature(rows, ctx.temperature) - value[:, -1:])
                .exp_()
                .mul_(inner[:, -1:])
            )
            gradient.scatter_(-1, own, inner[:, :-1])
            place.copy_(gradient.masked_fill_(~up.any(-1, keepdim=True), 0))
        return found, None, None


def _in_pieces(*sides: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Rows of all sides, together; the first has the vocabulary."""
    logits = sides[0]
    piece = labelled_positions.PIECE
    rows = max(1, (min(piece, _CACHED) if logits.is_cpu else piece) // logits.shape[-1])
    flat = (side.flatten(0, -2).split(rows) for side in sides)
    return zip(*flat, strict=True)


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
    ours = outcomes(student_logits, topk_ids, temperature=temperature)
    theirs = reductions.at_least_float32(torch.cat([topk_logprobs, tail_logprob.unsqueeze(-1)], -1))
    share = theirs.exp()
    # Where the teacher leaves nothing both logarithms may be −inf.
    nothing = share == 0
    surprise = theirs.masked_fill(nothing, 0.0) - ours.masked_fill(nothing, 0.0)
    return reductions.weighted_mean((share * surprise).sum(-1), weights)


def sample_tokens(
    logits: Float[Tensor, "batch vocabulary"],
    n: int,
    *,
    temperature: float | int = 1.0,
    generator: torch.Generator | None = None,
) -> tuple[Integer[Tensor, "batch n"], Integer[Tensor, "batch n"]]:
    """n tokens sampled with replacement from softmax(z/τ): ids in ascending order, and counts.

    A token that was sampled n times is there n times, its count at the first of them and 0 at the
    others, so that both have one shape for all positions; the counts of a position sum to n.

    Raises:
        LimbeckError: n is below 1, or τ not above 0.
    """
    reductions.require_positive("n", n)
    shares = reductions.at_temperature(logits, temperature).softmax(-1)
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
    gradient are unbiased estimates of `soft_cross_entropy`'s; the likeliest k alone give biased
    ones. τ is the temperature at which `sample_tokens` drew, on both sides; the paper's own τ is only the
    proposal's, and 1 in its experiments. A position without any count adds 0.

    Raises:
        LimbeckError: the temperature is not above 0.
    """
    found = sampled_surprises(student_logits, sampled_ids, sampled_counts, temperature=temperature)
    return reductions.weighted_mean(found, weights)


def sampled_surprises(
    student_logits: Float[Tensor, "batch vocabulary"],
    sampled_ids: Integer[Tensor, "batch n"],
    sampled_counts: Integer[Tensor, "batch n"],
    *,
    temperature: float | int = 1.0,
) -> Float[Tensor, " batch"]:
    """As `sampled_cross_entropy`, of each row."""
    logs = reductions.at_temperature(student_logits, temperature).log_softmax(-1)
    counts = sampled_counts.to(logs.dtype)
    found = logs.gather(-1, sampled_ids).masked_fill(sampled_counts == 0, 0.0)
    totals = counts.sum(-1).clamp(min=1)
    return -(counts * found).sum(-1) / totals


How = Literal["top", "sample"]
_WORD = re.compile(r"(top|sample)([1-9]\d*)(?:@(\d+(?:\.\d+)?(?:e[+-]?\d+)?))?")
CHOICES = "topK, the K likeliest tokens, or sampleN, N sampled ones; @T behind it for a temperature"
"""The choices of a setting, for messages."""
_SEED = 20250
_NOTHING = -1e4
_OF_COUNTS = (labelled_positions.cross_entropies, labelled_positions.divergences)
"""Distances that are known without the teacher's probability of a sampled token, but for its entropy."""


@dataclass(frozen=True)
class KeptTokens:
    """How much is kept.

    Attributes:
        how: the likeliest tokens and the rest together, or a sample of all.
        count: of tokens kept at a position.
        temperature: by which logits were divided; p^(1/τ) of a rest is not known, so it is fixed.
    """

    how: How
    count: int
    temperature: float = 1.0

    @classmethod
    def parse(cls, word: str, temperature: float | None = None) -> "KeptTokens":
        """From `top64`, `sample64` or `top64@2`.

        Raises:
            LimbeckError: another word, or a temperature that is not above 0.
        """
        found = _WORD.fullmatch(word)
        if found is None or (found[3] and float(found[3]) <= 0):
            raise LimbeckError(f"tokens: unknown {word!r}", f"choices: {CHOICES}")
        own = 1.0 if temperature is None else temperature
        return cls(cast(How, found[1]), int(found[2]), float(found[3] or own))

    def __str__(self) -> str:
        short = f"{self.temperature:g}"
        exact = short if float(short) == self.temperature else repr(float(self.temperature))
        own = "" if self.temperature == 1 else f"@{exact}"
        return f"{self.how}{self.count}{own}"

    def of(self, logits: Tensor, numbers: Sequence[int]) -> "PartialLogits":
        """The stored part of logits (B, N, V) of examples with these numbers.

        Raises:
            LimbeckError: more tokens are to be kept than there are.
        """
        vocabulary = logits.shape[-1]
        if self.how == "top" and self.count > vocabulary:
            raise LimbeckError(
                f"tokens: {self}: k is {self.count}, and the vocabulary has {vocabulary} tokens",
                f"keep top{vocabulary} or fewer",
            )
        if self.how == "top":
            ids, values, rest = top_tokens(logits, self.count, temperature=self.temperature)
            # A finite number without probability, which can be stored.
            values, rest = (logs.clamp(min=_NOTHING) for logs in (values, rest))
            return PartialLogits(self, vocabulary, ids, values, rest)
        logs = (logits.double() / self.temperature).log_softmax(-1)
        entropy = -(logs.exp() * logs.masked_fill(logs == float("-inf"), 0.0)).sum(-1)
        upto = logs.exp().cumsum(-1)
        drawn = [_uniform(number, logits.shape[1], self.count) for number in numbers]
        points = torch.from_numpy(np.stack(drawn)).to(upto.device) * upto[..., -1:]
        ids = torch.searchsorted(upto, points, right=True).clamp(max=vocabulary - 1)
        return PartialLogits(self, vocabulary, *counted(ids), entropy.float())


def _uniform(number: int, positions: int, count: int) -> np.ndarray:
    """Numbers in [0, 1) for one example, (positions, count): a position's do not depend on later positions."""
    generator = np.random.Generator(np.random.Philox(key=[_SEED, number % 2**63]))
    return generator.random((positions, count))


@dataclass(frozen=True)
class PartialLogits:
    """Tokens that are kept of logits (…, V).

    Attributes:
        kept: by which rule.
        vocabulary: V.
        ids: of the tokens, (…, k), integers.
        values: of the likeliest, ln softmax(z/τ); of sampled ones, how often each was sampled; (…, k).
        rest: for the likeliest, the logarithm of all others' probability; for sampled ones the entropy of the
            complete distribution, which a KL divergence leaves off; (…).
    """

    kept: KeptTokens
    vocabulary: int
    ids: Tensor
    values: Tensor
    rest: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the logits."""
        return (*self.ids.shape[:-1], self.vocabulary)

    def on(self, device: torch.device) -> "PartialLogits":
        """On a device."""
        return replace(
            self,
            ids=send(self.ids, device),
            values=send(self.values, device),
            rest=send(self.rest, device),
        )

    def distances(
        self, student_logits: Tensor, distance: labelled_positions.Distance, valid: Tensor
    ) -> Tensor:
        """A distance from student logits (B, N, V) at each true position (B, N): (positions,).

        For the likeliest tokens over k + 1 outcomes, all others as one: at k = V the vocabulary's, for an
        f-divergence at most that. For sampled ones an unbiased estimate of the vocabulary's cross-entropy or KL
        divergence. Anshumann et al. (2025) take the KL divergence from the sampled shares c/n; it has the same
        gradient, and a value that is larger by H(P_T) − H(c/n), which is no estimate of the vocabulary's. Their
        tail for the likeliest tokens, the "ghost token", is the one here.

        Raises:
            LimbeckError: sampled tokens, and a distance that reads the teacher's probability of each.
        """
        ids, own = self.ids.long(), self.kept.temperature
        if self.kept.how == "top":
            ours = outcomes(student_logits, ids, temperature=own)[valid]
            theirs = torch.cat([self.values, self.rest.unsqueeze(-1)], -1)[valid]
            return distance(ours, theirs, 1.0)
        if distance not in _OF_COUNTS:
            raise LimbeckError(
                "sampled tokens: this divergence needs the teacher's probability of each, and counts are kept",
                "keep the likeliest tokens (topK), or compare by soft_kl",
            )
        each = partial(sampled_surprises, temperature=own)
        found = labelled_positions.at_positions(each, valid, student_logits, ids, self.values)
        return found - self.rest[valid] if distance is labelled_positions.divergences else found


def partial_soft_label(
    student_logits: Tensor,
    teacher: PartialLogits,
    mask: Tensor,
    *,
    distance: labelled_positions.Distance,
    temperature: float = 1.0,
    scale_by_t2: bool = False,
) -> Tensor:
    """The soft label of logits (B, N, V) from the stored part of the teacher's, at the positions of a mask (B, N).

    Example means, then the batch's, as `token_soft_kl`.

    Raises:
        LimbeckError: other shapes, another temperature than that at which tokens were kept, or a distance that has no
            estimate from sampled tokens.
    """
    labelled_positions.require_one_vocabulary(student_logits.shape, teacher.shape)
    own = teacher.kept.temperature
    if temperature != own:
        raise LimbeckError(
            f"soft label: its temperature is {temperature:g}, and the teacher's tokens were kept at {own:g}",
            "the probability of the other tokens at another temperature is unknown: use the same one",
        )
    valid = mask.bool()

    each = teacher.distances(student_logits, distance, valid)
    return labelled_positions.mean_by_example(each * temperature**2 if scale_by_t2 else each, valid)
