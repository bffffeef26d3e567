"""int8 by ONNX Runtime's own tools, and fp16: one ONNX file in, a smaller one out.

Dynamic: weights in int8, activations quantised as they come, no calibration. Static: activations
too, by ranges seen on calibration rows (QDQ nodes). Nodes can be left in float.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from limbeck.activations import Request, capture
from limbeck.data import batches_of, encode
from limbeck.exporting.onnx_graph import LARGEST_FILE, quiet_export
from limbeck.runtimes.manifest import Conversion, weight_bytes
from limbeck.runtimes.sessions import GraphSession
from limbeck.scoring.scored_model import EncodedSplit
from limbeck.support.errors import LimbeckError
from limbeck.tasks import SoftRule

WEIGHTED = ("MatMul", "Gemm", "Gather", "Conv")
"""Operators with weights that are quantised."""

Feed = dict[str, np.ndarray]


def quantise(
    source: Path,
    target: Path,
    how: Conversion,
    *,
    calibration: Iterable[Feed] = (),
    only: Sequence[str] | None = None,
) -> None:
    """Write `source` in int8.

    Args:
        how: scheme, channels, range and what is kept in float.
        calibration: batches by input name; static alone reads them.
        only: names of the nodes to quantise; by default all that have weights.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

    large = weight_bytes(source) > LARGEST_FILE
    given = {
        "per_channel": how.per_channel,
        "reduce_range": how.reduce_range,
        "weight_type": QuantType.QInt8,
        "nodes_to_quantize": list(only or ()),
        "nodes_to_exclude": list(how.kept_in_float),
        "use_external_data_format": large,
    }
    with quiet_export():
        if how.scheme == "static":
            quantize_static(
                source,
                target,
                _Feeds(calibration),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QUInt8,
                op_types_to_quantize=list(WEIGHTED),
                **given,
            )
        else:
            quantize_dynamic(source, target, op_types_to_quantize=list(WEIGHTED), **given)


def half(source: Path, target: Path) -> None:
    """Write `source` with fp16 weights and arithmetic; inputs and outputs stay as they were."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with quiet_export():
        model = convert_float_to_float16(
            onnx.load(source), keep_io_types=True, disable_shape_infer=True
        )
        large = model.ByteSize() > LARGEST_FILE
        onnx.save(
            model,
            target,
            save_as_external_data=large,
            location=f"{target.name}.data" if large else None,
        )


def quantisable(source: Path) -> list[str]:
    """Names of the nodes with weights that int8 replaces, in the graph's order."""
    import onnx

    graph = onnx.load(source, load_external_data=False).graph
    weights = {one.name for one in graph.initializer if len(one.dims) >= 2}
    return [
        node.name
        for node in graph.node
        if node.op_type in WEIGHTED and any(name in weights for name in node.input)
    ]


def without_stale_shapes(path: Path) -> None:
    """Drop what the graph says of its weights' shapes, which quantising makes untrue."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    weights = {one.name for one in model.graph.initializer}
    kept = [info for info in model.graph.value_info if info.name not in weights]
    if len(kept) < len(model.graph.value_info):
        del model.graph.value_info[:]
        model.graph.value_info.extend(kept)
        onnx.save(model, path)


class _Feeds:
    """The form in which `quantize_static` reads calibration batches."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds: Iterator[Any] = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


# Which nodes of a graph int8 hurts most: each is quantised alone, and the logits are compared.


MOST_GROUPS = 40
"""Graphs of more nodes than this are searched by neighbours together."""


def ranked(
    sources: Sequence[Path],
    work: Path,
    how: Conversion,
    feeds: Sequence[Feed],
    open_files: Callable[[Sequence[Path]], GraphSession],
    *,
    calibration: Sequence[Sequence[Feed]] | None = None,
    step: Callable[[int], None] = lambda done: None,
) -> list[list[str]]:
    """Groups of nodes, those first whose quantisation alone changes the logits most.

    Args:
        sources: the model's graphs in float.
        work: a folder for the files that are tried.
        how: the conversion whose nodes are searched.
        feeds: batches to compare logits on.
        open_files: opens the graphs as one model.
        calibration: of static int8, what is fed to each graph.
        step: called with 1 after each group.
    """
    groups = _grouped(sources)
    reference = _logits(open_files(sources), feeds)
    errors = []
    for at, group in groups:
        target = work / "one.onnx"
        quantise(
            sources[at], target, how, calibration=calibration[at] if calibration else (), only=group
        )
        tried = [*sources[:at], target, *sources[at + 1 :]]
        difference = _logits(open_files(tried), feeds) - reference
        errors.append(float(np.sqrt(np.mean(difference**2))))
        step(1)
    order = sorted(range(len(groups)), key=lambda place: errors[place], reverse=True)
    return [groups[place][1] for place in order]


def number_of_groups(sources: Sequence[Path]) -> int:
    """How many groups `ranked` will try."""
    return len(_grouped(sources))


def _grouped(sources: Sequence[Path]) -> list[tuple[int, list[str]]]:
    """Which graph, and names of neighbours in it."""
    found = [quantisable(source) for source in sources]
    size = -(-sum(map(len, found)) // MOST_GROUPS) or 1
    return [
        (at, list(nodes[start : start + size]))
        for at, nodes in enumerate(found)
        for start in range(0, len(nodes), size)
    ]


def _logits(session: GraphSession, feeds: Sequence[Feed]) -> np.ndarray:
    return np.concatenate([session.logits(feed).reshape(-1) for feed in feeds])


def amounts(groups: int) -> list[int]:
    """How many groups to leave in float, in the order that is tried: 1, 2, 4, …, below all of them."""
    return [2**power for power in range((groups - 1).bit_length())]


# Quantisation-aware distillation: a short last stage in which a model learns to live with int8. A
# copy of the model computes with weights and activations rounded as ONNX Runtime's dynamic int8
# rounds them (Jacob et al. 2018, §3: rounded forward, gradients straight through), and learns the
# float model's own logits on training rows.


BATCH = 16
_LEVELS = 127
_SMALLEST = 1e-12


class RoundedWeight(nn.Module):
    """A weight rounded to int8, symmetric around 0; one scale, or one for each output (row).

    `levels`: the largest whole number: 127, or 63 of 7-bit weights.
    """

    def __init__(self, *, per_channel: bool, levels: int) -> None:
        super().__init__()
        self.per_channel, self.levels = per_channel, levels

    def forward(self, weight: Tensor) -> Tensor:
        """The weight as int8 holds it."""
        sizes = weight.detach().abs()
        if not self.per_channel:
            scale = (sizes.max() / self.levels).clamp(min=_SMALLEST)
            zero = torch.zeros(1, dtype=torch.int32)
            return torch.fake_quantize_per_tensor_affine(
                weight, scale.reshape(1), zero, -self.levels, self.levels
            )
        scales = (sizes.flatten(1).amax(1) / self.levels).clamp(min=_SMALLEST)
        zeros = torch.zeros(len(weight), dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(
            weight, scales, zeros, 0, -self.levels, self.levels
        )


class RoundedTable(nn.Module):
    """An embedding table rounded as activations are: one scale, 256 steps from its least to its largest."""

    def forward(self, weight: Tensor) -> Tensor:
        """The table as int8 holds it."""
        return rounded(weight)


def rounded(values: Tensor) -> Tensor:
    """Activations rounded to 256 steps between their own least and largest, 0 among them."""
    low = values.detach().amin().clamp(max=0.0)
    high = values.detach().amax().clamp(min=0.0)
    scale = ((high - low) / 255).clamp(min=_SMALLEST)
    zero = (-low / scale).round().clamp(0, 255).to(torch.int32)
    return torch.fake_quantize_per_tensor_affine(values, scale.reshape(1), zero.reshape(1), 0, 255)


@contextmanager
def rounding(model: nn.Module, how: Conversion) -> Iterator[None]:
    """Inside, every linear layer and embedding table of a model computes as int8 would."""
    levels = _LEVELS // 2 if how.reduce_range else _LEVELS
    handles, changed = [], []
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            linear = isinstance(module, nn.Linear)
            weight = (
                RoundedWeight(per_channel=how.per_channel, levels=levels)
                if linear
                else RoundedTable()
            )
            parametrize.register_parametrization(module, "weight", weight)
            changed.append(module)
            if linear:
                handles.append(module.register_forward_pre_hook(_round_input))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module in changed:
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)


def _round_input(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return (rounded(given[0]), *given[1:])


def few_training_rows(rows: EncodedSplit, count: int) -> Dataset:
    """At most so many encoded training rows, evenly spaced over all of them.

    Raises:
        LimbeckError: the source has no training rows.
    """
    training = rows.loaded.training
    if training is None:
        raise LimbeckError(
            f"{rows.loaded.data} has no training rows for {rows.task.name}, which static int8 and "
            "quantisation-aware distillation need",
            "choose --scheme dynamic without --recover-steps, or name data with a train split",
        )
    places = np.linspace(0, len(training) - 1, min(count, len(training))).astype(int)
    few = training.select(sorted({*places.tolist()}))
    return encode(few, rows.task, rows.processor, rows.max_length)[0]


def shuffled_batches(rows: EncodedSplit, steps: int, seed: int) -> Iterator[dict[str, Tensor]]:
    """So many batches of training rows, in another order at every pass over them."""
    encoded = few_training_rows(rows, steps * BATCH)
    random = np.random.default_rng(seed)
    order: list[int] = []
    while len(order) < steps * BATCH:
        order += random.permutation(len(encoded)).tolist()
    return batches_of(encoded, rows.collator, BATCH, "cpu", order=order[: steps * BATCH])


def recovered(
    model: PreTrainedModel,
    rows: EncodedSplit,
    how: Conversion,
    *,
    steps: int,
    lr: float,
    seed: int = 0,
    step: Callable[[int], None] = lambda done: None,
) -> PreTrainedModel:
    """A copy of the model that has learned its own logits under int8, in float32.

    Args:
        model: the float model, which teaches; it stays as it is.
        rows: where the training rows are.
        how: the conversion to prepare for.
        steps: optimisation steps of 16 rows; `lr` their rate (AdamW, linear decay).
        seed: of the order of the rows.
        step: called with 1 after each.

    Raises:
        LimbeckError: the rows' source has no training rows.
    """
    student = copy.deepcopy(model).eval()
    kind = rows.task.kind
    weights = [weight for weight in student.parameters() if weight.requires_grad]
    with rounding(student, how):
        optimizer = torch.optim.AdamW(weights, lr=lr, weight_decay=0.0)
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
        for batch in shuffled_batches(rows, steps, seed):
            with torch.no_grad():
                wanted = capture(model, batch, Request.of_logits()).logits
            found = capture(student, batch, Request.of_logits()).logits
            assert wanted is not None
            assert found is not None
            loss = kind.soft_label(found, wanted, batch, SoftRule("soft_kl"))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            decay.step()
            step(1)
    result: PreTrainedModel = student.eval()
    return result
