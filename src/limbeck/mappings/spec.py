"""A recipe's `mapping:`: the settings of one kind, which are registered by the kind's name.

Part of `limbeck.mappings`. The kinds that ship are in `kinds`; a kind of one's own is
a class like theirs, registered the same way (`limbeck.mapping`).
"""

import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from limbeck.mappings.maps import Mapping
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.registry import Registry
from limbeck.support.settings import Pool, Settings
from limbeck.support.step_state import StepState

# Layer ranges and buckets: the arithmetic of "which layers", as the papers write it. All layer
# numbers are 1-based layer outputs; 0 is the embedding output.


_RANGE = re.compile(r"(?P<low>[^.]+)\.\.(?P<high>[^.]+)")
_BOUND = re.compile(r"(?P<base>\d+|[LM])(?P<offset>[+-]\d+)?")


def _bound(text: str, depth: dict[str, int], setting: str) -> int:
    match = _BOUND.fullmatch(text.replace(" ", ""))
    if match is None:
        raise LimbeckError(
            f"{setting}: cannot read the layer {text!r}",
            "write a number, L (teacher depth) or M (student depth), with + or - a number: L-1",
        )
    base = match["base"]
    return (depth[base] if base in depth else int(base)) + int(match["offset"] or 0)


def parse_layers(
    value: str | int | list[int], *, teacher_depth: int, student_depth: int, setting: str
) -> tuple[int, ...]:
    """`1..M-1`, `M`, `4` or a list of layers, as ascending layer numbers.

    Raises:
        LimbeckError: the text is not of that form.
    """
    if isinstance(value, list):
        return tuple(sorted(set(value)))
    depth = {"L": teacher_depth, "M": student_depth}
    text = str(value)
    match = _RANGE.fullmatch(text)
    if match is None:
        return (_bound(text, depth, setting),)
    low, high = _bound(match["low"], depth, setting), _bound(match["high"], depth, setting)
    return tuple(range(low, high + 1))


def round_half_up(numerator: int, denominator: int) -> int:
    """The nearest integer of a ratio of positive numbers, halves upwards."""
    return (2 * numerator + denominator) // (2 * denominator)


def buckets(layers: tuple[int, ...], count: int, *, overlap: bool = False) -> list[tuple[int, ...]]:
    """Split consecutive `layers` into `count` buckets, the first `len(layers) % count` one larger.

    With `overlap` every bucket but the last also takes the next bucket's first layer (ALP-KD's PO).
    12 layers in 5: 1–3, 4–6, 7–8, 9–10, 11–12; 12 in 3 with overlap: 1–5, 5–9, 9–12.

    Raises:
        LimbeckError: more buckets than layers.
    """
    if count > len(layers):
        raise LimbeckError(
            f"{count} student layers cannot each have a bucket of {len(layers)} teacher layers",
            "map fewer student layers, or use a mapping that shares teacher layers (attention)",
        )
    size, extra = divmod(len(layers), count)
    starts = [j * size + min(j, extra) for j in range(count + 1)]
    reach = 1 if overlap else 0
    return [
        layers[start : (stop + reach if stop < len(layers) else stop)]
        for start, stop in pairwise(starts)
    ]


@dataclass(frozen=True)
class Depths:
    """Between which two models a mapping is built.

    Attributes:
        teacher: L, the teacher's layers.
        student: M, the student's layers.
        setting: the mapping's key in the recipe, for messages.
    """

    teacher: int
    student: int
    setting: str = "mapping"

    def teacher_layers(self, named: str | int | list[int]) -> tuple[int, ...]:
        """The teacher layers that a range, a number or a list names, ascending.

        Raises:
            LimbeckError: none is named, or one that the teacher lacks.
        """
        return self._named(named, "teacher", "widen teacher_layers")

    def student_layers(self, named: str | int | list[int]) -> tuple[int, ...]:
        """The student layers that a range, a number or a list names, ascending.

        Raises:
            LimbeckError: none is named, or one that the student lacks.
        """
        fix = "give the student more layers, or use a method without intermediate layers (kd)"
        return self._named(named, "student", fix)

    def need(self, layers: tuple[int, ...] | list[int], side: str, key: str = "") -> None:
        """Raise LimbeckError for layers that the `teacher` or the `student` lacks."""
        depth = self.teacher if side == "teacher" else self.student
        missing = sorted({layer for layer in layers if not 0 <= layer <= depth})
        if missing:
            setting = f"{self.setting}.{key}" if key else self.setting
            raise LimbeckError(
                f"{setting}: the {side} has no layer {', '.join(map(str, missing))}",
                f"its layers are 1..{depth} (0 is the embedding output)",
            )

    def _named(self, named: str | int | list[int], side: str, fix: str) -> tuple[int, ...]:
        key = f"{side}_layers"
        layers = parse_layers(
            named,
            teacher_depth=self.teacher,
            student_depth=self.student,
            setting=f"{self.setting}.{key}",
        )
        self.need(layers, side, key)
        if not layers:
            depth = self.teacher if side == "teacher" else self.student
            raise LimbeckError(
                f"{self.setting}.{key} {named!r} is empty: the {side} has {depth} layer(s)", fix
            )
        return layers


class MappingSpec(Settings):
    """The teacher layers that each student layer learns from: settings of every kind.

    Read from a recipe it is the class that is registered for its `kind`.
    """

    reads_representations: ClassVar[bool] = False
    """Whether its weights come from the layers' representations, for each example separately."""
    reads_costs: ClassVar[bool] = False
    """Whether its weights come from the distances between layers, by `flow`."""

    kind: str = Field(description="how teacher layers are given to student layers")
    combine: Literal["sum", "concat", "costs"] = Field(
        "sum",
        description="several teacher layers of one student layer: weighted sum, features side by "
        "side, or weighted sum of pairwise comparisons",
    )

    @abstractmethod
    def build(self, depths: Depths) -> Mapping:
        """The mapping between two models; raises LimbeckError where they do not fit it."""

    def rounds(self, depths: Depths) -> bool:
        """Whether layers had to be rounded because the depths do not divide."""
        return False

    @property
    def sentence_vectors(self) -> Pool | None:
        """For a kind that reads representations: their pooling, if it differs from the term's."""
        return None

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(
        cls, value: Any, handler: "ModelWrapValidatorHandler[MappingSpec]"
    ) -> "MappingSpec":
        if cls is MappingSpec and isinstance(value, dict):
            return class_of(value).model_validate(value)
        return handler(value)


Kind = TypeVar("Kind", bound=type[MappingSpec])

MAPPINGS: Registry[type[MappingSpec]] = Registry("kind of mapping")
"""The settings class of each kind; it builds the mapping."""


def mapping(name: str) -> Callable[[Kind], Kind]:
    """A decorator that registers the settings class of a kind of mapping: `mapping: {kind: name}`.

    Args:
        name: the value of `kind` in a recipe.

    Example:
        ```python
        @limbeck.mapping("every-nth")
        class EveryNth(limbeck.mappings.MappingSpec): ...  # with `build`: docs/extending.md
        ```

    Raises:
        LimbeckError: the name is another kind's.
    """
    return MAPPINGS.register(name)  # type: ignore[return-value]  # it gives back the class it is given


def class_of(given: dict[str, Any]) -> type[MappingSpec]:
    """The class for a recipe's `mapping:`.

    Raises:
        ValueError: it names no kind, or none that there is.
    """
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in MAPPINGS:
        names = list(MAPPINGS)
        if isinstance(kind, str):
            problem = unknown("kind", kind, names)
            raise ValueError(f"{problem.message}; {problem.fix}")
        raise ValueError(f"`kind` is missing; choices: {', '.join(names)}")
    return MAPPINGS.get(kind)


# From a recipe's `mapping:` and two depths to a `Mapping`, or to the reason why it cannot be built.


def build_mapping(
    spec: MappingSpec, *, teacher_depth: int, student_depth: int, setting: str = "mapping"
) -> Mapping:
    """The mapping a spec describes between a teacher of L layers and a student of M.

    Raises:
        LimbeckError: it names a layer a model lacks, or more student layers than there are layers for.
    """
    depths = Depths(teacher_depth, student_depth, setting)
    built = spec.build(depths)
    depths.need(built.student_layers, "student")
    depths.need(built.candidates, "teacher")
    return built


def rounding_note(spec: MappingSpec, *, teacher_depth: int, student_depth: int) -> str | None:
    """A line that reports that L/M is not an integer and a map had to round; None otherwise."""
    if not spec.rounds(Depths(teacher_depth, student_depth)):
        return None
    mapping = build_mapping(spec, teacher_depth=teacher_depth, student_depth=student_depth)
    given = ", ".join(
        f"{j}←{row[0]}"
        for j, row in zip(mapping.student_layers, mapping.rows(StepState()), strict=True)
    )
    return (
        f"{teacher_depth} teacher layers over {student_depth} student layers is not an integer; "
        f"rounded half up: {given}"
    )
