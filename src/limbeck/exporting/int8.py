"""Other files of one ONNX file: int8 by ONNX Runtime's own tools, and OpenVINO's two files.

int8 is dynamic: weights in int8, activations quantised as they come. Nodes can be left in float.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from limbeck.exporting.onnx_graph import LARGEST_FILE, quiet_export
from limbeck.runtimes.manifest import Conversion, weight_bytes
from limbeck.runtimes.sessions import Feed, GraphSession

WEIGHTED = ("MatMul", "Gemm", "Gather", "Conv")
"""Operators with weights that are quantised."""


def quantise(source: Path, target: Path, how: Conversion, only: Sequence[str] = ()) -> None:
    """Write `source` in int8.

    Args:
        how: channels, range and what is kept in float.
        only: names of the nodes to quantise; by default all that have weights.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with quiet_export():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=list(WEIGHTED),
            per_channel=how.per_channel,
            reduce_range=how.reduce_range,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=list(only),
            nodes_to_exclude=list(how.kept_in_float),
            use_external_data_format=weight_bytes(source) > LARGEST_FILE,
        )


def write_openvino(source: Path, target: Path) -> None:
    """Write `source` (without ONNX Runtime's operators) as OpenVINO's."""
    import openvino

    with quiet_export():
        openvino.save_model(
            openvino.convert_model(str(source)), str(target), compress_to_fp16=False
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


# Which nodes of a graph int8 hurts most: each is quantised alone, and the logits are compared.


MOST_GROUPS = 40
"""Graphs of more nodes than this are searched by neighbours together."""


def groups_of_nodes(source: Path) -> list[list[str]]:
    """Names of neighbours in the graph that are tried together."""
    nodes = quantisable(source)
    size = -(-len(nodes) // MOST_GROUPS) or 1
    return [nodes[start : start + size] for start in range(0, len(nodes), size)]


def ranked(
    source: Path,
    work: Path,
    how: Conversion,
    feeds: Sequence[Feed],
    open_file: Callable[[Path], GraphSession],
    step: Callable[[int], None],
) -> list[list[str]]:
    """Groups of nodes, those first whose quantisation alone changes the logits most.

    Args:
        source: the model's graph in float.
        work: a folder for the files that are tried.
        how: the conversion whose nodes are searched.
        feeds: batches to compare logits on.
        open_file: opens a graph.
        step: called with 1 after each group.
    """

    def logits(path: Path) -> np.ndarray:
        session = open_file(path)
        return np.concatenate([session.logits(feed).reshape(-1) for feed in feeds])

    reference, target = logits(source), work / "one.onnx"
    errors = []
    groups = groups_of_nodes(source)
    for group in groups:
        quantise(source, target, how, group)
        errors.append(float(np.sqrt(np.mean((logits(target) - reference) ** 2))))
        step(1)
    order = sorted(range(len(groups)), key=lambda place: errors[place], reverse=True)
    return [groups[place] for place in order]
