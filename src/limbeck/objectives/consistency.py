"""The student on mixed input against the mixture of its own clean outputs (CR-ILD).

Part of `limbeck.objectives`. No teacher takes part.
"""

from collections.abc import Mapping as Batch
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import ActivationKey, Request, Trace
from limbeck.activations.request import What
from limbeck.mappings import parse_layers
from limbeck.mappings.maps import Projections
from limbeck.objectives.base import NOTHING, Borrowed, Objective, Shape, TermSettings
from limbeck.objectives.registration import objective
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import LayerNumber
from limbeck.support.step_state import StepState


class ConsistencySpec(TermSettings):
    """MixUp only: the student on mixed input against the mixture of its clean outputs (CR-ILD)."""

    layers: str | LayerNumber | list[LayerNumber] = Field(
        "M", description="student layers; M is its depth"
    )
    stack: Literal["main", "encoder", "decoder"] = Field("main", description="whose layers")
    detach_target: bool = Field(False, description="no gradient through the target")
    target: Literal["mixed", "clean"] = Field(
        "mixed",
        description="which side is the target: the mixed input's output (the paper), or each clean "
        "output in turn, over its own keys (its release)",
    )
    through: str | None = Field(
        None,
        description="hidden_consistency: the term of the stage whose learned map of the student's "
        "states both sides pass first (W_H, in its release)",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> "ConsistencySpec":
        if self.target == "clean" and self.detach_target:
            raise ValueError(
                "target: clean never lets a gradient through; `detach_target` has no effect, leave it out"
            )
        if self.through is not None and self.compare != "hidden_consistency":
            raise ValueError("`through` maps hidden states; leave it out")
        return self

    @property
    def lender(self) -> str | None:
        """The term of the recipe's `through`."""
        return self.through

    @property
    def needs_mixed(self) -> str:
        """To hold the one against the other."""
        return f"{self.compare} compares mixed with clean input"

    @property
    def reads_decoder(self) -> bool:
        """By the stack."""
        return self.stack == "decoder"


@objective("attention_consistency", "hidden_consistency", settings=ConsistencySpec)
class Consistency(Objective):
    """R_MHA (attention) and R_IR (hidden states before W_H) of CR-ILD Eq. 5 and 6.

    `target: mixed`: KL( A(mix) ‖ mix(A_i, A_j) ), or squared error of hidden states; gradients flow
    to both unless `detach_target`. `target: clean`, as its release: λ·CE(A(mix), A_i) +
    (1−λ)·CE(A(mix), A_j) with the clean side a constant and every query row counted, the maps over
    the keys of i in the first and of j in the second, A(mix)'s too.

    Args:
        maps: the learned maps applied to hidden states before the comparison, with the spec's
            `through`; another term owns and trains them.

    Raises:
        LimbeckError: layers the student does not have.
    """

    needs_teacher = False
    reads_logits = False
    needs_layers = True
    settings: ConsistencySpec

    def __init__(
        self, settings: ConsistencySpec, shape: Shape, setting: str, maps: Projections | None = None
    ) -> None:
        super().__init__(settings, shape, setting, maps)
        self._maps = Borrowed(maps)
        depth = shape.student.stack(settings.stack, setting, "student").layers
        self.layers = parse_layers(
            settings.layers,
            teacher_depth=shape.teacher.layers,
            student_depth=depth,
            setting=setting,
        )
        lowest = 1 if settings.compare == "attention_consistency" else 0
        missing = [layer for layer in self.layers if not lowest <= layer <= depth]
        if missing:
            raise LimbeckError(
                f"{setting}.layers: the student has no layer {', '.join(map(str, missing))}",
                f"its layers are {lowest}..{depth}",
            )

    def _seen(self, layer: int) -> ActivationKey:
        what: What = "hidden"
        if self.settings.compare == "attention_consistency":
            what = "probabilities" if self.settings.target == "mixed" else "scores"
        return ActivationKey(what, layer, None, self.settings.stack)

    def request(self, side: str, step_state: StepState) -> Request:
        """The same of the student on mixed and on clean input; nothing of the teacher."""
        if side == "teacher":
            return NOTHING
        return Request(frozenset(self._seen(layer) for layer in self.layers))

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Sum over the layers.

        Raises:
            LimbeckError: the input was not mixed.
        """
        mixed = student.mixed
        if mixed is None:
            raise LimbeckError(
                f"{self.setting}: {self.settings.compare} compares mixed with clean input, and nothing is mixed",
                "add mixup: {alpha: 1} to the recipe",
            )
        mask = student.mask(self.settings.stack)
        keys, theirs = mixed.pair(mixed.clean.mask(self.settings.stack))
        total = []
        for layer in self.layers:
            seen = self._seen(layer)
            state = self._mapped(student[seen])
            own, partner = mixed.pair(self._mapped(mixed.clean[seen]))
            if self.settings.target == "mixed":
                blend = F.mix(own.float(), partner.float(), mixed.share)
                target = state.detach() if self.settings.detach_target else state
                total.append(self._distance(blend, target, mask))
            else:
                total.append(
                    mixed.share * self._distance_to_clean(state, own.detach(), keys)
                    + (1 - mixed.share) * self._distance_to_clean(state, partner.detach(), theirs)
                )
        return torch.stack(total).sum()

    def _mapped(self, state: Tensor) -> Tensor:
        maps = self._maps.lender
        return state if maps is None else maps.student(state, 0)

    def _distance(self, state: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        if self.settings.compare == "attention_consistency":
            return F.attention_kl(state, target, mask)
        return F.hidden_mse(state, target, mask)

    def _distance_to_clean(self, state: Tensor, target: Tensor, keys: Tensor) -> Tensor:
        everywhere = torch.ones_like(keys, dtype=torch.bool)
        if self.settings.compare == "attention_consistency":
            return F.attention_cross_entropy(state, target, everywhere, keys)
        return F.hidden_mse(state, target, everywhere)
