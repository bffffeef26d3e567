"""One model file opened by ONNX Runtime, OpenVINO or ExecuTorch, on CPU."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.runtimes.manifest import ExportManifest, Generation
from limbeck.support.errors import LimbeckError, first_line, unknown

# What an opened model does, whatever runs it: batches of arrays in, logits out.


class GraphSession(ABC):
    """One opened model file.

    Attributes:
        inputs: names of what it reads.
        outputs: names of what it returns: `logits`, or `start_logits` and `end_logits`.
        most_rows: of a batch; None where any number will do.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    most_rows: int | None = None

    @abstractmethod
    def run(self, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        """All outputs, in the order of `outputs`, for arrays named as `inputs`."""

    def rows_at_once(self, batch_size: int) -> int:
        """How many rows a batch may have where so many are wanted."""
        return batch_size if self.most_rows is None else min(batch_size, self.most_rows)

    def feed(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The arrays the model reads, of a batch of arrays or CPU tensors; other keys are left out.

        Raises:
            LimbeckError: the batch lacks an input.
        """
        missing = [name for name in self.inputs if name not in batch]
        if missing:
            raise LimbeckError(
                f"the exported model reads {', '.join(missing)}, which the batch does not hold",
                "make batches with the tokenizer that lies beside the model",
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
            raise LimbeckError(
                f"ONNX Runtime cannot open {path}: {first_line(error)}", "export the model again"
            ) from error
        self.inputs = tuple(one.name for one in self._session.get_inputs())
        self.outputs = tuple(one.name for one in self._session.get_outputs())

    def run(self, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        """One forward pass."""
        found: list[np.ndarray] = self._session.run(list(self.outputs), feed)
        return found


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
            raise LimbeckError(
                f"OpenVINO cannot open {path}: {first_line(error)}", "export the model again"
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
                    f"ExecuTorch cannot open {path}: {first_line(error)}", "export the model again"
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


# Text to text from two files: an encoder that runs once, and a decoder that runs once a token. The
# decoder reads all tokens so far at every step and keeps nothing between them: answers are label
# words of a few tokens, for which stored keys and values would save little.


NO_LABEL = -100
"""What stands after a row's target tokens."""


class TextToTextSession(GraphSession):
    """An encoder and a decoder as one model.

    Attributes:
        encoder: reads `input_ids` and `attention_mask`, returns `last_hidden_state`.
        decoder: reads `input_ids`, `encoder_hidden_states` and `encoder_attention_mask`, returns
            `logits`.
        generation: where answers begin and end.
    """

    outputs = ("logits",)

    def __init__(
        self, encoder: GraphSession, decoder: GraphSession, generation: Generation
    ) -> None:
        self.encoder, self.decoder, self.generation = encoder, decoder, generation
        self.inputs = (*encoder.inputs, "decoder_input_ids")

    def run(self, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        """One pass of both."""
        return self._decode(feed["decoder_input_ids"], self._encode(feed))

    def feed(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The arrays both read; the decoder's tokens are made of `labels` where they are not given.

        Raises:
            LimbeckError: the batch lacks an input.
        """
        if "decoder_input_ids" in batch or "labels" not in batch:
            return super().feed(batch)
        shifted = shifted_right(np.asarray(batch["labels"]), self.generation)
        return super().feed({**batch, "decoder_input_ids": shifted})

    def decoder_feed(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """What the decoder reads of a batch with labels."""
        feed = self.feed(batch)
        return self._decoder_feed(feed["decoder_input_ids"], self._encode(feed))

    def generated(self, batch: Mapping[str, Any], longest: int) -> np.ndarray:
        """Greedily generated token ids (B, T), the start token first, as transformers returns them.

        A row that has ended is filled with the pad token; the batch ends when all rows have, or after
        `longest` tokens.
        """
        known = self._encode({name: np.asarray(batch[name]) for name in self.encoder.inputs})
        how = self.generation
        rows = len(next(iter(known.values())))
        ids = np.full((rows, 1), how.start, np.int64)
        ended = np.zeros(rows, bool)
        for _ in range(longest):
            (logits,) = self._decode(ids, known)
            new = np.where(ended, how.pad, logits[:, -1].argmax(-1))
            ids = np.concatenate([ids, new[:, None]], axis=1)
            ended |= np.isin(new, how.ends)
            if ended.all():
                break
        return ids

    def _encode(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        (hidden,) = self.encoder.run({name: feed[name] for name in self.encoder.inputs})
        return {"encoder_hidden_states": hidden, "encoder_attention_mask": feed["attention_mask"]}

    def _decoder_feed(
        self, ids: np.ndarray, known: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        given = {"input_ids": ids, **known}
        return {name: given[name] for name in self.decoder.inputs}

    def _decode(self, ids: np.ndarray, known: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return self.decoder.run(self._decoder_feed(ids, known))


def shifted_right(labels: np.ndarray, how: Generation) -> np.ndarray:
    """Target tokens (B, T) as the decoder reads them: the start token first, the last left out."""
    start = np.full((len(labels), 1), how.start, np.int64)
    shifted = np.concatenate([start, labels[:, :-1]], axis=1)
    shifted[shifted == NO_LABEL] = how.pad
    return shifted


# Open what was exported: a file by the runtime that is named, or a whole folder by its manifest.


RUNTIMES = ("onnxruntime", "openvino", "executorch")


def open_files(
    files: Sequence[Path],
    *,
    runtime: str = "onnxruntime",
    threads: int | None = None,
    generation: Generation | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = ("logits",),
) -> GraphSession:
    """Open a model on CPU: of one file, or of an encoder's and a decoder's with `generation`.

    Args:
        files: `.onnx`; for OpenVINO also `.xml`; for ExecuTorch `.pte`.
        runtime: one of `RUNTIMES`.
        threads: how many compute one pass; by default the runtime's own choice.
        generation: of text to text, where answers begin and end.
        inputs: names of what an ExecuTorch program reads, in its order; other files name their own.
        outputs: likewise.

    Raises:
        LimbeckError: the runtime is unknown or not installed, or cannot open a file.
    """
    if runtime not in RUNTIMES:
        raise LimbeckError(unknown("runtime", runtime, RUNTIMES))
    opened: list[GraphSession] = []
    for path in files:
        if runtime == "executorch":
            opened.append(ExecuTorchSession(path, threads, inputs, outputs))
        else:
            kind = OnnxSession if runtime == "onnxruntime" else OpenVinoSession
            opened.append(kind(path, threads))
    return opened[0] if generation is None else TextToTextSession(opened[0], opened[1], generation)


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
    wanted = check_reader(manifest, runtime)
    return open_files(
        manifest.files,
        runtime=wanted,
        threads=threads,
        generation=manifest.generation,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
    )


def check_reader(manifest: ExportManifest, runtime: str | None = None) -> str:
    """The runtime that is named, or the folder's own, if it is installed and reads the folder.

    Raises:
        LimbeckError: it is unknown, not installed, or does not.
    """
    if runtime is not None and runtime not in RUNTIMES:
        raise LimbeckError(unknown("runtime", runtime, RUNTIMES))
    wanted = runtime or manifest.runtime
    if wanted not in readers_of(manifest):
        raise LimbeckError(
            f"{str(manifest.folder)!r} holds {manifest.file}, which {_NAMES[wanted]} does not read",
            f"use --backend {manifest.runtime}, or export it again in another format",
        )
    need_extra(wanted, f"the backend {wanted}")
    return wanted


def readers_of(manifest: ExportManifest) -> tuple[str, ...]:
    """The runtimes that read an exported folder, its own first."""
    if manifest.runtime == "onnxruntime" and not manifest.conversion.fused:
        return "onnxruntime", "openvino"
    return (manifest.runtime,)


_NAMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "executorch": "ExecuTorch"}


# Libraries that only some installations have: asked for by the extra that brings them.


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
