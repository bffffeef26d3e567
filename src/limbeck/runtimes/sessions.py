"""One model file opened by ONNX Runtime, OpenVINO or NumPy, on CPU."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.runtimes.manifest import ExportManifest
from limbeck.support.errors import LimbeckError, check_choice, first_line

Feed = dict[str, np.ndarray]
"""Arrays by the names of a model's inputs."""

# The interface of an opened model, for every runtime: batches of arrays in, logits out.


class GraphSession(ABC):
    """One opened model file.

    Attributes:
        name: the runtime's, for messages.
        inputs: names of its inputs.
        outputs: names of its outputs: `logits`, or `start_logits` and `end_logits`.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @abstractmethod
    def run(self, feed: Feed) -> list[np.ndarray]:
        """All outputs, in the order of `outputs`, for arrays named as `inputs`."""

    def feed(self, batch: Mapping[str, Any]) -> Feed:
        """The arrays the model reads, of a batch of arrays or CPU tensors; other keys are left out.

        Raises:
            LimbeckError: the batch lacks an input.
        """
        missing = [name for name in self.inputs if name not in batch]
        if missing:
            raise LimbeckError(
                f"the exported model reads {', '.join(missing)}, which the batch does not hold",
                "make batches with the tokenizer in the model's folder",
            )
        return {name: np.asarray(batch[name]) for name in self.inputs}

    def logits(self, batch: Mapping[str, Any]) -> np.ndarray:
        """Logits as the torch model's: (B, C), (B, N, C), or start and end (B, N, 2); float32.

        Raises:
            LimbeckError: the batch lacks an input, or the runtime answered other rows than it was given.
        """
        feed = self.feed(batch)
        found = self.run(feed)
        merged = found[0] if len(found) == 1 else np.stack(found, axis=-1)
        rows = len(feed[self.inputs[0]])
        # OpenVINO returns an empty array where a kernel it chose cannot run on this processor.
        if len(merged) != rows:
            raise LimbeckError(
                f"the exported model answered {len(merged)} rows where it was given {rows}",
                "its runtime fails on this processor: choose another runtime, export to another "
                "format, or unset ONEDNN_MAX_CPU_ISA where it is set",
            )
        return merged.astype(np.float32, copy=False)


class OnnxSession(GraphSession):
    """By ONNX Runtime, on CPU."""

    name = "ONNX Runtime"

    def __init__(self, path: Path, threads: int | None = None) -> None:
        need_extra("onnxruntime", "running an ONNX model")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # warnings are about its own choice of kernels
        if threads is not None:
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
        # It has a class of its own for each way a file can be broken, and no common base.
        with _opening(self.name, path, Exception):
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        self.inputs = tuple(one.name for one in self._session.get_inputs())
        self.outputs = tuple(one.name for one in self._session.get_outputs())

    def run(self, feed: Feed) -> list[np.ndarray]:
        """One forward pass."""
        found: list[np.ndarray] = self._session.run(list(self.outputs), feed)
        return found


class OpenVinoSession(GraphSession):
    """By OpenVINO, on CPU; reads its own files and ONNX's."""

    name = "OpenVINO"

    def __init__(self, path: Path, threads: int | None = None) -> None:
        need_extra("openvino", "running a model by OpenVINO")
        import openvino

        settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
        if threads is not None:
            settings["INFERENCE_NUM_THREADS"] = threads
        # Its default on some processors is bf16, which is another model than was measured.
        settings["INFERENCE_PRECISION_HINT"] = "f32"
        with _opening(self.name, path, RuntimeError):
            compiled = openvino.Core().compile_model(str(path), "CPU", settings)
        self._request = compiled.create_infer_request()
        self.inputs = tuple(one.get_any_name() for one in compiled.inputs)
        self.outputs = tuple(one.get_any_name() for one in compiled.outputs)

    def run(self, feed: Feed) -> list[np.ndarray]:
        """One forward pass."""
        results = self._request.infer(feed)
        return [np.array(results[index]) for index in range(len(self.outputs))]


class NumpySession(GraphSession):
    """A static student's folder by NumPy, which takes as many threads as it likes."""

    name = "NumPy"
    inputs = ("input_ids", "attention_mask")
    outputs = ("logits",)

    def __init__(self, path: Path, threads: int | None = None) -> None:
        from limbeck.static.reader import StaticReader

        # safetensors and tokenizers have no common class of errors.
        with _opening(self.name, path, Exception):
            self._reader = StaticReader(path.parent)

    def run(self, feed: Feed) -> list[np.ndarray]:
        """Row by row, without padding."""
        rows = zip(feed["input_ids"], feed["attention_mask"] != 0, strict=True)
        return [np.stack([self._reader.output(ids[real]) for ids, real in rows])]


@contextmanager
def _opening(runtime: str, path: Path, errors: type[Exception]) -> Iterator[None]:
    """One LimbeckError for whatever a runtime raises of a file that it cannot open."""
    try:
        yield
    except errors as error:
        raise LimbeckError(
            f"{runtime} cannot open {path}: {first_line(error)}", "export the model again"
        ) from error


# Open an exported model: a file by the named runtime, or a complete folder by its manifest.


_SESSIONS: dict[str, type[OnnxSession | OpenVinoSession | NumpySession]] = {
    "onnxruntime": OnnxSession,
    "openvino": OpenVinoSession,
    "numpy": NumpySession,
}
RUNTIMES = tuple(_SESSIONS)


def open_file(path: Path, runtime: str = "onnxruntime", threads: int | None = None) -> GraphSession:
    """Open a model on CPU.

    Args:
        path: `.onnx`; for OpenVINO also `.xml`.
        runtime: one of `RUNTIMES`.
        threads: how many compute one pass; by default the runtime's own choice.

    Raises:
        LimbeckError: the runtime is not installed, or cannot open the file.
    """
    return _SESSIONS[runtime](path, threads)


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
    return open_file(manifest.path, check_reader(manifest, runtime), threads)


def check_reader(manifest: ExportManifest, runtime: str | None = None) -> str:
    """The runtime that is named, or the folder's own, if it is installed and reads the folder.

    Raises:
        LimbeckError: it is unknown, not installed, or does not.
    """
    wanted = runtime or manifest.runtime
    if manifest.runtime not in RUNTIMES:
        raise LimbeckError(
            f"{str(manifest.folder)!r} is for {manifest.runtime} and sentence-transformers; limbeck does not run it",
            "load it there, or export the model with --format numpy or onnx",
        )
    check_choice("runtime", wanted, RUNTIMES)
    if wanted not in readers_of(manifest):
        raise LimbeckError(
            f"{str(manifest.folder)!r} holds {manifest.file}, which {_SESSIONS[wanted].name} does not read",
            f"use --backend {manifest.runtime}, or export it again in another format",
        )
    need_extra(wanted, f"the backend {wanted}")
    return wanted


def readers_of(manifest: ExportManifest) -> tuple[str, ...]:
    """The runtimes that read an exported folder, its own first."""
    if manifest.runtime == "onnxruntime" and not manifest.conversion.fused:
        return "onnxruntime", "openvino"
    return (manifest.runtime,) if manifest.runtime in RUNTIMES else ()


# Libraries that only some installations have: installed by an extra.


_MODULES = {"onnx": ("onnx", "onnxscript", "onnxruntime")}
"""Requirement → its modules, if they have another name."""


def need_extra(needed: str, purpose: str) -> None:
    """Raise LimbeckError where the libraries for a purpose ("export to onnx") are not installed."""
    missing = [name for name in _MODULES.get(needed, (needed,)) if find_spec(name) is None]
    if missing:
        extra = "onnx" if needed == "onnxruntime" else needed
        raise LimbeckError(
            f"{purpose} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            f"pip install 'limbeck[{extra}]'",
        )
