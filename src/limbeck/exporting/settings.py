"""Settings of `limbeck export`, whose descriptions are its help, and what each format tries. Free of torch.

Part of `limbeck.exporting`.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from limbeck.runtimes.manifest import Conversion
from limbeck.support.settings import Count, Settings

StaticFormat = Literal["numpy", "numpy-int8", "model2vec", "model2vec-int8"]
"""Of static students alone; sentence-transformers reads model2vec's too."""
STATIC_FORMATS = get_args(StaticFormat)


class ExportSettings(Settings):
    """What is asked of an export."""

    format: Literal["onnx", "onnx-int8", "openvino", StaticFormat] = Field(
        "onnx",
        description="onnx, onnx-int8 or openvino; of static students also numpy, numpy-int8, model2vec or "
        "model2vec-int8 (which sentence-transformers reads too)",
    )
    fused: bool = Field(
        True, description="with ONNX Runtime's own operators; no other runtime reads them"
    )
    max_drop: float = Field(
        0.5,
        ge=0,
        le=100,
        description="points of the primary score that may be lost; beyond it is refused",
    )
    keep_sensitive: bool = Field(
        True, description="where int8 fails, leave the layers in float that it hurts most"
    )
    batch_size: Count = Field(32, description="rows of a batch while measuring")
    threads: Count | None = Field(
        None, description="threads of the runtime; by default its own choice"
    )


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
