"""What shapes cost before they are trained: a few are exported and timed, the others follow from these.

Part of `limbeck.compressing`. A file's size is arithmetic: numbers of each sort times the bytes that a precision gives
them, plus other contents of the exported files. Latency is about linear in the layers and in the numbers that a pass
multiplies (hidden · hidden and hidden · feed-forward), times the tokens.
"""

import shutil
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel
from scipy.optimize import nnls
from transformers import PreTrainedModel

from limbeck.compressing.budget import Budget, Costs
from limbeck.compressing.settings import CompressSettings
from limbeck.compressing.shapes import Shapes, StudentShape
from limbeck.compressing.timing import timed
from limbeck.compressing.vocabularies import StudentVocabulary
from limbeck.exporting import onnx_graph
from limbeck.exporting.settings import ExportSettings, conversions
from limbeck.latency.contenders import Contender
from limbeck.runtimes.sessions import open_file
from limbeck.static import static_student
from limbeck.students import build_student, narrowed
from limbeck.students.vocabulary import with_rows
from limbeck.support import files

FORMATS: dict[str, dict[str, Any]] = {
    "int8": {"format": "onnx-int8"},
    "int8-embeddings4": {"format": "onnx-int8", "embedding_bits": 4},
    "int4": {"format": "onnx-int4"},
    "float": {"format": "onnx"},
}
"""Precision → settings of an export."""
# Four bits in blocks of 32 with a zero point (half a byte) and a scale: 2 bytes in tables, 4 in matrices.
_TABLE, _MATRIX = 0.5 + 2.5 / 32, 0.5 + 4.5 / 32
# Bytes of a number in tables and of one in matrices; others are in float.
_BYTES = {
    "int8": (1, 1),
    "int8-embeddings4": (_TABLE, 1),
    "int4": (_TABLE, _MATRIX),
    "float": (4, 4),
}
FOUR_BITS = {one for one, (table, _) in _BYTES.items() if table < 1}
"""Precisions with tables of 4 bits, in which students are trained for them."""
_CONFIG_BYTES = 3_000
"""Facts from a model's configuration."""


class Probe(BaseModel):
    """One shape in one precision, exported with the weights that it would start from.

    Attributes:
        file: bytes of the model's file.
        latency: milliseconds of a pass.
        memory: bytes.
    """

    shape: StudentShape
    precision: str
    file: float
    latency: float
    memory: float


class CostModel:
    """Costs of every shape in every precision."""

    def __init__(
        self,
        shapes: Shapes,
        vocabularies: Mapping[int | None, StudentVocabulary],
        settings: CompressSettings,
        probes: Sequence[Probe] = (),
    ) -> None:
        """`probes`: without any, latency and memory are 0, and sizes a little too small."""
        self.shapes, self.vocabularies, self.settings = shapes, vocabularies, settings
        self.probes = probes

    def tokens(self, shape: StudentShape) -> int:
        """Tokens that a shape reads of the text that is timed, at most as many as it has positions."""
        tokens = round(self.settings.length * self.vocabularies[shape.vocabulary].growth)
        return tokens if shape.is_static else min(tokens, self.shapes.positions or tokens)

    def precisions(self, shape: StudentShape) -> list[str]:
        """Those that a shape may have: rows of static tables are too short for blocks of 4 bits."""
        short = FOUR_BITS if shape.is_static else set()
        return [one for one in self.settings.precisions if one not in short]

    def predicted(self, shape: StudentShape, precision: str) -> Costs:
        """A shape's cost in a precision, by the probes."""
        beside = self._fit("file", shape, precision)
        file, tokens = self._numbers_file(shape, precision) + beside, self.tokens(shape)
        latency, memory = (
            self._fit(name, shape, precision, tokens) for name in ("latency", "memory")
        )
        return self.costs(
            Probe(shape=shape, precision=precision, file=file, latency=latency, memory=memory)
        )

    def costs(self, probe: Probe) -> Costs:
        """Costs of a shape as it was exported: with its tokenizer and configuration."""
        beside = self.vocabularies[probe.shape.vocabulary].bytes + _CONFIG_BYTES
        numbers = self.shapes.numbers(probe.shape).total(self.shapes.tokens(probe.shape))
        return Costs(probe.file + beside, probe.latency, numbers, probe.memory)

    def fitting(self, shape: StudentShape, budget: Budget) -> str | None:
        """The first precision in which a shape meets the budget; None if there is no such precision."""
        every = self.precisions(shape)
        met = (one for one in every if not budget.exceeded(self.predicted(shape, one)))
        return next(met, None)

    def _numbers_file(self, shape: StudentShape, precision: str) -> float:
        numbers, (table, matrix) = self.shapes.numbers(shape), _BYTES[precision]
        tables = numbers.token * self.shapes.tokens(shape) + numbers.tables
        return table * tables + matrix * numbers.matrices + 4 * numbers.others

    def _fit(self, name: str, shape: StudentShape, precision: str, tokens: int = 1) -> float:
        """A cost that is about linear in layers and numbers; for a file, its contents in addition to its numbers."""

        def features(of: StudentShape, tokens: int) -> list[float]:
            numbers = self.shapes.numbers(of)
            vocabulary = self._numbers_file(of, precision) if name == "memory" else 0.0
            return [1.0, of.layers, float(numbers.matrices * tokens), vocabulary]

        alike = shape.is_static, precision
        known = [one for one in self.probes if (one.shape.is_static, one.precision) == alike]
        if not known:
            return 0.0
        values = np.array([getattr(one, name) for one in known])
        if name == "file":
            values -= [self._numbers_file(one.shape, precision) for one in known]
        lengths = [1 if tokens == 1 else self.tokens(one.shape) for one in known]
        rows = np.array([features(one.shape, at) for one, at in zip(known, lengths, strict=True)])
        scale = np.maximum(rows.max(0), 1e-12)
        weights = nnls(rows / scale, np.maximum(values, 0))[0]
        return float(weights @ (features(shape, tokens) / scale))


def first_probes(model: CostModel, folder: Path) -> list[Probe]:
    """Export and time the teacher's own shape, one layer of it, a narrow one of half its layers, and a static one."""
    transformers = [one for one in model.shapes.all if not one.is_static]
    full = [one for one in transformers if not (one.heads or one.ffn or one.vocabulary)]
    narrow = min(transformers, key=lambda one: (one.heads or 10**6, one.ffn or 10**6))
    smallest = model.shapes.vocabularies[-1]
    half = StudentShape(full[len(full) // 2].layers, narrow.heads, narrow.ffn, vocabulary=smallest)
    static = [one for one in model.shapes.all if one.is_static][:1]
    wanted = [
        (shape, precision)
        for shape in dict.fromkeys([full[0], full[-1], half, *static])
        # In float always, which the teacher is.
        for precision in dict.fromkeys([*model.precisions(shape), "float"])
    ]
    return probed(model, wanted, folder)


def probed(
    model: CostModel, wanted: Sequence[tuple[StudentShape, str]], folder: Path
) -> list[Probe]:
    """Export and time shapes in precisions; finished ones are read from the folder."""
    places = {
        one: folder / f"{files.checksum_of_text(f'{one[0].words} {one[1]}')[:16]}.json"
        for one in wanted
    }
    missing = [one for one in wanted if not places[one].is_file()]
    made: list[Contender] = []
    for shape, group in groupby(missing, key=lambda one: one[0]):
        made += _exported(model, shape, [precision for _, precision in group], folder / "files")
    lengths = [(who, model.tokens(shape)) for who, (shape, _) in zip(made, missing, strict=True)]
    times = timed(lengths, model.settings)
    for (shape, precision), who, (latency, memory) in zip(missing, made, times, strict=True):
        sizes = {"file": who.bytes, "latency": latency, "memory": memory}
        found = Probe.model_validate({"shape": shape, "precision": precision, **sizes})
        files.write_whole(places[shape, precision], found.model_dump_json(indent=1))
    shutil.rmtree(folder / "files", ignore_errors=True)
    return [Probe.model_validate_json(places[one].read_text(encoding="utf-8")) for one in wanted]


def started(model: CostModel, shape: StudentShape) -> PreTrainedModel:
    """A student of a shape with weights of the teacher's, in eval mode; a static one's are random."""
    vocabulary = model.vocabularies[shape.vocabulary]
    if shape.is_static:
        own = model.shapes.static_settings(shape)
        made: PreTrainedModel = static_student(vocabulary.tokenizer, shape.width or 1, **own)
        made.train(False)
        return made
    source = model.shapes.teacher
    if shape.heads or shape.ffn:
        source = narrowed(source, heads=shape.heads, ffn=shape.ffn)
    made = build_student(source, layers=shape.layers)
    return made if shape.vocabulary is None else with_rows(made, vocabulary.kept)


def _exported(
    model: CostModel, shape: StudentShape, precisions: Sequence[str], folder: Path
) -> list[Contender]:
    """A shape's ONNX files, of one graph."""
    place = folder / files.file_name(shape.words)
    place.mkdir(parents=True, exist_ok=True)
    start, tokenizer = started(model, shape), model.vocabularies[shape.vocabulary].tokenizer
    batch = tokenizer(["a text", "and one more text"] * 2, padding=True, return_tensors="pt")
    graph, found = place / "graph.onnx", []
    if not graph.is_file():  # a killed command may have left it
        onnx_graph.write_onnx(start, batch, part := graph.with_suffix(".part"), fused=True)
        onnx_graph.without_stale_shapes(part)
        part.replace(graph)
    for precision in precisions:
        path, how = graph, conversions(ExportSettings.checked(FORMATS[precision]))[0]
        if how.precision != "fp32":
            path = place / f"{precision}.onnx"
            onnx_graph.quantise(graph, path, how)
        inputs, size = open_file(path, "onnxruntime").inputs, path.stat().st_size
        named = shape.words, "onnxruntime", precision, path, start.config, inputs
        found.append(Contender(*named, bytes=size))
    return found
