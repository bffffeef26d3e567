"""Hard and soft labels at positions of a text: classes of some tokens, and where a span begins and ends.

Serve tagging, masked tokens, target tokens and extractive question answering. With a large vocabulary's
logits only the positions that count are copied, and the device is read for their number; the
losses of spans wait for nothing.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.autograd.function import once_differentiable

from limbeck.functional import reductions
from limbeck.functional.labels import (
    NO_LABEL,
    ClassWeights,
    class_losses,
    has_label,
    mean_of_labelled,
)
from limbeck.support.errors import LimbeckError

Distance = Callable[[Tensor, Tensor, float | int], Tensor]
"""Of student's and teacher's logits (…, C) at a temperature: a value for each row."""

# Logits in one piece. Larger pieces need more memory, and are slower on a CPU, whose cache they do not fit.
PIECE = 2**23


def token_cross_entropy(
    logits: Float[Tensor, "batch tokens classes"],
    labels: Integer[Tensor, "batch tokens"],
    *,
    class_weights: ClassWeights = None,
    gamma: float | int = 0.0,
) -> Float[Tensor, ""]:
    """−log softmax(z)[label], mean over an example's labeled tokens, then over the examples that have one.

    The label −100 means unlabeled. Unlike a soft label's, the mean leaves examples without any label out:
    the student's error on them is unknown. `class_weights` and `gamma` as for `hard_cross_entropy`.

    Raises:
        LimbeckError: γ is below 0.
    """
    valid = labels != NO_LABEL
    if class_weights is None and not gamma:
        losses = at_positions(_surprises, valid, logits, labels)
    else:
        losses = class_losses(logits[valid], labels[valid], class_weights, gamma)
    labelled = valid.any(1).sum().clamp(min=1)
    return mean_by_example(losses, valid) * (len(valid) / labelled)


def token_soft_cross_entropy(
    student_logits: Float[Tensor, "batch tokens classes"],
    teacher_logits: Float[Tensor, "batch tokens classes"],
    mask: reductions.TokenMask,
    *,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
) -> Float[Tensor, ""]:
    """`soft_cross_entropy` of each token that the mask names: an example's mean, then the batch's.

    Raises:
        LimbeckError: the shapes differ, or the temperature is not above 0.
    """
    return of_tokens(
        cross_entropies, student_logits, teacher_logits, mask, temperature, scale_by_t2=scale_by_t2
    )


def token_soft_kl(
    student_logits: Float[Tensor, "batch tokens classes"],
    teacher_logits: Float[Tensor, "batch tokens classes"],
    mask: reductions.TokenMask,
    *,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
) -> Float[Tensor, ""]:
    """`soft_kl` of each token that the mask names: an example's mean, then the batch's.

    Raises:
        LimbeckError: the shapes differ, or the temperature is not above 0.
    """
    return of_tokens(
        divergences, student_logits, teacher_logits, mask, temperature, scale_by_t2=scale_by_t2
    )


def token_jsd(
    student_logits: Float[Tensor, "batch tokens classes"],
    teacher_logits: Float[Tensor, "batch tokens classes"],
    mask: reductions.TokenMask,
    *,
    beta: float | int = 0.5,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
) -> Float[Tensor, ""]:
    """The generalized Jensen-Shannon divergence of each token that the mask names: an example's mean, then the batch's.

    β·KL(P_T ‖ M) + (1 − β)·KL(P_S ‖ M) with M = β·P_T + (1 − β)·P_S (Agarwal et al. 2024, Eq. 1). That is 0 at both
    ends; there it is the limit, divided by β or 1 − β: KL(P_T ‖ P_S) at β = 0, KL(P_S ‖ P_T) at β = 1.

    Raises:
        LimbeckError: the shapes differ, the temperature is not above 0, or β is not from 0 to 1.
    """
    if not 0 <= beta <= 1:
        raise LimbeckError(f"token_jsd: β is {beta}", "choose a number from 0 to 1")
    distance = partial(jensen_shannon, beta=beta)
    return of_tokens(
        distance, student_logits, teacher_logits, mask, temperature, scale_by_t2=scale_by_t2
    )


def token_skewed_kl(
    student_logits: Float[Tensor, "batch tokens classes"],
    teacher_logits: Float[Tensor, "batch tokens classes"],
    mask: reductions.TokenMask,
    *,
    skew: float | int = 0.1,
    reverse: bool = False,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
) -> Float[Tensor, ""]:
    """The skewed KL divergence of each token that the mask names: an example's mean, then the batch's.

    KL(P_T ‖ α·P_T + (1 − α)·P_S) with the skew α, reversed KL(P_S ‖ α·P_S + (1 − α)·P_T) (DistiLLM, Ko et al. 2024).

    Raises:
        LimbeckError: the shapes differ, the temperature is not above 0, or α is not from 0 to below 1.
    """
    if not 0 <= skew < 1:
        raise LimbeckError(f"token_skewed_kl: α is {skew}", "choose a number from 0 to below 1")
    distance = partial(skewed, skew=skew, reverse=reverse)
    return of_tokens(
        distance, student_logits, teacher_logits, mask, temperature, scale_by_t2=scale_by_t2
    )


def span_cross_entropy(
    logits: Float[Tensor, "batch tokens 2"],
    starts: Integer[Tensor, " batch"],
    ends: Integer[Tensor, " batch"],
    mask: reductions.TokenMask,
) -> Float[Tensor, ""]:
    """The mean of start's and end's cross-entropy, each a softmax over the tokens that the mask names.

    Devlin et al. 2019, §4.2. A position of −100 is missing: each side's mean is over the examples that
    have one.
    """
    among = _among(logits, mask)
    losses = [
        mean_of_labelled(
            F.cross_entropy(among[..., side], place, reduction="none"), has_label(place)
        )
        for side, place in enumerate((starts, ends))
    ]
    return torch.stack(losses).mean()


def span_soft_cross_entropy(
    student_logits: Float[Tensor, "batch tokens 2"],
    teacher_logits: Float[Tensor, "batch tokens 2"],
    mask: reductions.TokenMask,
    *,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
) -> Float[Tensor, ""]:
    """The mean of the start's and the end's soft cross-entropy, over the tokens that the mask names.

    Raises:
        LimbeckError: the shapes differ, or the temperature is not above 0.
    """
    return _of_sides(
        cross_entropies, student_logits, teacher_logits, mask, temperature, scale_by_t2=scale_by_t2
    )


def span_soft_kl(
    student_logits: Float[Tensor, "batch tokens 2"],
    teacher_logits: Float[Tensor, "batch tokens 2"],
    mask: reductions.TokenMask,
    *,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
) -> Float[Tensor, ""]:
    """The mean of the start's and the end's KL, over the tokens that the mask names.

    Raises:
        LimbeckError: the shapes differ, or the temperature is not above 0.
    """
    return _of_sides(
        divergences, student_logits, teacher_logits, mask, temperature, scale_by_t2=scale_by_t2
    )


def require_one_vocabulary(student: Sequence[int], teacher: Sequence[int]) -> None:
    """Raise LimbeckError unless both sides' logits have one shape."""
    fix = "give both models one label set, or one vocabulary"
    reductions.require_same_shape("soft label", student, teacher, fix)


def of_tokens(
    distance: Distance,
    student_logits: Float[Tensor, "batch tokens classes"],
    teacher_logits: Float[Tensor, "batch tokens classes"],
    mask: reductions.TokenMask,
    temperature: float | int,
    *,
    scale_by_t2: bool,
) -> Float[Tensor, ""]:
    """A distance of two distributions at each token of the mask: an example's mean, then the batch's."""
    require_one_vocabulary(student_logits.shape, teacher_logits.shape)
    valid = mask.bool()

    def of_rows(ours: Tensor, theirs: Tensor) -> Tensor:
        return distance(ours, theirs, temperature)

    each = at_positions(of_rows, valid, student_logits, teacher_logits)
    return mean_by_example(each * temperature**2 if scale_by_t2 else each, valid)


def _of_sides(
    distance: Distance,
    student_logits: Float[Tensor, "batch tokens 2"],
    teacher_logits: Float[Tensor, "batch tokens 2"],
    mask: reductions.TokenMask,
    temperature: float | int,
    *,
    scale_by_t2: bool,
) -> Float[Tensor, ""]:
    """A distance of two distributions over the mask's tokens: the mean over start, end and batch.

    An example without a candidate contributes 0.
    """
    require_one_vocabulary(student_logits.shape, teacher_logits.shape)
    ours, theirs = _among(student_logits, mask), _among(teacher_logits, mask)
    sides = [distance(ours[..., side], theirs[..., side], temperature) for side in (0, 1)]
    each = torch.stack(sides).masked_fill(~mask.bool().any(1), 0)
    return (each * temperature**2 if scale_by_t2 else each).mean()


def at_positions(
    each: Callable[..., Tensor], valid: Bool[Tensor, "batch tokens"], logits: Tensor, *sides: Tensor
) -> Float[Tensor, "positions *values"]:
    """The value, or values, of each true position, by rows of logits (P, C) and of the other sides (P, …).

    A large vocabulary's logits are taken in pieces. Their selected rows and logarithms would need several times the
    memory of the logits until the backward pass. So each piece's gradients are computed with its values.
    """
    flat = [side.flatten(0, 1) for side in (valid, logits, *sides)]
    piece = max(1, PIECE // logits.shape[-1])
    if len(flat[0]) <= piece:
        return each(*(side[flat[0]] for side in flat[1:]))
    found: Tensor = _InPieces.apply(each, piece, *flat)  # type: ignore[no-untyped-call]
    return found


class _InPieces(torch.autograd.Function):
    """Values of rows, each of which depends on its own row alone, with their gradients.

    In the backward pass a row's gradient is multiplied by its value's. Nothing is computed twice, and the kept
    gradients are as large as the one that the logits get in any case.
    """

    @staticmethod
    def forward(
        ctx: Any, each: Callable[..., Tensor], piece: int, valid: Tensor, *sides: Tensor
    ) -> Tensor:
        # In fp16 a gradient below 6e-8 is 0 before the loss scale has multiplied it.
        sides = tuple(side.float() if side.dtype == torch.float16 else side for side in sides)
        needed = [place for place, need in enumerate(ctx.needs_input_grad[3:]) if need]
        gradients = [torch.zeros_like(sides[place]) for place in needed]
        values = []
        for start in range(0, len(valid), piece):
            part = slice(start, start + piece)
            rows = [side[part][valid[part]] for side in sides]
            leaves = [rows[place].requires_grad_() for place in needed]
            with torch.set_grad_enabled(bool(needed)):
                found = each(*rows)
            if needed:
                own = torch.autograd.grad(found, leaves, torch.ones_like(found))
                for gradient, some in zip(gradients, own, strict=True):
                    gradient[part][valid[part]] = some
            values.append(found.detach())
        ctx.needed = needed
        ctx.save_for_backward(valid, *gradients)
        return torch.cat(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        valid, *gradients = ctx.saved_tensors
        factors = upstream.new_zeros(len(valid), 1)
        factors[valid] = upstream.unsqueeze(-1)
        found: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        for place, gradient in zip(ctx.needed, gradients, strict=True):
            found[3 + place] = gradient * factors.to(gradient.dtype)
        return tuple(found)


def _surprises(
    logits: Float[Tensor, "positions classes"], labels: Integer[Tensor, " positions"]
) -> Float[Tensor, " positions"]:
    return F.cross_entropy(reductions.at_least_float32(logits), labels, reduction="none")


def cross_entropies(
    student: Float[Tensor, "*batch classes"],
    teacher: Float[Tensor, "*batch classes"],
    temperature: float | int,
) -> Float[Tensor, "*batch"]:
    """−Σ_c p_T·log p_S of each row."""
    ours, theirs = _log_shares(student, temperature), _log_shares(teacher, temperature)
    shares = theirs.exp()
    return (shares * -ours.masked_fill(shares == 0, 0)).sum(-1)


def divergences(
    student: Float[Tensor, "*batch classes"],
    teacher: Float[Tensor, "*batch classes"],
    temperature: float | int,
) -> Float[Tensor, "*batch"]:
    """Σ_c p_T·(log p_T − log p_S) of each row."""
    ours, theirs = _log_shares(student, temperature), _log_shares(teacher, temperature)
    shares = theirs.exp()
    # A token that is ruled out has a logarithm of −inf on both sides and a share of 0.
    nothing = shares == 0
    # Not the cross-entropy less the entropy: near the teacher their difference has no digits left.
    surprise = theirs.masked_fill(nothing, 0) - ours.masked_fill(nothing, 0)
    return (shares * surprise).sum(-1)


def jensen_shannon(
    student: Float[Tensor, "*batch classes"],
    teacher: Float[Tensor, "*batch classes"],
    temperature: float | int,
    *,
    beta: float | int,
) -> Float[Tensor, "*batch"]:
    """As `token_jsd` of each row."""
    if beta == 0:
        return divergences(student, teacher, temperature)
    if beta == 1:
        return divergences(teacher, student, temperature)
    ours, theirs = _log_shares(student, temperature), _log_shares(teacher, temperature)
    shares = (1 - beta) * ours.exp(), beta * theirs.exp()
    theirs, ours, mixture = _mixed(theirs, ours, beta)
    surprises = [(side - mixture).masked_fill(side.isneginf(), 0) for side in (ours, theirs)]
    return (shares[0] * surprises[0] + shares[1] * surprises[1]).sum(-1)


def skewed(
    student: Float[Tensor, "*batch classes"],
    teacher: Float[Tensor, "*batch classes"],
    temperature: float | int,
    *,
    skew: float | int,
    reverse: bool,
) -> Float[Tensor, "*batch"]:
    """As `token_skewed_kl` of each row."""
    one, other = (student, teacher) if reverse else (teacher, student)
    if skew == 0:
        return divergences(other, one, temperature)
    one, other = _log_shares(one, temperature), _log_shares(other, temperature)
    shares = one.exp()
    one, _, mixture = _mixed(one, other, skew)
    return (shares * (one - mixture).masked_fill(one.isneginf(), 0)).sum(-1)


def _mixed(
    one: Float[Tensor, "*batch classes"], other: Float[Tensor, "*batch classes"], share: float | int
) -> tuple[Tensor, Tensor, Tensor]:
    """Logarithms of two distributions and of share·one + (1 − share)·other, with 0 < share < 1."""
    # For a token that both rule out even the gradient of the mixture has no value.
    nothing = one.isneginf() & other.isneginf()
    one, other = one.masked_fill(nothing, 0), other.masked_fill(nothing, 0)
    return one, other, torch.logaddexp(one + math.log(share), other + math.log1p(-share))


def _log_shares(
    logits: Float[Tensor, "*batch classes"], temperature: float | int
) -> Float[Tensor, "*batch classes"]:
    return reductions.at_temperature(logits, temperature).log_softmax(-1)


def _among(
    logits: Float[Tensor, "batch tokens 2"], mask: reductions.TokenMask
) -> Float[Tensor, "batch tokens 2"]:
    """The logits with −inf where no span may begin or end."""
    return reductions.at_least_float32(logits).masked_fill(~mask.bool().unsqueeze(-1), -torch.inf)


def mean_by_example(
    values: Float[Tensor, " positions"], valid: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, ""]:
    """The values of the true positions, row by row: each example's mean, then the mean of all examples.

    An example without a valid position contributes 0 and still counts.
    """
    counts = valid.sum(1)
    rows = valid.nonzero()[:, 0]
    return (values / counts[rows].clamp(min=1)).sum() / len(valid)
