"""Open what was exported: a file by the runtime that is named, or a whole folder by its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from limbeck.runtimes.export_manifest import ExportManifest, Generation
from limbeck.runtimes.graph_session import GraphSession
from limbeck.runtimes.runtime_sessions import ExecuTorchSession, OnnxSession, OpenVinoSession
from limbeck.runtimes.text_to_text import TextToTextSession
from limbeck.support.errors import LimbeckError, unknown

RUNTIMES = ("onnxruntime", "openvino", "executorch")
_LOGITS = ("logits",)


def open_session(
    path: Path,
    *,
    runtime: str = "onnxruntime",
    threads: int | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = _LOGITS,
) -> GraphSession:
    """Open a model file on CPU.

    Args:
        path: `.onnx`; for OpenVINO also `.xml`; for ExecuTorch `.pte`.
        runtime: one of `RUNTIMES`.
        threads: how many compute one pass; by default the runtime's own choice.
        inputs: names of what an ExecuTorch program reads, in its order; other files name their own.
        outputs: likewise.

    Raises:
        LimbeckError: the runtime is unknown or not installed, or cannot open the file.
    """
    if runtime not in RUNTIMES:
        raise LimbeckError(unknown("runtime", runtime, RUNTIMES))
    if runtime == "executorch":
        return ExecuTorchSession(path, threads, inputs, outputs)
    kind = OnnxSession if runtime == "onnxruntime" else OpenVinoSession
    return kind(path, threads)


def open_files(
    files: Sequence[Path],
    *,
    runtime: str = "onnxruntime",
    threads: int | None = None,
    generation: Generation | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = _LOGITS,
) -> GraphSession:
    """Open a model of one file, or of an encoder's and a decoder's with `generation`.

    Raises:
        LimbeckError: as `open_session`.
    """
    opened = [
        open_session(path, runtime=runtime, threads=threads, inputs=inputs, outputs=outputs)
        for path in files
    ]
    if generation is None:
        return opened[0]
    return TextToTextSession(opened[0], opened[1], generation)


def open_export(
    manifest: ExportManifest, *, runtime: str | None = None, threads: int | None = None
) -> GraphSession:
    """Open the model of an exported folder.

    Args:
        manifest: as `read_export` returned it.
        runtime: one of `RUNTIMES`; by default the one the folder was measured with.
        threads: how many compute one pass; by default the runtime's own choice.

    Raises:
        LimbeckError: a runtime that is unknown, not installed, or that does not read the file.
    """
    if runtime is not None and runtime not in RUNTIMES:
        raise LimbeckError(unknown("runtime", runtime, RUNTIMES))
    wanted = runtime or manifest.runtime
    if wanted not in readers_of(manifest):
        raise LimbeckError(
            f"{str(manifest.folder)!r} holds {manifest.file}, which {_NAMES[wanted]} does not read",
            f"use --backend {manifest.runtime}, or export it again in another format",
        )
    return open_files(
        manifest.files,
        runtime=wanted,
        threads=threads,
        generation=manifest.generation,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
    )


def readers_of(manifest: ExportManifest) -> tuple[str, ...]:
    """The runtimes that read an exported folder, its own first."""
    if manifest.runtime == "onnxruntime" and not manifest.conversion.fused:
        return "onnxruntime", "openvino"
    return (manifest.runtime,)


_NAMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "executorch": "ExecuTorch"}
