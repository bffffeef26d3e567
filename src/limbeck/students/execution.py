"""How the arithmetic of a run is carried out: the type of matrix products, the attention kernel.

Open settings (`auto`) are resolved here, once, when
the models and a batch are at hand; the run's record keeps the result, and a continued run keeps
to it.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import Request, capture
from limbeck.activations.compat import attention_of
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import accelerator, agreed

logger = logging.getLogger(__name__)

Precision = Literal["auto", "fp32", "bf16"]
Attention = Literal[
    "auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"
]

# How often a kernel is timed, and how much faster than the model's own it has to be.
_REPEATS = 3
_WORTH_IT = 0.95
# The kernels differ in how they handle a row of scores, not in how many examples there are.
_EXAMPLES = 8


def resolve_precision(wanted: Precision) -> Literal["fp32", "bf16"]:
    """`auto`: bf16 where the device multiplies it in hardware, fp32 elsewhere."""
    if wanted != "auto":
        return wanted
    return "bf16" if _has_bf16() else "fp32"


def _has_bf16() -> bool:
    if found := accelerator():
        # Emulated bf16 (before Ampere) is slower than fp32.
        return found.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    has = torch.cpu.get_capabilities()
    return bool(has.get("avx512_bf16") or has.get("amx_bf16") or has.get("bf16"))


def warn_of_emulated_bf16(precision: str) -> None:
    """Warn, once per process, if bf16 is requested on a CPU without such instructions."""
    if precision == "bf16" and accelerator() is None and not _has_bf16():
        _warn_once()


@cache
def _warn_once() -> None:
    logger.warning(
        "precision=bf16: this processor has no bf16 instructions; a matrix product takes %.1f times as long as in "
        "fp32 (measured now), so precision=fp32 is faster (precision=auto, in recipes, chooses it)",
        _seconds(torch.bfloat16) / _seconds(torch.float32),
    )


def _seconds(dtype: torch.dtype) -> float:
    """Of a product of 256 × 256 numbers."""
    numbers = torch.ones(256, 256, dtype=dtype)
    return _fastest(lambda: numbers @ numbers)


def resolve_attention(
    model: PreTrainedModel,
    wanted: str,
    batch: Mapping[str, Tensor],
    *,
    precision: Literal["fp32", "bf16"],
    setting: str,
) -> str:
    """Give the model its attention implementation and return its name.

    Args:
        wanted: an `Attention`. `auto` keeps the model's own, except for bf16 on CPU: there the backward
            pass of the fused kernel can cost more than it saves, and a short measurement on `batch`
            decides.
        batch: rows of the task, as the model takes them.
        setting: the model's name in the message: student or teacher.

    Raises:
        LimbeckError: the model or the machine has no such implementation.
    """
    own = attention_of(model)
    if wanted != "auto":
        give_attention(model, wanted, "attention", setting)
        return wanted
    if model.device.type != "cpu" or precision != "bf16" or own != "sdpa":
        return own
    few = {name: value[:_EXAMPLES] for name, value in batch.items()}
    seconds = {}
    for name in (own, "eager"):
        give_attention(model, name, "attention", setting)
        seconds[name] = _fastest(lambda: _pass(model, few))
    chosen = agreed("eager" if seconds["eager"] < _WORTH_IT * seconds[own] else own)
    give_attention(model, chosen, "attention", setting)
    return chosen


def give_attention(model: PreTrainedModel, name: str, setting: str, side: str) -> None:
    """Make the model compute attention by `name`.

    Raises:
        LimbeckError: it, or the machine, has no such implementation; names the `setting` and the `side`.
    """
    try:
        model.set_attn_implementation(name)
    except (ValueError, ImportError) as error:
        raise LimbeckError(
            f"{setting}={name}: it does not run in the {side} ({type(model).__name__}): {error}",
            f"leave {setting} out, or choose eager or sdpa",
        ) from None
    if attention_of(model) != name:
        raise LimbeckError(
            f"{setting}={name}: the {side}, a {type(model).__name__}, has one attention of its own and takes no other",
            f"leave {setting} out",
        )


def _fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of a few runs, after one that warms up."""
    work()
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _pass(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> None:
    """Forward in bf16, and backward where the model learns; leaves no gradient and no random trace."""
    learns = any(weight.requires_grad for weight in model.parameters())
    with torch.random.fork_rng(devices=[]):
        with torch.autocast("cpu", torch.bfloat16), nullcontext() if learns else torch.no_grad():
            logits = capture(model, batch, Request.of_logits()).logits
        if learns:
            assert logits is not None  # requested
            torch.autograd.backward(logits.float().mean())
            model.zero_grad(set_to_none=True)
