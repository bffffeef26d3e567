"""Settings of `limbeck export`, `cascade` and `shrink`, with their help; the attempts of each format. No torch.

Part of `limbeck.exporting`.
"""

from typing import Literal, get_args

from pydantic import Field

from limbeck.runtimes.manifest import Conversion
from limbeck.support.settings import Count, Settings, Words

StaticFormat = Literal["numpy", "numpy-int8", "model2vec", "model2vec-int8"]
"""Formats of static students only; sentence-transformers reads model2vec's too."""
STATIC_FORMATS = get_args(StaticFormat)
QUANTISED = ("onnx-int8", "onnx-int4")
"""Formats of graphs, whose layers can stay in float, and whose speed depends on the CPU."""

SIZES = ("layers", "pick", "hidden", "heads", "ffn", "vocabulary")
"""The keys of a recipe's `student` to which a finished model can be cut."""


class ExportSettings(Settings):
    """Settings of an export."""

    format: Literal["onnx", "onnx-int8", "onnx-int4", "openvino", StaticFormat] = Field(
        "onnx",
        description="onnx, onnx-int8, onnx-int4 or openvino; of static students also numpy, numpy-int8, model2vec or "
        "model2vec-int8 (which sentence-transformers reads too)",
    )
    embedding_bits: Literal[4, 8] | None = Field(
        None,
        description="onnx-int8: of a weight of embedding tables, which are most of a small student; onnx-int4 has 4; "
        "default: 8, or 4 for a student trained with them",
    )
    fused: bool = Field(
        True, description="with ONNX Runtime's own operators; no other runtime reads them"
    )
    max_drop: float = Field(
        0.5,
        ge=0,
        le=100,
        description="most points of the primary score that an export may lose; a larger loss is an error",
    )
    keep_sensitive: bool = Field(
        True, description="where int8 fails, leave the layers in float that it hurts most"
    )
    batch_size: Count = Field(32, description="rows of a batch while measuring")
    threads: Count | None = Field(
        None, description="threads of the runtime; by default its own choice"
    )


class CascadeSettings(Settings):
    """The goal of a cascade's thresholds: one of these."""

    max_drop: float | None = Field(
        None,
        description="most points of the primary score lost compared with SLOW; the default goal, with 0.3",
    )
    score: float | None = Field(None, description="the primary score to reach, 0 to 100")
    agreement: float | None = Field(
        None, description="percent of rows to predict as SLOW does; needs no labels"
    )
    cost: float | None = Field(None, description="percent of SLOW's time that a row may cost")


class ShrinkSettings(Settings):
    """The text that decides which parts of a model are kept."""

    data: Words = Field(
        (),
        description="files or folders of the text that is to be read: plain text, CSV, TSV, JSON lines, Parquet",
    )
    also: Words = Field(
        (), description="more files, which decide nothing: how they are read is printed too"
    )
    task: str | None = Field(None, description="known task whose folder DATA is, such as sst2")
    text_columns: Words = Field((), description="columns that hold text, one or two")


def conversions(settings: ExportSettings) -> list[Conversion]:
    """The conversions to try, the fastest and smallest first."""
    fused = settings.fused and settings.format.startswith("onnx")
    if settings.format in STATIC_FORMATS:
        precision = "int8" if settings.format.endswith("-int8") else "fp32"
        return [Conversion(name=precision, precision=precision, fused=False)]
    if settings.format == "onnx-int4":
        return [
            Conversion(
                name=f"int4 weights in blocks of {block}",
                precision="int4",
                fused=fused,
                per_channel=True,
                four_bits=["MatMul", "Gather"],
                block=block,
            )
            for block in (32, 16)
        ]
    if settings.format != "onnx-int8":
        return [Conversion(name=f"fp32{', fused' if fused else ''}", fused=fused)]
    small = settings.embedding_bits == 4
    # One scale for a complete matrix saves neither bytes nor time, and its largest channel costs the others precision.
    return [
        Conversion(
            name=f"int8 dynamic, per channel{way}{', embeddings int4' if small else ''}",
            precision="int8",
            fused=fused,
            per_channel=True,
            reduce_range=bool(way),
            four_bits=["Gather"] if small else [],
        )
        for way in ("", ", 7-bit weights")
    ]
