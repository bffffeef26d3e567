"""From a torch model to an ExecuTorch program for CPUs (XNNPACK), by transformers' own exporter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.exporting.onnx_graph import OUTPUTS, quiet_export
from limbeck.runtimes import need_extra
from limbeck.support.errors import LimbeckError


class _Logits(nn.Module):
    """A model that returns its logits alone, under their names."""

    def __init__(self, model: PreTrainedModel, outputs: Sequence[str]) -> None:
        super().__init__()
        self.model: Any = model
        self.outputs = tuple(outputs)

    def forward(self, **inputs: Tensor) -> dict[str, Tensor]:
        """As the model's own forward pass."""
        found = self.model(**inputs)
        return {name: found[name] for name in self.outputs}


def returned_logits(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Names of the logits that a model returns."""
    with torch.no_grad():
        found: Any = cast(Any, model)(**batch)
    return tuple(name for name in OUTPUTS if name in found)


def write_executorch(
    model: PreTrainedModel,
    batch: Mapping[str, Tensor],
    path: Path,
    *,
    outputs: Sequence[str],
    largest: tuple[int, int],
) -> None:
    """Write a program that reads batches up to a size, for which its memory is planned.

    Args:
        model: on CPU, in evaluation mode; it stays as it is.
        batch: what its forward pass reads of a few rows, at least two, of more than one token.
        path: the `.pte` file.
        outputs: what it shall return, by `returned_logits`.
        largest: rows and tokens of the largest batch.

    Raises:
        LimbeckError: ExecuTorch is not installed, or the model cannot be converted.
    """
    need_extra("executorch", "export to executorch")
    rows = torch.export.Dim("batch", min=1, max=max(2, largest[0]))
    length = torch.export.Dim("length", min=1, max=max(2, largest[1]))
    shapes = {
        name: {0: rows} if value.is_floating_point() else {0: rows, 1: length}
        for name, value in batch.items()
    }
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    try:
        with quiet_export(), torch.no_grad():
            from transformers.exporters import ExecutorchConfig, ExecutorchExporter

            config = ExecutorchConfig(backend="xnnpack", dynamic=True, dynamic_shapes=shapes)
            wrapped = cast(PreTrainedModel, _Logits(model, outputs).eval())
            program = ExecutorchExporter().export(wrapped, dict[str, Any](batch), config).program
            ExecutorchExporter.save_program(program, path)
    # torch.export and ExecuTorch's passes raise what an operator they do not know happens to meet.
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LimbeckError(
            f"{type(model).__name__} cannot be converted to ExecuTorch: {first}",
            "choose --format onnx",
        ) from error
    finally:
        for weight in trained:  # the exporter freezes them
            weight.requires_grad_(True)
