"""From a torch model to an ONNX file, by transformers' own exporter, and from that to int8 and OpenVINO.

The graph takes any batch size and length, and only logits leave it. It can hold ONNX Runtime's fused operators.
int8 is dynamic: weights in int8, activations quantised as they come. int4 is of weights alone. Nodes can be left in
float.
"""

import contextlib
import hashlib
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.runtimes.manifest import Conversion, weight_bytes
from limbeck.runtimes.sessions import Feed, GraphSession, need_extra
from limbeck.support.errors import LimbeckError, first_line

LARGEST_FILE = 1_900_000_000
"""Most bytes of weights in one file: protobuf ends at 2 GB. Other weights go to a file next to it."""
OUTPUTS = ("logits", "start_logits", "end_logits")
"""What leaves the graph of a model with a task head."""
Axes = tuple[str, ...]
_LABELS = frozenset({"labels", "label_ids", "start_positions", "end_positions"})


def model_inputs(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What of a batch the model's forward pass reads: no labels, and no segment ids it has no table for."""
    names = inspect.signature(model.forward).parameters
    segments = getattr(model.config, "type_vocab_size", None) not in (0, 1)
    unread = _LABELS if segments else _LABELS | {"token_type_ids"}
    return {name: value for name, value in batch.items() if name in names and name not in unread}


def write_onnx(
    model: PreTrainedModel,
    batch: Mapping[str, Tensor],
    path: Path,
    *,
    fused: bool,
    largest_file: int = LARGEST_FILE,
) -> None:
    """Write a model's graph and weights.

    Args:
        model: on CPU, in evaluation mode.
        batch: a few encoded rows, at least two, of more than one token.
        path: the file; more than `largest_file` bytes of weights go to PATH.data.
        fused: with ONNX Runtime's operators for its CPU provider, which no other runtime reads.

    Raises:
        LimbeckError: the libraries are not installed, or the model cannot be converted.
    """
    need_extra("onnx", "export to onnx")
    from onnx_ir import save
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass
    from transformers.exporters import OnnxConfig, OnnxExporter

    inputs = model_inputs(model, batch)
    axes: dict[str, Axes] = {
        name: ("batch",) if value.is_floating_point() else ("batch", "length")[: value.dim()]
        for name, value in inputs.items()
    }  # an image's height and width are what its processor makes
    auto = torch.export.Dim.AUTO
    shapes = {name: dict.fromkeys(range(len(named)), auto) for name, named in axes.items()}
    config = OnnxConfig(dynamic=True, dynamic_shapes=shapes, ort_fusions="cpu" if fused else None)
    with quiet_export(), torch.no_grad(), _without_cache(model):
        try:
            program: Any = OnnxExporter().export(model, dict[str, Any](inputs), config).program
        # torch.export, onnxscript and the fusions raise errors of any class for an operator without a
        # translation.
        except Exception as error:
            raise LimbeckError(
                f"{type(model).__name__} cannot be converted to ONNX: {first_line(error)}",
                "try --no-fused; if that fails too, transformers' exporter does not know this architecture yet",
            ) from error
        _keep_outputs(program)
        _name_axes(program, axes)
        _keep_one_of_equal_weights(program)
        ClearMetadataAndDocStringPass()(program)  # where this machine keeps its files
        weights = [value.const_value for value in program.graph.initializers.values()]
        large = sum(one.nbytes for one in weights if one is not None) > largest_file
        save(program, str(path), external_data=f"{path.name}.data" if large else None)


def _keep_outputs(program: Any) -> None:
    """Remove other outputs of a head (hidden states, caches), and nodes that only they need."""
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    outputs = program.graph.outputs
    kept = [value for value in outputs if value.name in OUTPUTS]
    if not kept:
        names = ", ".join(str(value.name) for value in outputs)
        raise LimbeckError(
            f"the model returns {names}, and no logits", "export a model with a task head"
        )
    if len(kept) < len(outputs):
        outputs[:] = kept
        RemoveUnusedNodesPass()(program)


def _keep_one_of_equal_weights(program: Any) -> None:
    """Store weights once that layers share, as an ALBERT's do: the exporter transposes them for each layer."""
    first: dict[tuple[Any, ...], Any] = {}
    initializers = program.graph.initializers
    for name, value in [*initializers.items()]:
        weight = value.const_value
        digest = hashlib.sha256(weight.tobytes()).digest()
        kept = first.setdefault((weight.dtype, tuple(weight.shape), digest), value)
        if kept is not value:
            value.replace_all_uses_with(kept)
            del initializers[name]


def _name_axes(program: Any, axes: Mapping[str, Axes]) -> None:
    """Call what varies by its name instead of the tracer's number."""
    import onnx_ir

    for value in program.graph.inputs:
        named = axes.get(value.name)
        if named is not None and value.shape is not None:
            value.shape = onnx_ir.Shape([*named, *list(value.shape)[len(named) :]])


@contextlib.contextmanager
def _without_cache(model: nn.Module) -> Iterator[None]:
    """Decoders keep keys and values for a next token, which no graph here returns.

    A T5's decoder has a configuration of its own. With its cache, the fusions make its attention to the encoder causal.
    """
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    before = [one for one in configs if getattr(one, "use_cache", None)]
    for one in before:
        one.use_cache = False
    try:
        yield
    finally:
        for one in before:
            one.use_cache = True


@contextlib.contextmanager
def quiet_export() -> Iterator[None]:
    """Without the exporters' progress on standard output, their advice and deprecation warnings."""
    names = (
        *("transformers", "torch.onnx", "torch.export", "onnxscript", "onnx_ir", "root"),
        "onnxruntime.quantization.matmul_nbits_quantizer",
    )
    loggers = [logging.getLogger(None if name == "root" else name) for name in names]
    before = [logger.level for logger in loggers]
    # ONNX Runtime's tools give a root logger without handlers one, which would print all messages again.
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, [*root.handlers, logging.NullHandler()]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
        root.handlers = handlers


# Other files of one ONNX file: int8 by ONNX Runtime's own tools, and OpenVINO's two files.


WEIGHTED = ("MatMul", "Gemm", "Gather", "Conv")
"""Operators with weights that are quantised."""


def quantise(source: Path, target: Path, how: Conversion, only: Sequence[str] = ()) -> None:
    """Write `source` in int8, and some operators' weights in int4.

    Weights of 4 bits are in blocks with a scale and a zero point each, and are multiplied as floats: embedding rows
    lose nothing in speed by it, matrices some.

    Args:
        how: channels, range, operators of 4 bits and the parts that stay in float.
        only: names of the nodes to quantise; by default all that have weights.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    external = weight_bytes(source) > LARGEST_FILE
    left_out, only = _as_products(how.kept_in_float), _as_products(only)
    # ONNX appends weights to a file that is there.
    target.with_name(f"{target.name}.data").unlink(missing_ok=True)
    with quiet_export(), TemporaryDirectory(dir=target.parent) as work:
        if how.four_bits:
            if only:
                left_out += {*_as_products(quantisable(source))} - {*only}
            source = _four_bits(source, Path(work) / target.name, how, left_out, external=external)
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=[one for one in WEIGHTED if one not in how.four_bits],
            per_channel=how.per_channel,
            reduce_range=how.reduce_range,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=only,
            nodes_to_exclude=left_out,
            use_external_data_format=external,
        )


def _as_products(names: Iterable[str]) -> list[str]:
    """These nodes under their names in a graph in which ONNX Runtime has written `Gemm` as `MatMul` and `Add`."""
    return [form for name in names for form in (name, f"{name}_MatMul")]


def _four_bits(
    source: Path, target: Path, how: Conversion, left_out: Sequence[str], *, external: bool
) -> Path:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = ONNXModel(onnx.load(source))
    model.replace_gemm_with_matmul()
    quantizer = MatMulNBitsQuantizer(
        model.model,
        block_size=how.block,
        accuracy_level=4,  # products in int8, the fastest
        nodes_to_exclude=list(left_out),
        op_types_to_quantize=tuple(how.four_bits),
    )
    quantizer.process()
    _half_scales(quantizer.model)
    quantizer.model.save_model_to_file(str(target), external)
    return target


def _half_scales(model: Any) -> None:
    """Keep the scales of tables of 4 bits in half precision: in float they are a fifth of such a table's bytes.

    They become floats as the file is opened, so that no runtime has to multiply in half precision.
    """
    from onnx import TensorProto, helper, numpy_helper

    tables = [one for one in model.nodes() if one.op_type == "GatherBlockQuantized"]
    for name in dict.fromkeys(one.input[2] for one in tables):
        one, half = model.get_initializer(name), f"{name}_half"
        one.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one).astype(np.float16), half))
        cast = helper.make_node("Cast", [half], [name], f"{half}_as_float", to=TensorProto.FLOAT)
        model.add_node(cast)
    model.topological_sort()


def write_openvino(source: Path, target: Path) -> None:
    """Write `source` (without ONNX Runtime's operators) as OpenVINO's."""
    import openvino

    with quiet_export():
        openvino.save_model(
            openvino.convert_model(str(source)), str(target), compress_to_fp16=False
        )


def quantisable(source: Path, operators: Sequence[str] = WEIGHTED) -> dict[str, str]:
    """Names of the nodes with weights that int8 replaces, in the graph's order, and of these weights."""
    import onnx

    graph = onnx.load(source, load_external_data=False).graph
    weights = {one.name for one in graph.initializer if len(one.dims) >= 2}
    return {
        node.name: next(name for name in node.input if name in weights)
        for node in graph.node
        if node.op_type in operators and not weights.isdisjoint(node.input)
    }


def without_stale_shapes(path: Path) -> None:
    """Drop the graph's entries for its weights' shapes, which quantization makes untrue."""
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


def groups_of_nodes(source: Path, operators: Sequence[str] = WEIGHTED) -> list[list[str]]:
    """Names of neighbours in the graph that are tried together, and of all nodes that share their weights.

    ONNX Runtime gives a node in float the rounded weights if another node has them in int8.
    """
    sharing: dict[str, list[str]] = {}
    for node, weight in quantisable(source, operators).items():
        sharing.setdefault(weight, []).append(node)
    nodes = [*sharing.values()]
    size = -(-len(nodes) // MOST_GROUPS) or 1
    return [
        [*chain.from_iterable(nodes[start : start + size])] for start in range(0, len(nodes), size)
    ]


def ranked(
    source: Path,
    work: Path,
    how: Conversion,
    groups: list[list[str]],
    feeds: Sequence[Feed],
    open_file: Callable[[Path], GraphSession],
    step: Callable[[int], None],
) -> list[list[str]]:
    """Groups of nodes, those first whose quantisation alone changes the logits most.

    Args:
        source: the model's graph in float.
        work: a folder for the files that are tried.
        how: the conversion whose nodes are searched.
        groups: nodes that are quantised together.
        feeds: batches to compare logits on.
        open_file: opens a graph.
        step: called with 1 after each group.
    """

    def logits(path: Path) -> np.ndarray:
        session = open_file(path)
        return np.concatenate([session.logits(feed).reshape(-1) for feed in feeds])

    reference, target = logits(source), work / "one.onnx"
    errors = []
    for group in groups:
        quantise(source, target, how, group)
        errors.append(float(np.sqrt(np.mean((logits(target) - reference) ** 2))))
        step(1)
    order = sorted(range(len(groups)), key=lambda place: errors[place], reverse=True)
    return [groups[place] for place in order]
