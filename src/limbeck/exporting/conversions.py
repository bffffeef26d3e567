"""Which conversions a format tries, in order: the first that passes the gate is shipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.exporting.onnx_graph import OUTPUTS, quiet_export
from limbeck.runtimes.manifest import Conversion
from limbeck.runtimes.sessions import need_extra
from limbeck.support.errors import LimbeckError, Problem, first_line, unknown

FORMATS = ("onnx", "onnx-int8", "openvino", "executorch")
PRECISIONS = ("fp32", "fp16")
SCHEMES = ("auto", "dynamic", "static")

CALIBRATION_ROWS = 128


@dataclass(frozen=True)
class ExportSettings:
    """What is asked of an export.

    Attributes:
        format: one of `FORMATS`.
        precision: of `onnx` and `openvino`: fp32 or fp16.
        fused: with ONNX Runtime's own operators.
        scheme: of `onnx-int8`: `auto` (dynamic, several ways), `dynamic` or `static`.
        max_drop: points of the primary score that may be lost.
        calibration_rows: training rows whose activations give static int8 its ranges.
        keep_sensitive: where int8 fails the gate, leave its most sensitive nodes in float.
        recover_steps: where int8 fails the gate, steps of quantisation-aware distillation on training
            rows before it is tried again; 0 for none. `recover_lr`: their rate.
        batch_size: rows of a batch at the gate; of executorch, also the most a batch may ever have.
        threads: of the runtime at the gate; None for its own choice.
    """

    format: str = "onnx"
    precision: str = "fp32"
    fused: bool = True
    scheme: str = "auto"
    max_drop: float = 0.5
    calibration_rows: int = CALIBRATION_ROWS
    keep_sensitive: bool = True
    recover_steps: int = 0
    recover_lr: float = 2e-5
    batch_size: int = 32
    threads: int | None = None

    def problems(self) -> list[Problem]:
        """Everything that is wrong with them."""
        found = [
            unknown(name, value, choices)
            for name, value, choices in (
                ("format", self.format, FORMATS),
                ("precision", self.precision, PRECISIONS),
                ("scheme", self.scheme, SCHEMES),
            )
            if value not in choices
        ]
        int8 = self.format == "onnx-int8"
        checks = [
            (
                int8 and self.precision != "fp32",
                f"precision {self.precision}: format onnx-int8 is int8",
                "leave precision out, or choose format onnx",
            ),
            (
                self.format == "executorch" and self.precision != "fp32",
                f"precision {self.precision}: format executorch is fp32",
                "leave precision out, or choose format onnx or openvino",
            ),
            (
                not int8 and self.scheme != "auto",
                f"scheme {self.scheme}: format {self.format} quantises nothing",
                "leave scheme out, or choose format onnx-int8",
            ),
            (
                self.recover_steps != 0 and (not int8 or self.scheme == "static"),
                f"recover_steps {self.recover_steps}: a model is prepared for dynamic int8 only",
                "leave recover_steps out, or choose format onnx-int8 with scheme auto or dynamic",
            ),
            (
                self.recover_steps < 0 or self.recover_lr <= 0,
                f"recover_steps {self.recover_steps}, recover_lr {self.recover_lr:g}",
                "give steps from 0 up and a rate above 0",
            ),
            (
                not 0 <= self.max_drop <= 100,
                f"max_drop {self.max_drop:g}",
                "give points of the score, 0 to 100",
            ),
        ]
        for name in ("calibration_rows", "batch_size", "threads"):
            value = getattr(self, name)
            checks.append((value is not None and value < 1, f"{name} {value}", "give at least 1"))
        return found + [Problem(said, fix) for wrong, said, fix in checks if wrong]

    def check(self) -> None:
        """Raise LimbeckError with everything that is wrong."""
        if problems := self.problems():
            raise LimbeckError(problems)


def conversions(settings: ExportSettings) -> list[Conversion]:
    """What is tried, the fastest and smallest first."""
    fused = settings.fused and settings.format.startswith("onnx")
    if settings.format != "onnx-int8":
        words = f"{settings.precision}{', fused' if fused else ''}"
        return [Conversion(name=words, precision=settings.precision, fused=fused)]
    if settings.scheme == "static":
        return [_int8(settings, fused, per_channel=one) for one in (False, True)]
    found = [_int8(settings, fused, per_channel=one) for one in (False, True)]
    if settings.scheme == "auto":
        found.append(_int8(settings, fused, per_channel=True, reduce_range=True))
    return found


def _int8(
    settings: ExportSettings, fused: bool, *, per_channel: bool, reduce_range: bool = False
) -> Conversion:
    scheme = "static" if settings.scheme == "static" else "dynamic"
    bits = ", 7-bit weights" if reduce_range else ""
    return Conversion(
        name=f"int8 {scheme}, per {'channel' if per_channel else 'tensor'}{bits}",
        precision="int8",
        fused=fused,
        scheme=scheme,
        per_channel=per_channel,
        reduce_range=reduce_range,
        calibration_rows=settings.calibration_rows if scheme == "static" else 0,
    )


def keeping(conversion: Conversion, nodes: list[str]) -> Conversion:
    """The conversion with these nodes left in float."""
    named = f"{conversion.name}, {len(nodes)} in float"
    return conversion.model_copy(update={"name": named, "kept_in_float": nodes})


def recovering(conversion: Conversion, steps: int) -> Conversion:
    """The conversion of a model that was prepared for it."""
    named = f"{conversion.name}, after {steps} steps of quantisation-aware distillation"
    return conversion.model_copy(update={"name": named, "recovery_steps": steps})


# From an ONNX file to OpenVINO's own two files, weights beside the graph.


OPENVINO_FILE = "model.xml"


def write_openvino(source: Path, target: Path, *, half: bool) -> None:
    """Write `source` (ONNX without ONNX Runtime's operators); `half` stores weights in fp16."""
    import openvino

    with quiet_export():
        model = openvino.convert_model(str(source))
        openvino.save_model(model, str(target), compress_to_fp16=half)


# From a torch model to an ExecuTorch program for CPUs (XNNPACK), by transformers' own exporter.


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
        raise LimbeckError(
            f"{type(model).__name__} cannot be converted to ExecuTorch: {first_line(error)}",
            "choose --format onnx",
        ) from error
    finally:
        for weight in trained:  # the exporter freezes them
            weight.requires_grad_(True)
