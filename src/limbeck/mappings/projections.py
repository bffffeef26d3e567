"""Seen how → projected how: learned linear maps that bring both sides to one width.

Projections
are learned with the student, saved in checkpoints and never shipped in it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from limbeck.support.settings import Settings, Width

_BERT_STD = 0.02


class ProjectSpec(Settings):
    """What a recipe may say about the maps between a representation and its comparison."""

    to: Width | Literal["student", "teacher"] = Field(
        description="width after the map: a number, or the student's or the teacher's own width"
    )
    sides: Literal["both", "student", "teacher"] = Field("both", description="which side is mapped")
    share: Literal["none", "all"] = Field(
        "none", description="one map for every mapped student layer, or one for all of them"
    )
    start: Literal["random", "identity", "normal"] = Field(
        "random",
        description="identity: square maps begin as no change at all; normal: N(0, .02), as BERT's "
        "own weights do and the maps of some releases",
    )
    bias: bool = Field(False, description="maps add a learned vector (papers have none)")
    when: Literal["always", "widths-differ"] = Field(
        "always", description="always map, or only when teacher and student widths differ"
    )


class Projection(nn.Module):
    """One linear map for each student layer, or one for all (RAIL-KD §3.1: d×u maps, bias-free).

    Args:
        widths: input width of each student layer.
        to: output width u.
        spec: sharing, bias and start.
    """

    def __init__(self, widths: list[int], to: int, spec: ProjectSpec) -> None:
        super().__init__()
        count = 1 if spec.share == "all" else len(widths)
        self.maps = nn.ModuleList(nn.Linear(width, to, bias=spec.bias) for width in widths[:count])
        for linear in self.maps:
            assert isinstance(linear, nn.Linear)
            if spec.start == "identity" and linear.in_features == linear.out_features:
                nn.init.eye_(linear.weight)
            if spec.start == "normal":
                nn.init.normal_(linear.weight, std=_BERT_STD)
            if spec.bias:
                nn.init.zeros_(linear.bias)

    def forward(self, hidden: Tensor, student_layer: int) -> Tensor:
        """(..., d) to (..., u) by the map of `student_layer`, in float32."""
        return self.maps[student_layer if len(self.maps) > 1 else 0](hidden.float())


class Unprojected(nn.Module):
    """No map: the representation itself."""

    def forward(self, hidden: Tensor, student_layer: int) -> Tensor:
        """The representation, unchanged."""
        return hidden


class Projections(nn.Module):
    """The maps of both sides of one objective.

    Args:
        spec: the recipe's `project:`, or None for none.
        student_widths, teacher_widths: width of each student layer's representation before its map.
        student_width, teacher_width: the models' own widths, which decide what `widths-differ`,
            `student` and `teacher` mean.

    Attributes:
        widths: for each student layer the student's and the teacher's width as they are compared.
        shared: one map serves all student layers of a side.
        of_layers: there is something to map, and it is single layers, not several side by side.
    """

    def __init__(
        self,
        spec: ProjectSpec | None,
        student_widths: list[int],
        teacher_widths: list[int],
        *,
        student_width: int,
        teacher_width: int,
    ) -> None:
        super().__init__()
        self.student: nn.Module = Unprojected()
        self.teacher: nn.Module = Unprojected()
        self.widths = list(zip(student_widths, teacher_widths, strict=True))
        self.shared = spec is not None and spec.share == "all"
        sides = ((student_widths, student_width), (teacher_widths, teacher_width))
        whole = all(width == own for widths, own in sides for width in widths)
        self.of_layers = spec is not None and whole
        if spec is None or (spec.when == "widths-differ" and student_width == teacher_width):
            return
        own = {"student": student_width, "teacher": teacher_width}
        to = own[spec.to] if isinstance(spec.to, str) else spec.to
        if spec.sides != "teacher":
            self.student = Projection(student_widths, to, spec)
            self.widths = [(to, teacher) for _, teacher in self.widths]
        if spec.sides != "student":
            self.teacher = Projection(teacher_widths, to, spec)
            self.widths = [(student, to) for student, _ in self.widths]
        if isinstance(self.student, Projection) and isinstance(self.teacher, Projection):
            _start_alike(self.student, self.teacher)

    @property
    def mapped(self) -> bool:
        """Whether a side is mapped."""
        return isinstance(self.student, Projection) or isinstance(self.teacher, Projection)


def _start_alike(student: Projection, teacher: Projection) -> None:
    """Both sides of a student layer start from the same map where their widths agree (limbeck's own choice).

    The papers leave the start open. Two independent random maps make similar layers look unrelated,
    and the quickest way for the student to fix that is to shift its states as a whole: on a
    pretrained encoder that destroys what it knows before the maps have met.
    """
    for ours, theirs in zip(student.maps, teacher.maps, strict=True):
        if ours.in_features == theirs.in_features:
            theirs.load_state_dict(ours.state_dict())
