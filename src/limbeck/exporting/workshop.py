"""What all attempts of an export share: the model, the rows, and the float graph, written once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from limbeck.exporting.conversions import ExportSettings
from limbeck.exporting.gate import TorchReference
from limbeck.exporting.int8 import quantise, without_stale_shapes, write_openvino
from limbeck.exporting.onnx_graph import MODEL_FILE, write_onnx
from limbeck.runtimes.manifest import Attempt, Conversion
from limbeck.runtimes.sessions import GraphSession, open_file
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
        inputs: names of what the model reads.
        measured: of every file that came out, what its task type keeps of each row.
    """

    model: PreTrainedModel
    rows: EncodedSplit
    reference: TorchReference
    settings: ExportSettings
    part: Path
    begin: Phase
    inputs: tuple[str, ...] = ()
    measured: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the folder of what is not shipped."""
        self.work = self.part / "work"
        self.work.mkdir()
        self.openvino = self.settings.format == "openvino"
        self.shipped = self.part / ("model.xml" if self.openvino else MODEL_FILE)

    @cached_property
    def source(self) -> Path:
        """The graph in float, which every conversion starts from."""
        path = self.work / "float.onnx"
        self.begin("writing the graph (torch.export; about a minute, whatever the size)", None)
        few = range(min(_TRACED_ROWS, len(self.rows.encoded)))
        rows = [*self.rows.encoded.select(few)] * _TRACED_ROWS
        batch = self.rows.collator(rows[:_TRACED_ROWS])
        write_onnx(self.model, batch, path, fused=self.settings.fused and not self.openvino)
        without_stale_shapes(path)
        return path

    def open(self, path: Path) -> GraphSession:
        """Open a file of this export by the runtime it is for; ONNX's by ONNX Runtime."""
        runtime = "onnxruntime" if path.suffix == ".onnx" else "openvino"
        return open_file(path, runtime, self.settings.threads)

    def write(self, how: Conversion) -> None:
        """Make the file that is to be shipped."""
        for path in self.part.glob("model.*"):
            path.unlink()
        if self.openvino:
            write_openvino(self.source, self.shipped)
        elif how.precision == "int8":
            quantise(self.source, self.shipped, how)
        else:
            _copy(self.source, self.shipped)

    def clear(self, shipped: Attempt) -> None:
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
