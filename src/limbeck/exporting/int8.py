"""int8 by ONNX Runtime's own tools, and fp16: one ONNX file in, a smaller one out.

Dynamic: weights in int8, activations quantised as they come, no calibration. Static: activations
too, by ranges seen on calibration rows (QDQ nodes). Nodes can be left in float.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.exporting.onnx_graph import LARGEST_FILE, quiet_export
from limbeck.runtimes.manifest import Conversion

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


def weight_bytes(path: Path) -> int:
    """Of a model's file and the data beside it."""
    beside = path.with_name(f"{path.name}.data"), path.with_suffix(".bin")
    return sum(file.stat().st_size for file in (path, *beside) if file.is_file())


class _Feeds:
    """The form in which `quantize_static` reads calibration batches."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds: Iterator[Any] = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)
