"""The student on mixed input against the mixture of its own clean outputs (CR-ILD).

Part of `limbeck.objectives`. No teacher takes part.
"""

from __future__ import annotations

from collections.abc import Mapping as Batch

import torch
from torch import Tensor

from limbeck import functional as F
from limbeck.capture import Request, Seen, Trace
from limbeck.capture.request import What
from limbeck.errors import LimbeckError
from limbeck.mapping import parse_layers
from limbeck.moment import Moment
from limbeck.objectives.base import Objective
from limbeck.objectives.shape import Shape
from limbeck.objectives.spec import ConsistencySpec


class Consistency(Objective):
    """R_MHA (attention) and R_IR (hidden states before W_H) of CR-ILD Eq. 5 and 6.

    `target: mixed`: KL( A(mix) ‖ mix(A_i, A_j) ), or squared error of hidden states; gradients flow
    to both unless `detach_target`. `target: clean`, as its release: λ·KL(A_i ‖ A(mix)) +
    (1−λ)·KL(A_j ‖ A(mix)) with the clean side a constant and every query row counted; its
    cross-entropy differs by a constant.

    Raises:
        LimbeckError: layers the student does not have.
    """

    def __init__(self, spec: ConsistencySpec, shape: Shape, setting: str) -> None:
        super().__init__()
        self.spec = spec
        self.setting = setting
        depth = shape.student.stack(spec.stack, setting, "student").layers
        self.layers = parse_layers(
            spec.layers, teacher_depth=shape.teacher.layers, student_depth=depth, setting=setting
        )
        lowest = 1 if spec.compare == "attention_consistency" else 0
        missing = [layer for layer in self.layers if not lowest <= layer <= depth]
        if missing:
            raise LimbeckError(
                f"{setting}.layers: the student has no layer {', '.join(map(str, missing))}",
                f"its layers are {lowest}..{depth}",
            )

    def _seen(self, layer: int) -> Seen:
        what: What = "probabilities" if self.spec.compare == "attention_consistency" else "hidden"
        return Seen(what, layer, None, self.spec.stack)

    def request(self, side: str, moment: Moment) -> Request:
        """The same of the student on mixed and on clean input; nothing of the teacher."""
        if side == "teacher":
            return Request()
        return Request(frozenset(self._seen(layer) for layer in self.layers))

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], moment: Moment
    ) -> Tensor:
        """Sum over the layers.

        Raises:
            LimbeckError: the input was not mixed.
        """
        mixed = student.mixed
        if mixed is None:
            raise LimbeckError(
                f"{self.setting}: {self.spec.compare} compares mixed with clean input, and "
                "nothing is mixed",
                "add mixup: {alpha: 1} to the recipe",
            )
        mask = student.mask(self.spec.stack)
        total = []
        for layer in self.layers:
            seen = self._seen(layer)
            own = mixed.clean[seen]
            partner = own[mixed.partner]
            if self.spec.target == "mixed":
                blend = F.mix(own.float(), partner.float(), mixed.share)
                target = student[seen].detach() if self.spec.detach_target else student[seen]
                total.append(self._distance(blend, target, mask))
            else:
                total.append(
                    mixed.share * self._distance_to_clean(student[seen], own.detach(), mask)
                    + (1 - mixed.share)
                    * self._distance_to_clean(student[seen], partner.detach(), mask)
                )
        return torch.stack(total).sum()

    def _distance(self, state: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        if self.spec.compare == "attention_consistency":
            return F.attention_kl(state, target, mask)
        return F.hidden_mse(state, target, mask)

    def _distance_to_clean(self, state: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        everywhere = torch.ones_like(mask, dtype=torch.bool)
        if self.spec.compare == "attention_consistency":
            return F.attention_kl(state, target, everywhere, mask)
        return F.hidden_mse(state, target, everywhere)
