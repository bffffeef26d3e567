"""Which conversions a format tries, in order: the first that passes the gate is shipped."""

from __future__ import annotations

from dataclasses import dataclass

from limbeck.runtimes.manifest import Conversion
from limbeck.support.errors import LimbeckError, Problem, unknown

STATIC_FORMATS = ("numpy", "numpy-int8", "model2vec", "model2vec-int8")
"""Of static students alone; sentence-transformers reads model2vec's too."""
FORMATS = ("onnx", "onnx-int8", "openvino", *STATIC_FORMATS)


@dataclass(frozen=True)
class ExportSettings:
    """What is asked of an export.

    Attributes:
        format: one of `FORMATS`.
        fused: with ONNX Runtime's own operators.
        max_drop: points of the primary score that may be lost.
        keep_sensitive: where int8 fails the gate, leave its most sensitive nodes in float.
        batch_size: rows of a batch at the gate.
        threads: of the runtime at the gate; None for its own choice.
    """

    format: str = "onnx"
    fused: bool = True
    max_drop: float = 0.5
    keep_sensitive: bool = True
    batch_size: int = 32
    threads: int | None = None

    def check(self) -> None:
        """Raise LimbeckError with everything that is wrong."""
        problems = []
        if self.format not in FORMATS:
            problems.append(unknown("format", self.format, FORMATS))
        if not 0 <= self.max_drop <= 100:
            said = f"max_drop {self.max_drop:g}"
            problems.append(Problem(said, "give points of the score, 0 to 100"))
        for name, value in (("batch_size", self.batch_size), ("threads", self.threads)):
            if value is not None and value < 1:
                problems.append(Problem(f"{name} {value}", "give at least 1"))
        if problems:
            raise LimbeckError(problems)


def conversions(settings: ExportSettings) -> list[Conversion]:
    """What is tried, the fastest and smallest first."""
    fused = settings.fused and settings.format.startswith("onnx")
    if settings.format in STATIC_FORMATS:
        precision = "int8" if settings.format.endswith("-int8") else "fp32"
        return [Conversion(name=precision, precision=precision, fused=False)]
    if settings.format != "onnx-int8":
        return [Conversion(name=f"fp32{', fused' if fused else ''}", fused=fused)]
    ways = (("tensor", False), ("channel", False), ("channel, 7-bit weights", True))
    return [
        Conversion(
            name=f"int8 dynamic, per {way}",
            precision="int8",
            fused=fused,
            per_channel=way != "tensor",
            reduce_range=reduced,
        )
        for way, reduced in ways
    ]
