"""From a recipe's `mapping:` and two depths to a `Mapping`, or to the reason why there is none.

Part of `limbeck.mapping`.
"""

from __future__ import annotations

from limbeck.errors import LimbeckError
from limbeck.mapping.mapping_spec import MappingSpec
from limbeck.mapping.maps import AttentionMapping, FixedMapping, Mapping, RandomMapping
from limbeck.mapping.ranges import buckets, parse_layers, round_half_up
from limbeck.mapping.transport_plan import TransportMapping
from limbeck.step_state import StepState


def build_mapping(
    spec: MappingSpec, *, teacher_depth: int, student_depth: int, setting: str = "mapping"
) -> Mapping:
    """The mapping a spec describes between a teacher of L layers and a student of M.

    Raises:
        LimbeckError: it names a layer a model lacks, or more student layers than there are layers for.
    """
    spec = _at_depths(spec, teacher_depth, student_depth)
    student_layers, candidates = _ranges(spec, teacher_depth, student_depth, setting)
    listed = spec.layers is not None
    _exists(
        student_layers, student_depth, f"{setting}.{'' if listed else 'student_'}layers", "student"
    )
    _exists(candidates, teacher_depth, f"{setting}.{'' if listed else 'teacher_'}layers", "teacher")
    if not student_layers:
        raise LimbeckError(
            f"{setting}.student_layers {spec.student_layers!r} is empty: the student has "
            f"{student_depth} layer(s)",
            "give the student more layers, or use a method without intermediate layers (kd)",
        )
    if not candidates:
        raise LimbeckError(
            f"{setting}.teacher_layers {spec.teacher_layers!r} is empty: the teacher has "
            f"{teacher_depth} layer(s)",
            "widen teacher_layers",
        )
    if spec.kind == "random":
        _enough(student_layers, candidates, setting)
        return RandomMapping(student_layers, candidates)
    table = _table(spec, student_layers, candidates, teacher_depth, student_depth, setting)
    if spec.kind == "attention":
        return AttentionMapping(student_layers, table, spec.weigh)
    if spec.kind == "transport":
        return TransportMapping(student_layers, candidates, learned=spec.layer_weights == "learned")
    _exists([k for row in table for k in row], teacher_depth, setting, "teacher")
    return FixedMapping(student_layers, table)


def rounding_note(spec: MappingSpec, *, teacher_depth: int, student_depth: int) -> str | None:
    """A line that says so when L/M is not whole and a map had to round; None when it had not."""
    spec = _at_depths(spec, teacher_depth, student_depth)
    if spec.kind not in ("uniform", "skip") or teacher_depth % student_depth == 0:
        return None
    mapping = build_mapping(spec, teacher_depth=teacher_depth, student_depth=student_depth)
    given = ", ".join(
        f"{j}←{row[0]}"
        for j, row in zip(mapping.student_layers, mapping.rows(StepState()), strict=True)
    )
    return (
        f"{teacher_depth} teacher layers over {student_depth} student layers is not whole; "
        f"rounded half up: {given}"
    )


def _at_depths(spec: MappingSpec, teacher_depth: int, student_depth: int) -> MappingSpec:
    """The spec, or the layers it gives outright for models of these depths."""
    for exception in spec.exceptions or ():
        if (exception.teacher, exception.student) == (teacher_depth, student_depth):
            changes = {"kind": "explicit", "layers": exception.layers, "exceptions": None}
            return spec.model_copy(update=changes)
    return spec


def _ranges(
    spec: MappingSpec, teacher_depth: int, student_depth: int, setting: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if spec.layers is not None:
        student_layers = tuple(sorted(spec.layers))
        return student_layers, tuple(k for j in student_layers for k in _as_row(spec.layers[j]))
    if spec.kind == "last-to-last":
        return (student_depth,), (teacher_depth,)
    student_layers, candidates = (
        parse_layers(
            getattr(spec, side),
            teacher_depth=teacher_depth,
            student_depth=student_depth,
            setting=f"{setting}.{side}",
        )
        for side in ("student_layers", "teacher_layers")
    )
    return student_layers, candidates


def _table(
    spec: MappingSpec,
    student_layers: tuple[int, ...],
    candidates: tuple[int, ...],
    teacher_depth: int,
    student_depth: int,
    setting: str,
) -> tuple[tuple[int, ...], ...]:
    if spec.layers is not None:
        return tuple(_as_row(spec.layers[j]) for j in student_layers)
    match spec.kind:
        case "last-to-last":
            return (candidates,)
        case "uniform" | "skip":
            return tuple((round_half_up(j * teacher_depth, student_depth),) for j in student_layers)
        case "last":
            _enough(student_layers, candidates, setting)
            return tuple((k,) for k in candidates[-len(student_layers) :])
        case "first":
            return tuple((bucket[0],) for bucket in buckets(candidates, len(student_layers)))
        case "attention" | "transport" if spec.within == "all":
            return (candidates,) * len(student_layers)
        case _:
            return tuple(buckets(candidates, len(student_layers), overlap=spec.overlap))


def _as_row(value: int | list[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(sorted(set(value)))


def _exists(layers: tuple[int, ...] | list[int], depth: int, setting: str, side: str) -> None:
    missing = sorted({k for k in layers if not 0 <= k <= depth})
    if missing:
        raise LimbeckError(
            f"{setting}: the {side} has no layer {', '.join(map(str, missing))}",
            f"its layers are 1..{depth} (0 is the embedding output)",
        )


def _enough(student_layers: tuple[int, ...], candidates: tuple[int, ...], setting: str) -> None:
    if len(student_layers) > len(candidates):
        raise LimbeckError(
            f"{setting}: {len(student_layers)} student layers need as many teacher layers, and "
            f"{len(candidates)} are on offer",
            "widen teacher_layers, or map fewer student layers",
        )
