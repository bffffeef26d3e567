"""What all attempts of an export share: the model, the rows, and the float graphs, written once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.data import batches_of
from limbeck.exporting.conversions import (
    ExportSettings,
    returned_logits,
    write_executorch,
    write_openvino,
)
from limbeck.exporting.gate import TorchReference
from limbeck.exporting.int8 import (
    Feed,
    few_training_rows,
    half,
    quantise,
    recovered,
    without_stale_shapes,
)
from limbeck.exporting.onnx_graph import (
    MODEL_FILE,
    PARTS,
    model_inputs,
    write_onnx,
    write_text_to_text,
)
from limbeck.runtimes.manifest import Conversion, Generation
from limbeck.runtimes.sessions import GraphSession, TextToTextSession, open_files
from limbeck.scoring.scored_model import EncodedSplit

_TRACED_ROWS = 2
_CONVERTING = "writing the graph (torch.export; about a minute, whatever the model's size)"
Phase = Callable[[str, int | None], Callable[[int], None]]
"""Begins to show a phase of so many steps, and returns what shows that steps are done."""
_ENDINGS = {"openvino": ".xml", "executorch": ".pte"}


@dataclass
class Workshop:
    """What all attempts share.

    Attributes:
        model: on CPU, in float32.
        rows: the gate's.
        reference: the model's own outputs on them.
        settings: what is asked.
        part: the folder that is written.
        begin: begins to show a phase.
        generation: of text to text, where answers begin and end.
        graphs: the float graphs of the same weights in another export, to be copied and not written again.
        recovered: a copy of the model that was prepared for a conversion, where one is gone on with.
        inputs, outputs: names of what the model reads and returns.
        measured: of every file that came out, what its task type keeps of each row.
    """

    model: PreTrainedModel
    rows: EncodedSplit
    reference: TorchReference
    settings: ExportSettings
    part: Path
    begin: Phase
    generation: Generation | None = None
    graphs: Sequence[Path] = ()
    recovered: PreTrainedModel | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("logits",)
    measured: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Names of the model's files, where they are shipped from: one, or an encoder's and a decoder's."""
        self.work = self.part / "work"
        self.work.mkdir()
        ending = _ENDINGS.get(self.settings.format, ".onnx")
        self._names = (Path(MODEL_FILE).stem,) if self.generation is None else PARTS
        self.shipped = [self.part / f"{name}{ending}" for name in self._names]

    @property
    def runtime(self) -> str:
        """What the files are for."""
        return self.settings.format if self.settings.format in _ENDINGS else "onnxruntime"

    def recover(self, how: Conversion) -> None:
        """Go on with a copy of the model that has been prepared for a conversion.

        Raises:
            LimbeckError: the source has no training rows.
        """
        steps = self.settings.recover_steps
        step = self.begin("quantisation-aware distillation", steps)
        self.recovered = recovered(
            self.model, self.rows, how, steps=steps, lr=self.settings.recover_lr, step=step
        )

    @property
    def sources(self) -> list[Path]:
        """The graphs in float, which every conversion starts from."""
        form = "float" if self.recovered is None else "recovered"
        paths = [self.work / f"{name}-{form}.onnx" for name in self._names]
        if all(path.exists() for path in paths):
            return paths
        if self.recovered is None and self.graphs:
            for graph, path in zip(self.graphs, paths, strict=True):
                _copy(graph, path)
        else:
            self.begin(_CONVERTING, None)
            fused = self.settings.fused and self.runtime == "onnxruntime"
            model = self.model if self.recovered is None else self.recovered
            few = self._few()
            if self.generation is None:
                write_onnx(model, few, paths[0], fused=fused)
            else:
                write_text_to_text(model, few, paths, fused=fused)
            for path in paths:
                without_stale_shapes(path)
        return paths

    def open(self, files: Sequence[Path]) -> GraphSession:
        """Open files of this export by the runtime it is for; ONNX's by ONNX Runtime."""
        return open_files(
            files,
            runtime="onnxruntime" if files[0].suffix == ".onnx" else self.runtime,
            threads=self.settings.threads,
            generation=self.generation,
            inputs=self.inputs,
            outputs=self.outputs,
        )

    def feeds(self, rows: int, size: int) -> list[Feed]:
        """Training rows as the session reads them; dev rows where a source has no others."""
        session = self.open(self.sources)
        if self.rows.loaded.training is not None:
            batches = self._training_batches(rows, size)
        else:
            batches = self.rows.batches(size)
        found = []
        for batch in batches:
            found.append(session.feed(batch))
            if len(found) * size >= rows:
                break
        return found

    def _training_batches(self, rows: int, size: int) -> Iterator[dict[str, Tensor]]:
        encoded = few_training_rows(self.rows, rows)
        return batches_of(encoded, self.rows.collator, size, "cpu")

    def calibration(self, rows: int) -> list[list[Feed]]:
        """For each graph, what static int8 feeds it: training rows one by one, as padding widens ranges.

        Raises:
            LimbeckError: the source has no training rows.
        """
        session = self.open(self.sources)
        batches = list(self._training_batches(rows, 1))
        if not isinstance(session, TextToTextSession):
            return [[session.feed(batch) for batch in batches]]
        return [
            [session.encoder.feed(batch) for batch in batches],
            [session.decoder_feed(batch) for batch in batches],
        ]

    def write(self, how: Conversion) -> None:
        """Make the files that are to be shipped."""
        for stem in self._names:
            for path in self.part.glob(f"{stem}.*"):
                path.unlink()
        if self.settings.format == "executorch":
            self._write_executorch()
            return
        calibration = self.calibration(how.calibration_rows) if how.scheme == "static" else None
        for at, (source, target) in enumerate(zip(self.sources, self.shipped, strict=True)):
            if self.settings.format == "openvino":
                write_openvino(source, target, half=how.precision == "fp16")
            elif how.precision == "int8":
                quantise(source, target, how, calibration=calibration[at] if calibration else ())
            elif how.precision == "fp16":
                half(source, target)
            else:
                _copy(source, target)

    def _write_executorch(self) -> None:
        self.begin(_CONVERTING, None)
        batch = model_inputs(self.model, self._few())
        self.inputs = tuple(batch)
        self.outputs = returned_logits(self.model, batch)
        largest = self.settings.batch_size, self.rows.max_length
        write_executorch(self.model, batch, self.shipped[0], outputs=self.outputs, largest=largest)

    def _few(self) -> dict[str, Tensor]:
        """A batch to trace the model with."""
        collate = self.rows.collator
        few = self.rows.encoded.select(range(min(_TRACED_ROWS, len(self.rows.encoded))))
        return collate([few[place % len(few)] for place in range(_TRACED_ROWS)])

    def clear(self) -> None:
        """Remove what is not shipped."""
        shutil.rmtree(self.work)


def _copy(source: Path, target: Path) -> None:
    """A model's file and the data beside it, which it names."""
    beside = source.with_name(f"{source.name}.data")
    if not beside.is_file():
        shutil.copyfile(source, target)
        return
    import onnx

    model = onnx.load(source)
    onnx.save(model, target, save_as_external_data=True, location=f"{target.name}.data")
