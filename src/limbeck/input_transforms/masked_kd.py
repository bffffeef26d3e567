"""MaskedKD: the teacher reads only patches that the student attends to (Son, Ryu, Lee, Lee: "The Role of Masking for
Efficient Supervised Knowledge Distillation of Vision Transformers", ECCV 2024, §3).
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from limbeck import activations
from limbeck.input_transforms import input_transform
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.settings import Share

_EMBEDDED = activations.ActivationKey("hidden", 0)


class MaskedKDSettings(input_transform.TransformSettings):
    """How much is left to the teacher."""

    use: Literal["masked-kd"]
    keep: Share = Field(0.5, description="share of the patches, or tokens, that the teacher reads")


@input_transform.INPUT_TRANSFORMS.register("masked-kd")
class MaskedKD(input_transform.InputTransform):
    """A teacher is shown its class token and the patches to which the student's gives most attention.

    The attention is the student's last layer's, from the class token to each patch, mean over the
    heads. An image's other patches leave the teacher's input behind its position embeddings, which saves
    their computation. For text, which the paper does not look at, an example's other tokens are masked
    in the teacher's attention; its first token is always read.

    The teacher then shows logits and states of its class token; tokens have no partner in the student.
    """

    name = "masked-kd"
    settings = MaskedKDSettings
    why_live: ClassVar[str | None] = "in every step the student selects the teacher's input"

    spec: MaskedKDSettings

    def sees_first(self, student: PreTrainedModel) -> activations.Request:
        """The attention of the last layer."""
        return activations.Request.attention([activations.number_of_layers(student)])

    def choose(
        self, batch: input_transform.Batch, sampled: None, student: activations.Trace
    ) -> Tensor:
        """Which tokens the teacher reads, [B, N] boolean: of an image as many in every example."""
        layers = {
            key.layer: at for key, at in student.values.items() if key.what == "probabilities"
        }
        attention = layers[max(layers)].detach()[:, :, 0, 1:].float().mean(1)
        real = student.mask()[:, 1:]
        kept = (real.sum(1, keepdim=True) * float(self.spec.keep)).round().clamp(min=1)
        # The first of equal ones; padding comes last.
        order = attention.masked_fill(~real, -1.0).argsort(dim=1, descending=True, stable=True)
        chosen = (order.argsort(dim=1) < kept) & real
        return torch.cat([torch.ones_like(chosen[:, :1]), chosen], 1)

    def capture(self, asked: input_transform.ModelPass, sampled: Tensor) -> activations.Trace:
        """The student on all patches; a teacher on the chosen ones.

        Raises:
            LimbeckError: single tokens of the teacher are requested, or it has other tokens than
                the student.
        """
        if asked.side == "student":
            return asked.plain()
        tokens = [key for key in asked.request.items if key.what != "hidden" or key.pool != "cls"]
        if tokens:
            raise LimbeckError(
                f"masked-kd: the teacher reads some of the tokens only, and {tokens[0]} is of all of them",
                "compare the logits (method kd), or states of the class token, pool: cls",
            )
        if asked.batch.get("input_ids") is not None:
            batch = {**asked.batch, "attention_mask": sampled.to(torch.long)}
            trace = asked.run(batch, asked.request)
        else:
            embedded = activations.capture(
                asked.model, asked.batch, activations.Request(frozenset({_EMBEDDED}))
            )
            own, wanted = embedded[_EMBEDDED].shape[1], sampled.shape[1]
            if own != wanted:
                raise LimbeckError(
                    f"masked-kd: the student has {wanted} tokens of an image, the teacher {own}",
                    "take models of one image size and patch size",
                )
            kept = embedded[_EMBEDDED][sampled]
            entry = kept.reshape(len(sampled), -1, kept.shape[-1])
            trace = activations.capture(asked.model, asked.batch, asked.request, entry=entry)
        asked.passes.add(asked.model, asked.batch, asked.request, gradient=False)
        return trace

    def problems(
        self, batch: input_transform.Batch, models: Mapping[str, PreTrainedModel]
    ) -> list[Problem]:
        """Models without attention from a class token."""
        return super().problems(batch, models) + [
            Problem(
                f"{self.name}: the {side} ({type(model).__name__}) shows no attention",
                "take a student and a teacher that are transformers over tokens or patches",
            )
            for side, model in models.items()
            if "probabilities" not in activations.kinds_available(model)
        ]
