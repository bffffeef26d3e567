"""Size and speed of a model: parameters, FLOPs of one example, latency of one batch.

Measuring leaves the model as it is and needs no data: the inputs
are random ids sampled from the vocabulary that its config names (or random pixels).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from limbeck.evaluation.architecture import once_for_each
from limbeck.records import Latency
from limbeck.support.errors import LimbeckError


class Pixels(NamedTuple):
    """Size of an image."""

    height: int
    width: int


Size = int | Pixels
"""Of one example: tokens of a text, or pixels of an image."""


class ParameterCount(NamedTuple):
    """Numbers of parameters; a tensor shared by several modules counts once."""

    total: int
    embedding: int
    """Those in tables looked up by index (`nn.Embedding`): words, positions, token types."""


def count_parameters(model: nn.Module) -> ParameterCount:
    """All parameters of a model, and those of its embedding tables."""
    embedding = {
        id(weight): weight.numel()
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for weight in module.parameters(recurse=False)
    }
    # parameters() lists a shared tensor once.
    return ParameterCount(
        total=sum(weight.numel() for weight in model.parameters()),
        embedding=sum(embedding.values()),
    )


def random_inputs(
    model: PreTrainedModel, tokens: Size, batch_size: int = 1, seed: int = 0
) -> dict[str, Tensor]:
    """A batch that the model's config alone makes possible: ids and mask (B, N), or pixels.

    Every row has `tokens` real tokens. An end-of-sequence id, where the config names one, stands
    last and nowhere else, as the classification heads of T5 and BART demand. Models that generate
    with an encoder and a decoder get one target token. Vision models read an image of that size, or
    of their configuration's where `tokens` is a number.
    """
    generator = torch.Generator().manual_seed(seed)
    config = model.config.get_text_config() if _reads_text(model) else model.config
    if not _reads_text(model):
        size = tokens if isinstance(tokens, Pixels) else config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        pixels = torch.randn(batch_size, config.num_channels, height, width, generator=generator)
        return {model.main_input_name: pixels.to(model.device, model.dtype)}
    assert isinstance(tokens, int)
    end = getattr(config, "eos_token_id", None)
    end = end[0] if isinstance(end, list | tuple) else end
    usable = torch.arange(config.vocab_size)
    for special in (end, getattr(config, "pad_token_id", None)):
        if special is not None:
            usable = usable[usable != special]
    ids = usable[torch.randint(len(usable), (batch_size, tokens), generator=generator)]
    if end is not None and 0 <= end < config.vocab_size:
        ids[:, -1] = end
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if getattr(config, "is_encoder_decoder", False) and model.can_generate():
        start = getattr(config, "decoder_start_token_id", None) or 0
        batch["decoder_input_ids"] = torch.full((batch_size, 1), start)
    return {name: tensor.to(model.device) for name, tensor in batch.items()}


def flops_per_example(model: PreTrainedModel, tokens: Size) -> int:
    """FLOPs of one forward pass over one example of that size; a multiply-add counts 2.

    Matrix products and convolutions are counted, attention's two products included and in full
    also where a causal mask makes half of them idle; element-wise work is not. Raises LimbeckError
    when the model cannot read that many tokens.
    """
    return once_for_each(model, ("example", tokens), lambda: _flops_per_example(model, tokens))


def _flops_per_example(model: PreTrainedModel, tokens: Size) -> int:
    counter = FlopCounterMode(display=False)
    inputs = random_inputs(model, tokens)
    # torch's counter has no formula for the CPU's fused attention kernel and would leave attention
    # out silently; the math backend is made of plain matrix products, which it does count.
    with measuring(model), sdpa_kernel(SDPBackend.MATH), counter:
        _forward(model, inputs, tokens)
    return int(counter.get_total_flops())


def latency(
    model: PreTrainedModel,
    tokens: Size,
    batch_size: int = 1,
    *,
    repeats: int = 30,
    warm_up: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> Latency:
    """Median forward time of one batch and the distance between its quartiles, milliseconds."""
    measured = latencies(
        {"model": model}, tokens, batch_size, repeats=repeats, warm_up=warm_up, clock=clock
    )
    return measured["model"]


def latencies(
    models: Mapping[str, PreTrainedModel],
    tokens: Size,
    batch_size: int = 1,
    *,
    repeats: int = 30,
    warm_up: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Latency]:
    """Latency of several models measured in turns, so that a slow minute slows them all alike.

    Each round times every model once and starts with another one than the round before.
    `clock` gives seconds. Raises LimbeckError when a model cannot read that many tokens.
    """
    if repeats < 2:
        raise LimbeckError(f"repeats is {repeats}", "give at least 2, or there is no spread")
    inputs = {name: random_inputs(model, tokens, batch_size) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    order = list(models)
    with ExitStack() as modes:
        for model in models.values():
            modes.enter_context(measuring(model))
        for round_number in range(warm_up + repeats):
            start_at = round_number % len(order) if order else 0
            for name in order[start_at:] + order[:start_at]:
                seconds = _timed(models[name], inputs[name], tokens, clock)
                if round_number >= warm_up:
                    times[name].append(1000 * seconds)
    return {
        name: Latency(
            median=statistics.median(values),
            spread=_quartile_distance(values),
            batch_size=batch_size,
            tokens=tokens if isinstance(tokens, int) else None,
            repeats=repeats,
            threads=torch.get_num_threads(),
            device=str(models[name].device),
        )
        for name, values in times.items()
    }


def _timed(
    model: PreTrainedModel, inputs: dict[str, Tensor], tokens: Size, clock: Callable[[], float]
) -> float:
    _finish(model.device)
    start = clock()
    _forward(model, inputs, tokens)
    _finish(model.device)
    return clock() - start


def _forward(model: PreTrainedModel, inputs: dict[str, Tensor], tokens: Size) -> None:
    try:
        model(**inputs)
    except (IndexError, RuntimeError) as error:
        limit = getattr(model.config, "max_position_embeddings", None)
        if limit is None or not isinstance(tokens, int) or tokens <= limit - 2:
            raise
        raise LimbeckError(
            f"{type(model).__name__} cannot read {tokens} tokens (it has {limit} positions): "
            f"{error}",
            "measure with fewer tokens",
        ) from error


@contextmanager
def measuring(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients, for what is measured; the modules' own modes come back afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def _finish(device: torch.device) -> None:
    # Accelerators work behind the caller's back; wait, or only the launch is timed.
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _quartile_distance(values: list[float]) -> float:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def _reads_text(model: PreTrainedModel) -> bool:
    return model.main_input_name != "pixel_values"
