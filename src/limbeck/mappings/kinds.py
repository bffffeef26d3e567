"""The kinds of mapping that ship, as settings. Part of `limbeck.mappings`.

Each has the settings of a recipe, and builds its mapping for two models.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from limbeck.mappings import maps
from limbeck.mappings.spec import Depths, MappingSpec, buckets, mapping, round_half_up
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Count, LayerNumber, Pool, Settings

Layers = str | LayerNumber | list[LayerNumber]
_Some = Annotated[list[LayerNumber], Field(min_length=1)]


def _numbered(layers: Any) -> Any:
    """Layer numbers as numbers: JSON, and so a run's record, has text alone for keys."""
    if not isinstance(layers, dict):
        return layers
    numbers = {
        int(key) if isinstance(key, str) and re.fullmatch(r"0|[1-9][0-9]{0,4}", key) else key: value
        for key, value in layers.items()
    }
    if len(numbers) < len(layers):
        raise ValueError("a student layer occurs twice")
    return numbers


class DepthsSpec(Settings):
    """Layers given outright for a teacher and a student of certain depths."""

    teacher: Count = Field(description="the teacher's depth L")
    student: Count = Field(description="the student's depth M")
    layers: Annotated[dict[LayerNumber, LayerNumber], BeforeValidator(_numbered)] = Field(
        description="student layer: teacher layer"
    )


@mapping("explicit")
class ExplicitLayers(MappingSpec):
    """Layers given outright."""

    layers: Annotated[dict[LayerNumber, LayerNumber | _Some], BeforeValidator(_numbered)] = Field(
        min_length=1, description="student layer: teacher layer, or list of them: {1: 4, 2: [7, 8]}"
    )

    def build(self, depths: Depths) -> maps.Mapping:
        """The layers as they are given."""
        return _explicit(self.layers, depths)


@mapping("last-to-last")
class LastToLast(MappingSpec):
    """The student's last layer learns from the teacher's last."""

    def build(self, depths: Depths) -> maps.Mapping:
        """One pair."""
        return _fixed(depths.student_layers("M"), [depths.teacher_layers("L")], depths)


class StudentRange(MappingSpec):
    """Student layers are named by a range."""

    student_layers: Layers = Field("1..M-1", description="student layers that learn; M: its depth")


@mapping("uniform")
@mapping("skip")
class UniformLayers(StudentRange):
    """Student layer j learns from teacher layer j·L/M, rounded half up (PKD's skip)."""

    uneven: Literal["round", "leave out"] = Field(
        "round",
        description="student layers whose j·L/M is not an integer: they learn from the nearest teacher layer, or are "
        "left out (contextual KD's release, which steps through both by the depths' greatest common divisor)",
    )
    exceptions: list[DepthsSpec] | None = Field(
        None, description="depths for which layers are given outright, as a release does"
    )

    def build(self, depths: Depths) -> maps.Mapping:
        """Every (L/M)-th layer, or the layers that are given for these depths."""
        exception = self._exception(depths)
        if exception is not None:
            return _explicit(dict(exception.layers), depths)
        layers = depths.student_layers(self.student_layers)
        if self.uneven == "leave out":
            layers = tuple(j for j in layers if j * depths.teacher % depths.student == 0)
            if not layers:
                raise LimbeckError(
                    f"{depths.setting}: no student layer j of {self.student_layers} has an integer j·L/M "
                    f"(L = {depths.teacher}, M = {depths.student})",
                    "map the last layer or the embedding output too (student_layers: 0..M), or round (uneven: round)",
                )
        rows = [(round_half_up(j * depths.teacher, depths.student),) for j in layers]
        return _fixed(layers, rows, depths)

    def rounds(self, depths: Depths) -> bool:
        """Whether L/M is not an integer."""
        uneven = depths.teacher % depths.student != 0
        return self._exception(depths) is None and uneven and self.uneven == "round"

    def _exception(self, depths: Depths) -> DepthsSpec | None:
        for exception in self.exceptions or ():
            if (exception.teacher, exception.student) == (depths.teacher, depths.student):
                return exception
        return None


class BothRanges(StudentRange):
    """Layers of both sides are named by ranges."""

    teacher_layers: Layers = Field("1..L", description="teacher layers on offer; L: its depth")

    def ranges(self, depths: Depths) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The student layers, and the teacher layers on offer."""
        return (
            depths.student_layers(self.student_layers),
            depths.teacher_layers(self.teacher_layers),
        )


@mapping("first")
class FirstLayers(BothRanges):
    """Each student layer learns from the first of its bucket of teacher layers."""

    def build(self, depths: Depths) -> maps.Mapping:
        """The first of each bucket."""
        layers, offered = self.ranges(depths)
        rows = [(bucket[0],) for bucket in buckets(offered, len(layers))]
        return _fixed(layers, rows, depths)


@mapping("last")
class LastLayers(BothRanges):
    """The student layers learn from the last teacher layers on offer, in order."""

    def build(self, depths: Depths) -> maps.Mapping:
        """As many of the last as there are student layers."""
        layers, offered = self.ranges(depths)
        _enough(layers, offered, depths)
        return _fixed(layers, [(k,) for k in offered[-len(layers) :]], depths)


@mapping("buckets")
class LayerBuckets(BothRanges):
    """Each student layer learns from consecutive teacher layers (CKD)."""

    overlap: bool = Field(False, description="a bucket also takes the next one's first layer")

    def build(self, depths: Depths) -> maps.Mapping:
        """Buckets of equal size, the first ones larger where they cannot be."""
        layers, offered = self.ranges(depths)
        return _fixed(layers, buckets(offered, len(layers), overlap=self.overlap), depths)


@mapping("random")
class RandomLayers(BothRanges):
    """Teacher layers sampled again every epoch (RAIL-KD)."""

    def build(self, depths: Depths) -> maps.Mapping:
        """A draw without replacement from the teacher layers on offer."""
        layers, offered = self.ranges(depths)
        _enough(layers, offered, depths)
        return maps.RandomMapping(layers, offered)


@mapping("attention")
class AttendedLayers(BothRanges):
    """Every example weights the teacher layers separately (ALP-KD)."""

    reads_representations = True

    within: Literal["all", "buckets"] = Field(
        "all", description="attend to all teacher layers, or to one bucket each"
    )
    overlap: bool = Field(False, description="a bucket also takes the next one's first layer")
    read: Pool | None = Field(
        None,
        description="the sentence vectors that weigh the layers, where the term itself compares something else",
    )
    combine: Literal["sum"] = Field("sum", description="every example has its own weights")
    weigh: Literal["softmax", "sparsemax", "entmax"] = Field(
        "softmax", description="from dot products to weights"
    )

    @model_validator(mode="after")
    def _no_key_without_effect(self) -> "AttendedLayers":
        if self.overlap and self.within != "buckets":
            raise ValueError("`overlap` goes with buckets; leave it out")
        return self

    @property
    def sentence_vectors(self) -> Pool | None:
        """The pooling that `read` sets."""
        return self.read

    def build(self, depths: Depths) -> maps.Mapping:
        """A softmax over the teacher layers that each student layer may attend to."""
        layers, offered = self.ranges(depths)
        rows = [offered] * len(layers)
        if self.within == "buckets":
            rows = buckets(offered, len(layers), overlap=self.overlap)
        return maps.AttentionMapping(layers, tuple(rows), self.weigh)


@mapping("transport")
class TransportedLayers(BothRanges):
    """The teacher is shared among all student layers, as cheaply as can be (BERT-EMD)."""

    reads_costs = True

    layer_weights: Literal["uniform", "learned"] = Field(
        "uniform",
        description="mass of each layer; learned: more for cheap ones, step by step (BERT-EMD)",
    )
    combine: Literal["costs"] = Field("costs", description="pairs are compared, and weighed")

    def build(self, depths: Depths) -> maps.Mapping:
        """Every layer with every other, weighted by the cheapest flow."""
        layers, offered = self.ranges(depths)
        return maps.TransportMapping(layers, offered, learned=self.layer_weights == "learned")


def _explicit(layers: dict[int, int | list[int]], depths: Depths) -> maps.Mapping:
    student_layers = tuple(sorted(layers))
    rows = [_as_row(layers[j]) for j in student_layers]
    depths.need(student_layers, "student", "layers")
    depths.need([k for row in rows for k in row], "teacher", "layers")
    return _fixed(student_layers, rows, depths)


def _as_row(value: int | list[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(sorted(set(value)))


def _fixed(
    student_layers: tuple[int, ...], rows: Sequence[tuple[int, ...]], depths: Depths
) -> maps.Mapping:
    depths.need([k for row in rows for k in row], "teacher")
    return maps.FixedMapping(student_layers, tuple(rows))


def _enough(student_layers: tuple[int, ...], offered: tuple[int, ...], depths: Depths) -> None:
    if len(student_layers) > len(offered):
        raise LimbeckError(
            f"{depths.setting}: {len(student_layers)} student layers need as many teacher layers, "
            f"and {len(offered)} are on offer",
            "widen teacher_layers, or map fewer student layers",
        )
