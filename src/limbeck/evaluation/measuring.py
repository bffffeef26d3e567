"""Size and speed of a model: parameters, FLOPs of one example, latency of one batch.

Measuring leaves the model as it is and needs no data: the inputs
are random ids sampled from the vocabulary that its config names (or random pixels).
"""

import json
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from itertools import combinations_with_replacement, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from limbeck import activations
from limbeck.activations.compat import attention_of
from limbeck.records.facts import Latency, ModelFacts, TextLengths, VocabularyFacts
from limbeck.static import StaticStudent
from limbeck.students.vocabulary import Shrunk
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import device_of, evaluating
from limbeck.support.positions import positions_of
from limbeck.tasks import Processor, TaskType
from limbeck.vision import side_of


class Pixels(NamedTuple):
    """Size of an image."""

    height: int
    width: int


Size = int | Pixels
"""Size of one example: tokens of a text, or pixels of an image."""


def example_size(encoded: Dataset, processor: Processor, kind: TaskType) -> Size:
    """What FLOPs and latency are measured at: the mean tokens of an example, or an image's size."""
    lengths = kind.reads.lengths(encoded)
    if lengths is None:
        return Pixels(*side_of(processor))
    return max(round(float(np.mean(lengths))), 1)


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Numbers of parameters: all, and those in tables looked up by index (`nn.Embedding`).

    A tensor shared by several modules counts once.
    """
    embedding = {
        id(weight): weight.numel()
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for weight in module.parameters(recurse=False)
    }
    # parameters() lists a shared tensor once.
    total = sum(weight.numel() for weight in model.parameters())
    return total, sum(embedding.values())


def random_inputs(model: PreTrainedModel, tokens: Size, batch_size: int = 1) -> dict[str, Tensor]:
    """A batch built from the model's config alone, on the model's device: ids and mask (B, N), or pixels.

    Models that generate with an encoder and a decoder get one target token. Vision models read an image of that size,
    or of their configuration's where `tokens` is a number.
    """
    text = model.main_input_name != "pixel_values"
    config = model.config.get_text_config() if text else model.config
    batch = random_batch(config, tokens, batch_size)
    if not text:
        (pixels,) = batch.values()
        return {model.main_input_name: pixels.to(device_of(model), model.dtype)}
    if getattr(config, "is_encoder_decoder", False) and model.can_generate():
        batch["decoder_input_ids"] = torch.full((batch_size, 1), decoder_start(config))
    return {name: tensor.to(device_of(model)) for name, tensor in batch.items()}


def random_batch(config: Any, size: Size, batch_size: int) -> dict[str, Tensor]:
    """Random ids and mask (B, N) of a vocabulary, or random pixels where a configuration is of images.

    Every row has `size` real tokens. An end-of-sequence id, if the config names one, is last and nowhere else,
    as the classification heads of T5 and BART demand.
    """
    generator = torch.Generator().manual_seed(0)
    image = size if isinstance(size, Pixels) else getattr(config, "image_size", None)
    if image is not None:
        height, width = (image, image) if isinstance(image, int) else image
        shape = batch_size, getattr(config, "num_channels", 3), height, width
        return {"pixel_values": torch.randn(shape, generator=generator)}
    assert isinstance(size, int)
    end = getattr(config, "eos_token_id", None)
    end = end[0] if isinstance(end, list | tuple) and end else end
    usable = torch.arange(config.vocab_size)
    for special in (end, getattr(config, "pad_token_id", None)):
        if special is not None:
            usable = usable[usable != special]
    ids = usable[torch.randint(len(usable), (batch_size, size), generator=generator)]
    if isinstance(end, int) and 0 <= end < config.vocab_size:
        ids[:, -1] = end
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def decoder_start(config: Any) -> int:
    """The one token that a decoder is given."""
    return getattr(config, "decoder_start_token_id", None) or 0


def flops_per_example(model: PreTrainedModel, tokens: Size) -> int:
    """FLOPs of one forward pass over one example of that size; a multiply-add counts 2.

    Matrix products and convolutions are counted, attention's two products included and in full
    also where a causal mask makes half of them idle; element-wise work is not. Raises LimbeckError
    when the model cannot read that many tokens.
    """
    return once_for_each(model, ("example", tokens), lambda: _flops_per_example(model, tokens))


def _flops_per_example(model: PreTrainedModel, tokens: Size) -> int:
    inputs = random_inputs(model, tokens)
    return _counted(model, lambda: _forward(model, inputs, tokens))


def _counted(model: PreTrainedModel, run: Callable[[], object]) -> int:
    """FLOPs of one run of a model.

    torch's counter has no formula for the CPU's fused attention kernel and would leave attention out silently; the
    math backend is made of plain matrix products, which it does count.
    """
    counter = FlopCounterMode(display=False)
    with evaluating(model), sdpa_kernel(SDPBackend.MATH), counter:
        run()
    return int(counter.get_total_flops())


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

    Each round times every model once and starts with another one than the round before. `clock` gives seconds. For at
    least two rounds: median and the distance between the quartiles, in milliseconds. Raises LimbeckError when a model
    cannot read that many tokens.
    """
    inputs = {name: random_inputs(model, tokens, batch_size) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    order = list(models)
    with ExitStack() as modes:
        for model in models.values():
            modes.enter_context(evaluating(model))
        for round_number in range(warm_up + repeats):
            start_at = round_number % len(order) if order else 0
            for name in order[start_at:] + order[:start_at]:
                seconds = _timed(models[name], inputs[name], tokens, clock)
                if round_number >= warm_up:
                    times[name].append(1000 * seconds)
    return {
        name: Latency(
            median=float(np.median(values)),
            spread=float(np.subtract(*np.percentile(values, [75, 25]))),
            batch_size=batch_size,
            tokens=tokens if isinstance(tokens, int) else None,
            repeats=repeats,
            threads=torch.get_num_threads(),
            device=str(device_of(models[name])),
        )
        for name, values in times.items()
    }


def _timed(
    model: PreTrainedModel, inputs: dict[str, Tensor], tokens: Size, clock: Callable[[], float]
) -> float:
    # Accelerators work behind the caller's back; wait, or only the launch is timed.
    wait = device_of(model).type != "cpu"
    if wait:
        torch.accelerator.synchronize(device_of(model))
    start = clock()
    _forward(model, inputs, tokens)
    if wait:
        torch.accelerator.synchronize(device_of(model))
    return clock() - start


def _forward(model: PreTrainedModel, inputs: dict[str, Tensor], tokens: Size) -> None:
    try:
        model(**inputs)
    except (IndexError, RuntimeError) as error:
        limit = positions_of(model)
        if limit is None or not isinstance(tokens, int) or tokens <= limit:
            raise
        raise LimbeckError(
            f"{type(model).__name__} cannot read {tokens} tokens (it has {limit} positions): {error}",
            "measure with fewer tokens",
        ) from error


# Work that depends on a model's architecture alone, done once for all models that share it. A
# grid's cells, a team's students and a run's stages are of few shapes; each would be counted
# again.


# Entries of a configuration about a model's origin, not its computation.
_ORIGIN = {"_name_or_path", "architectures", "transformers_version"}
_KNOWN: dict[Hashable, int] = {}


def once_for_each(model: PreTrainedModel, about: Hashable, count: Callable[[], int]) -> int:
    """What `count()` finds, or has found about another model of this architecture.

    `about` names the counted pass and its sizes. An architecture is a class, a
    configuration with its attention implementation, and the shapes of all parameters.
    """
    config = {k: v for k, v in model.config.to_dict().items() if k not in _ORIGIN}
    attention = attention_of(model)
    shapes = tuple((name, weight.shape) for name, weight in model.named_parameters())
    key = (type(model), json.dumps(config, sort_keys=True, default=str), attention, shapes, about)
    if key not in _KNOWN:
        _KNOWN[key] = count()
    return _KNOWN[key]


# One model's size and speed in the form that a record keeps. A run calls it once for the student
# and once for the teacher.


PAPERS_TOKENS = 128
"""The length at which the papers' tables state FLOPs."""


def model_facts(
    model: PreTrainedModel, tokens: Size, *, latency_ms: Latency | None = None
) -> ModelFacts:
    """Parameters, layers, width, heads and the FLOPs of one example of that size, and of 128 tokens.

    A network without layers over tokens has no number of layers, width and heads here.

    Latency is passed in, because models that are compared have to be timed in turns
    (`measure.latencies`). Raises LimbeckError when the model cannot read that many tokens.
    """
    total, embedding = count_parameters(model)
    inside, at_128 = bool(activations.stack_names(model)), None
    if isinstance(tokens, int):
        with suppress(LimbeckError):  # it cannot read so many
            at_128 = flops_per_example(model, PAPERS_TOKENS)
    layers = activations.number_of_layers(model) if inside else None
    width = activations.hidden_size(model) if inside else None
    if isinstance(model, StaticStudent):
        layers, width = 0, model.config.hidden_size
    return ModelFacts(
        parameters=total,
        embedding_parameters=embedding,
        layers=layers,
        hidden_size=width,
        heads=activations.number_of_heads(model) if inside else None,
        flops_per_example=flops_per_example(model, tokens),
        flops_at_128=at_128,
        latency_ms=latency_ms,
    )


def vocabulary_facts(
    found: Shrunk, texts: Mapping[str, Iterable[Sequence[str]]]
) -> VocabularyFacts:
    """The effect of a smaller vocabulary, on texts by their name."""
    return VocabularyFacts(
        before=found.before,
        after=len(found.kept),
        megabytes_before=found.megabytes[0],
        megabytes_after=found.megabytes[1],
        texts={name: TextLengths(**asdict(found.report(one))) for name, one in texts.items()},
    )


# FLOPs of the passes that a model has run (`limbeck.activations.Passes`), padding included. Each
# kind of pass is run once more, on one example.


Sizes = tuple[int, ...]

# The backward pass computes two products for each one of the forward pass.
_WITH_BACKWARD = 3


def flops_of(model: PreTrainedModel, passes: activations.Passes) -> int:
    """FLOPs of a model's passes, including their backward passes; a multiply-add counts 2.

    Counted as `flops_per_example` counts, for every kind of pass at the sizes it was padded to.
    Terms' own products, of projections or of comparisons, are not the model's and not in it.
    """
    # Recomputation in the backward pass is another forward pass.
    again = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    backward = _WITH_BACKWARD + again
    examples: dict[activations.Request, dict[Sizes, int]] = {}
    for kind, count in passes.examples.items():
        sizes = examples.setdefault(kind.request, {})
        sizes[kind.sizes] = sizes.get(kind.sizes, 0) + count * (backward if kind.gradient else 1)
    total = 0.0
    for request, counts in examples.items():
        costs = _costs(model, request, list(counts))
        total += sum(count * costs[sizes] for sizes, count in counts.items())
    return round(total)


def flops_of_pass(model: PreTrainedModel, request: activations.Request, sizes: Sizes) -> int:
    """FLOPs of one forward pass that answers a request about one example of these sizes."""
    return once_for_each(model, (request, sizes), lambda: _flops_of_pass(model, request, sizes))


def _flops_of_pass(model: PreTrainedModel, request: activations.Request, sizes: Sizes) -> int:
    if model.main_input_name == "pixel_values":
        batch = random_inputs(model, Pixels(*sizes))
    else:
        batch = random_inputs(model, sizes[0])
        if len(sizes) > 1:
            batch["decoder_input_ids"] = torch.zeros(
                1, sizes[1], dtype=torch.long, device=device_of(model)
            )
    return _counted(model, lambda: activations.capture(model, batch, request))


def _costs(
    model: PreTrainedModel, request: activations.Request, wanted: list[Sizes]
) -> Mapping[Sizes, float]:
    """FLOPs by sizes: each measured if they are few, otherwise a polynomial through some of them.

    Every product of a transformer is linear in a length or has two of them as sides, so that the
    polynomial of second degree is exact.
    """
    axes = [_spread(sorted(set(axis))) for axis in zip(*wanted, strict=True)]
    if len(wanted) <= prod(map(len, axes)):
        return {sizes: flops_of_pass(model, request, sizes) for sizes in wanted}
    points = list(product(*axes))
    largest = np.array([max(axis) for axis in axes], dtype=float)
    measured = np.array([flops_of_pass(model, request, sizes) for sizes in points], dtype=float)
    fitted, *_ = np.linalg.lstsq(_terms(points, largest), measured, rcond=None)
    found = _terms(wanted, largest) @ fitted
    return dict(zip(wanted, np.round(found).tolist(), strict=True))


def _spread(axis: list[int]) -> list[int]:
    """The smallest, one in the middle and the largest."""
    return sorted({axis[0], axis[len(axis) // 2], axis[-1]})


def _terms(points: list[Sizes], largest: np.ndarray) -> np.ndarray:
    """The monomials of first and second degree, and one, at each point [P, …]."""
    scaled = np.array(points, dtype=float) / largest
    columns = [np.ones(len(points)), *scaled.T]
    columns += [
        scaled[:, one] * scaled[:, other]
        for one, other in combinations_with_replacement(range(scaled.shape[1]), 2)
    ]
    return np.stack(columns, axis=1)
