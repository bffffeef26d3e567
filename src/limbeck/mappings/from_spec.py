"""From a recipe's `mapping:` and two depths to a `Mapping`, or to the reason why there is none.

Part of `limbeck.mappings`.
"""

from __future__ import annotations

from limbeck.mappings.mapping_spec import Depths, MappingSpec
from limbeck.mappings.maps import Mapping
from limbeck.support.step_state import StepState


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
    """A line that says so when L/M is not whole and a map had to round; None when it had not."""
    if not spec.rounds(Depths(teacher_depth, student_depth)):
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
