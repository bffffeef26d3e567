"""Exported models and what runs them: ONNX Runtime, OpenVINO and ExecuTorch, beside torch.

`read_export(folder)` reads an exported folder's manifest, `OnnxPredictor.load(folder)` opens it,
`open_export` its model without a tokenizer, and `open_session` a model file alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from limbeck.runtimes.manifest import (
    EXPORT_NAME,
    EXPORTS,
    ExportManifest,
    exports_of,
    exports_of_student,
    is_export,
    read_export,
    remove_export,
    weights_of,
)
from limbeck.runtimes.sessions import (
    RUNTIMES,
    GraphSession,
    TextToTextSession,
    need_extra,
    open_export,
    open_files,
    open_session,
    readers_of,
)

if TYPE_CHECKING:
    from limbeck.runtimes.predictor import OnnxPredictor

__all__ = [
    "EXPORTS",
    "EXPORT_NAME",
    "RUNTIMES",
    "ExportManifest",
    "GraphSession",
    "OnnxPredictor",
    "TextToTextSession",
    "exports_of",
    "exports_of_student",
    "is_export",
    "need_extra",
    "open_export",
    "open_files",
    "open_session",
    "read_export",
    "readers_of",
    "remove_export",
    "weights_of",
]


def __getattr__(name: str) -> Any:
    # The predictor imports transformers; a process that times one file shall hold nothing else.
    if name == "OnnxPredictor":
        from limbeck.runtimes.predictor import OnnxPredictor

        return OnnxPredictor
    raise AttributeError(f"module 'limbeck.runtimes' has no attribute {name!r}")
