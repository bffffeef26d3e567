"""What all attempts of an export share: the model, the rows, and the float graphs, written once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from limbeck.exporting.conversions import ExportSettings
from limbeck.exporting.gate import TorchReference
from limbeck.exporting.int8 import half, quantise, without_stale_shapes, write_openvino
from limbeck.exporting.onnx_graph import MODEL_FILE, PARTS, write_onnx, write_text_to_text
from limbeck.runtimes.manifest import Conversion, Generation
from limbeck.runtimes.sessions import GraphSession, open_files
from limbeck.scoring.scored_model import EncodedSplit

_TRACED_ROWS = 2
Phase = Callable[[str, int | None], Callable[[int], None]]
"""Begins to show a phase of so many steps, and returns what shows that steps are done."""


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
        inputs: names of what the model reads.
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
    inputs: tuple[str, ...] = ()
    measured: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Names of the model's files, where they are shipped from: one, or an encoder's and a decoder's."""
        self.work = self.part / "work"
        self.work.mkdir()
        self.openvino = self.settings.format == "openvino"
        self._names = (Path(MODEL_FILE).stem,) if self.generation is None else PARTS
        ending = ".xml" if self.openvino else ".onnx"
        self.shipped = [self.part / f"{name}{ending}" for name in self._names]

    @cached_property
    def sources(self) -> list[Path]:
        """The graphs in float, which every conversion starts from."""
        paths = [self.work / f"{name}-float.onnx" for name in self._names]
        if self.graphs:
            for graph, path in zip(self.graphs, paths, strict=True):
                _copy(graph, path)
            return paths
        self.begin("writing the graph (torch.export; about a minute, whatever the size)", None)
        fused = self.settings.fused and not self.openvino
        few = range(min(_TRACED_ROWS, len(self.rows.encoded)))
        rows = [*self.rows.encoded.select(few)] * _TRACED_ROWS
        batch = self.rows.collator(rows[:_TRACED_ROWS])
        if self.generation is None:
            write_onnx(self.model, batch, paths[0], fused=fused)
        else:
            write_text_to_text(self.model, batch, paths, fused=fused)
        for path in paths:
            without_stale_shapes(path)
        return paths

    def open(self, files: Sequence[Path]) -> GraphSession:
        """Open files of this export by the runtime it is for; ONNX's by ONNX Runtime."""
        runtime = "onnxruntime" if files[0].suffix == ".onnx" else "openvino"
        return open_files(files, runtime, self.settings.threads, self.generation)

    def write(self, how: Conversion) -> None:
        """Make the files that are to be shipped."""
        for stem in self._names:
            for path in self.part.glob(f"{stem}.*"):
                path.unlink()
        for source, target in zip(self.sources, self.shipped, strict=True):
            if self.openvino:
                write_openvino(source, target, half=how.precision == "fp16")
            elif how.precision == "int8":
                quantise(source, target, how)
            elif how.precision == "fp16":
                half(source, target)
            else:
                _copy(source, target)

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
