"""What an attention mapping weighs layers by, where the term itself compares something else.

Part of `limbeck.objectives`. Attention maps or relations of several teacher layers can be mixed, but
say nothing of which layer suits an example; its sentence vectors do (ALP-KD).
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from limbeck.activations import ActivationKey, Request, Trace
from limbeck.activations.request import Pool, StackName
from limbeck.mappings.projections import Projections, ProjectSpec

# RAIL-KD §4.2; for ALP-KD's dot product across widths limbeck's own choice.
_PROJECT = {"to": 128, "share": "all", "when": "widths-differ"}


class Reader(nn.Module):
    """Sentence vectors of both sides in one space: as they are where widths agree, else mapped.

    Args:
        pool: which vector of a layer.
        stack: whose hidden states.
        student_width, teacher_width: of both sides.
    """

    def __init__(
        self, pool: Pool, stack: StackName, student_width: int, teacher_width: int
    ) -> None:
        super().__init__()
        self.pool = pool
        self.stack = stack
        self.projections = Projections(
            ProjectSpec.model_validate(_PROJECT),
            [student_width],
            [teacher_width],
            student_width=student_width,
            teacher_width=teacher_width,
        )

    def request(self, layers: Iterable[int]) -> Request:
        """The sentence vectors of these layers."""
        return Request.hidden(layers, pool=self.pool, stack=self.stack)

    def read(self, side: str, trace: Trace, layer: int) -> Tensor:
        """A layer's sentence vectors (B, u)."""
        hidden = trace[ActivationKey("hidden", layer, self.pool, self.stack)]
        maps = self.projections.student if side == "student" else self.projections.teacher
        return maps(hidden, 0)
