"""Libraries that only some installations have: asked for by the extra that brings them."""

from __future__ import annotations

from importlib.util import find_spec

from limbeck.support.errors import LimbeckError

EXTRAS = {
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "onnxruntime": ("onnxruntime",),
    "openvino": ("openvino",),
    "executorch": ("executorch",),
}
"""What is needed → the modules that have to be there."""
_BRINGS = {"onnxruntime": "onnx"}


def missing_of(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [name for name in EXTRAS[extra] if find_spec(name) is None]


def need_extra(extra: str, purpose: str) -> None:
    """Raise LimbeckError where the libraries for a purpose ("export to onnx") are not installed."""
    missing = missing_of(extra)
    if missing:
        raise LimbeckError(
            f"{purpose} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} "
            "not installed",
            f"pip install 'limbeck[{_BRINGS.get(extra, extra)}]'",
        )
