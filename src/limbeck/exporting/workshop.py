"""What all attempts of an export share: the model, the rows, and the float graph, written once."""

import copy
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
from transformers import PreTrainedModel

from limbeck.data import encode
from limbeck.exporting import onnx_graph
from limbeck.exporting.gate import TorchReference
from limbeck.exporting.settings import ExportSettings
from limbeck.runtimes.manifest import Attempt, Conversion
from limbeck.runtimes.sessions import GraphSession, open_file
from limbeck.scoring.scored_model import EncodedSplit
from limbeck.static import StaticStudent, write_model2vec, write_plain
from limbeck.static.formats import bare_tokenizer

_TRACED_ROWS = 2
Phase = Callable[[str, int | None], Callable[[int], None]]
"""Begins to show a phase with a number of steps, and returns a function that reports finished steps."""


@dataclass
class Workshop:
    """What all attempts share.

    Attributes:
        model: on CPU, in float32.
        rows: the gate's.
        reference: the model's own outputs on them.
        settings: the settings of the export.
        part: the folder that is written.
        begin: begins to show a phase.
        graph: where the graph in float stays, so that another format of the same model begins with it.
        inputs: names of the model's inputs.
        measured: for every attempt, the compact outputs of each row.
    """

    model: PreTrainedModel
    rows: EncodedSplit
    reference: TorchReference
    settings: ExportSettings
    part: Path
    begin: Phase
    graph: Path | None = None
    inputs: tuple[str, ...] = ()
    measured: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the folder of intermediate files."""
        self.work = self.part / "work"
        self.work.mkdir()
        self.openvino = self.settings.format == "openvino"
        self.shipped = self.part / ("model.xml" if self.openvino else "model.onnx")

    @cached_property
    def source(self) -> Path:
        """The graph in float, which every conversion starts from."""
        path = self.graph or self.work / "float.onnx"
        if path.is_file():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.begin("writing the graph (torch.export; about a minute, whatever the size)", None)
        few = range(min(_TRACED_ROWS, len(self.rows.encoded)))
        rows = [*self.rows.encoded.select(few)] * _TRACED_ROWS
        batch = self.rows.collator(rows[:_TRACED_ROWS])
        onnx_graph.write_onnx(
            self.model, batch, path, fused=self.settings.fused and not self.openvino
        )
        onnx_graph.without_stale_shapes(path)
        return path

    @property
    def operators(self) -> Sequence[str]:
        """The operators whose weights lose bits.

        In a static student only the tables do: its head is small, and decides between classes.
        """
        return ["Gather"] if isinstance(self.model, StaticStudent) else onnx_graph.WEIGHTED

    def as_read(self, rows: EncodedSplit) -> EncodedSplit:
        """Rows as the users of this export read them."""
        return rows

    def open(self, path: Path) -> GraphSession:
        """Open a file of this export by the runtime it is for; ONNX's by ONNX Runtime."""
        runtime = "onnxruntime" if path.suffix == ".onnx" else "openvino"
        return open_file(path, runtime, self.settings.threads)

    def write(self, how: Conversion) -> None:
        """Make the file that is to be shipped."""
        for path in self.part.glob("model.*"):
            path.unlink()
        if self.openvino:
            onnx_graph.write_openvino(self.source, self.shipped)
        elif how.precision != "fp32":
            few = self.operators is not onnx_graph.WEIGHTED
            only = [*onnx_graph.quantisable(self.source, self.operators)] if few else []
            onnx_graph.quantise(self.source, self.shipped, how, only)
        else:
            _copy(self.source, self.shipped)

    def clear(self, shipped: Attempt) -> None:
        """Remove files that are not shipped."""
        shutil.rmtree(self.work)


def _copy(source: Path, target: Path) -> None:
    """Copy a model's file and the data file next to it, which it names."""
    beside = source.with_name(f"{source.name}.data")
    if not beside.is_file():
        shutil.copyfile(source, target)
        return
    import onnx

    model = onnx.load(source)
    onnx.save(model, target, save_as_external_data=True, location=f"{target.name}.data")


class StaticWorkshop(Workshop):
    """A workshop of a static student's folders, which hold no graph.

    model2vec has no place for word pairs, and also cuts texts after a number of characters: the gate measures both.
    """

    def __post_init__(self) -> None:
        """Set aside the student as it is shipped, and its tokenizer."""
        self.work, self.shipped = self.part / "work", self.part / "model.safetensors"
        self.student = cast(StaticStudent, self.model)
        self.tokenizer = copy.deepcopy(self.rows.processor)
        self.tokenizer.model_max_length = self.rows.max_length
        self.numpy = self.settings.format.startswith("numpy")
        self.bare = self.student
        if not self.numpy and self.student.pairs is not None:
            self.bare = copy.deepcopy(self.student)
            self.bare.config.pairs, self.bare.pairs = 0, None
        self.rows = self.as_read(self.rows)

    def as_read(self, rows: EncodedSplit) -> EncodedSplit:
        """For model2vec texts of at most its limit of tokens, times the median of its tokens' lengths, in characters.

        Tokens of one character each make that short: Chinese ones are most of some vocabularies.
        """
        truncation = bare_tokenizer(self.tokenizer).truncation
        if self.numpy or truncation is None:
            return rows
        usual = int(np.median([len(token) for token in self.tokenizer.get_vocab()]))
        most = truncation["max_length"] * usual
        texts = rows.loaded.rows.select_columns(list(rows.task.text_columns))
        columns = {name: [text[:most] for text in texts[name]] for name in texts.column_names}
        cut = rows.loaded.rows.remove_columns(texts.column_names)
        for name, values in columns.items():
            cut = cut.add_column(name, values)
        encoded, _ = encode(cut, rows.task, rows.processor, rows.max_length)
        return replace(rows, encoded=encoded)

    def open(self, path: Path) -> GraphSession:
        """Open the student as NumPy reads it."""
        return open_file(path if self.numpy else self.work / path.name, "numpy")

    def write(self, how: Conversion) -> None:
        """Write the folder, and for the gate the student's own."""
        int8 = how.precision == "int8"
        write_plain(self.bare, self.tokenizer, self.part if self.numpy else self.work, int8=int8)
        if not self.numpy:
            write_model2vec(
                self.student, self.tokenizer, self.part, int8=int8, without_pairs=self.change
            )

    change = 0.0
    """Change of the score without word pairs."""

    def clear(self, shipped: Attempt) -> None:
        """Write the change from leaving word pairs out, and remove files that are not shipped."""
        if self.bare is not self.student and shipped.measured is not None:
            self.change = -shipped.measured.drop
            self.write(shipped.conversion)
        shutil.rmtree(self.work, ignore_errors=True)
