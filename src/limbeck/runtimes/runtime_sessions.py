"""One model file opened by ONNX Runtime, OpenVINO or ExecuTorch, on CPU."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.runtimes.extras import need_extra
from limbeck.runtimes.graph_session import GraphSession
from limbeck.support.errors import LimbeckError


class OnnxSession(GraphSession):
    """By ONNX Runtime, on CPU."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        need_extra("onnxruntime", "running an ONNX model")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # warnings are about its own choice of kernels
        if threads is not None:
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        # ONNX Runtime has a class of its own for each way a file can be broken, and no common base.
        except Exception as error:
            first = _first_line(error)
            raise LimbeckError(
                f"ONNX Runtime cannot open {path}: {first}", "export the model again"
            ) from error
        self.inputs = tuple(one.name for one in self._session.get_inputs())
        self.outputs = tuple(one.name for one in self._session.get_outputs())

    def run(self, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        """One forward pass."""
        return self._session.run(list(self.outputs), feed)


class OpenVinoSession(GraphSession):
    """By OpenVINO, on CPU; reads its own files and ONNX's."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        need_extra("openvino", "running a model by OpenVINO")
        import openvino

        settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
        if threads is not None:
            settings["INFERENCE_NUM_THREADS"] = threads
        # Its default on some processors is bf16, which is another model than was measured.
        settings["INFERENCE_PRECISION_HINT"] = "f32"
        try:
            self._compiled = openvino.Core().compile_model(str(path), "CPU", settings)
        except RuntimeError as error:
            first = _first_line(error)
            raise LimbeckError(
                f"OpenVINO cannot open {path}: {first}", "export the model again"
            ) from error
        self._request = self._compiled.create_infer_request()
        self.inputs = tuple(one.get_any_name() for one in self._compiled.inputs)
        self.outputs = tuple(one.get_any_name() for one in self._compiled.outputs)

    def run(self, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        """One forward pass."""
        results = self._request.infer(feed)
        return [np.array(results[index]) for index in range(len(self.outputs))]


class ExecuTorchSession(GraphSession):
    """By ExecuTorch. Its files name neither inputs nor outputs, so these are said."""

    def __init__(
        self,
        path: Path,
        threads: int | None,
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:
        need_extra("executorch", "running an ExecuTorch program")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own deprecations, and what is experimental in it
            try:
                self._method = _loaded(path, threads)
            except RuntimeError as error:
                raise LimbeckError(
                    f"ExecuTorch cannot open {path}: {_first_line(error)}", "export the model again"
                ) from error
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.largest = tuple(self._method.metadata.input_tensor_meta(0).sizes())
        self.most_rows = self.largest[0]

    def run(self, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        """One forward pass.

        Raises:
            LimbeckError: more rows, or longer ones, than memory was planned for.
        """
        import torch

        shape = feed[self.inputs[0]].shape
        if any(size > most for size, most in zip(shape, self.largest, strict=True)):
            sizes, most = (" × ".join(map(str, one)) for one in (shape, self.largest))
            raise LimbeckError(
                f"the ExecuTorch program was made for batches of at most {most}, not {sizes}",
                "give fewer rows at once or shorter ones, or export it again with a larger "
                "--batch-size or --max-length",
            )
        given = [torch.from_numpy(np.ascontiguousarray(feed[name])) for name in self.inputs]
        return [found.numpy().copy() for found in self._method.execute(given)]


def _loaded(path: Path, threads: int | None) -> Any:
    from executorch.runtime import Runtime

    if threads is not None:
        # Unsafe while a program runs in another thread; none does here.
        from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool

        _unsafe_reset_threadpool(threads)
    return Runtime.get().load_program(path).load_method("forward")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
