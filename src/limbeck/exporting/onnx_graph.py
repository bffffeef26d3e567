"""From a torch model to an ONNX file, by transformers' own exporter: any batch size, any length.

Only logits leave the graph. ONNX Runtime's fused operators stand in it where they are asked for.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.runtimes.sessions import need_extra
from limbeck.support.errors import LimbeckError, first_line

LARGEST_FILE = 1_900_000_000
"""Bytes of weights that one file may hold: protobuf ends at 2 GB. More lie in a file beside it."""
MODEL_FILE = "model.onnx"
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
        path: the file; with more than `largest_file` bytes of weights they lie in PATH.data.
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
        # torch.export, onnxscript and the fusions raise what an operator without a translation
        # happens to meet: of any class.
        except Exception as error:
            raise LimbeckError(
                f"{type(model).__name__} cannot be converted to ONNX: {first_line(error)}",
                "try --no-fused; if that fails too, transformers' exporter does not know this "
                "architecture yet",
            ) from error
        _keep_outputs(program)
        _name_axes(program, axes)
        ClearMetadataAndDocStringPass()(program)  # where this machine keeps its files
        weights = [value.const_value for value in program.graph.initializers.values()]
        large = sum(one.nbytes for one in weights if one is not None) > largest_file
        save(program, str(path), external_data=f"{path.name}.data" if large else None)


def _keep_outputs(program: Any) -> None:
    """Leave out what else a head returns (hidden states, caches), and what only that needed."""
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


def _name_axes(program: Any, axes: Mapping[str, Axes]) -> None:
    """Call what varies by its name instead of the tracer's number."""
    import onnx_ir

    for value in program.graph.inputs:
        named = axes.get(value.name)
        if named is not None and value.shape is not None:
            value.shape = onnx_ir.Shape([*named, *list(value.shape)[len(named) :]])


@contextlib.contextmanager
def _without_cache(model: nn.Module) -> Iterator[None]:
    """Decoders keep keys and values for a next token, which no graph here returns."""
    config: Any = getattr(model, "config", None)
    before = getattr(config, "use_cache", None)
    if before:
        config.use_cache = False
    try:
        yield
    finally:
        if before:
            config.use_cache = before


@contextlib.contextmanager
def quiet_export() -> Iterator[None]:
    """Without the exporters' progress on standard output, their advice and deprecation warnings."""
    names = ("transformers", "torch.onnx", "torch.export", "onnxscript", "onnx_ir", "root")
    loggers = [logging.getLogger(None if name == "root" else name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
