"""MixUp of inputs: one mixture of a batch with itself, the same for teacher and student (CR-ILD).

Token ids cannot be mixed, so their embeddings are: each model embeds the same ids separately, and both
share partners and shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from limbeck.activations import ActivationKey, Mixed, Passes, Request, Trace, capture
from limbeck.functional import mix
from limbeck.input_transforms import input_transform
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import SharedPass
from limbeck.support.settings import Number, Settings
from limbeck.support.step_state import StepState

# The step's generator has other users too.
_STREAM = 1
_ENTRY = ActivationKey("hidden", 0)


class MixupSpec(Settings):
    """Settings of MixUp."""

    alpha: Number = Field(
        1.0, ge=1e-3, le=1e3, description="shares are sampled from Beta(alpha, alpha)"
    )
    partner: Literal["permutation", "reversed"] = Field(
        "permutation", description="mix with a random permutation of the batch, or its reverse"
    )
    at: Literal["word_embeddings", "embedding_output"] = Field(
        "word_embeddings",
        description="mix word vectors, or what enters the first layer (with positions, types and normalisation)",
    )
    dominant: bool = Field(
        False, description="an example's own share is the larger one: max(share, 1 − share)"
    )


@dataclass(frozen=True)
class Mixture:
    """One draw: `partner` [B] holds each example's partner, `share` is its own part λ.

    If processes share the forward pass, partners are counted among the examples of all of them (`everywhere`).
    """

    partner: Tensor
    share: float
    at: str
    everywhere: SharedPass | None = None

    def joined(self, batch: input_transform.Batch) -> "tuple[input_transform.Batch, Mixture]":
        """The batch, and behind it partners from other processes' batches, with the mixture that counts in it."""
        if self.everywhere is None:
            return batch, self
        count = len(self.partner)
        partners = {name: self.everywhere(one)[self.partner] for name, one in sorted(batch.items())}
        both = {name: torch.cat([batch[name], one]) for name, one in partners.items()}
        behind = torch.arange(count, 2 * count, device=self.partner.device)
        return both, replace(self, partner=behind)


@input_transform.INPUT_TRANSFORMS.register("mixup")
class Mixup(input_transform.InputTransform):
    """Both models read the mixture of each example with a partner (Zhang et al. 2018; CR-ILD, Eq. 2).

    `trace.mixed` contains the mixing, and the student's activations on the original batch. Valid
    tokens are the tokens of either partner; token types are the example's own. An encoder–decoder's decoder
    input is mixed in the same way.
    """

    name = "mixup"
    settings = MixupSpec
    why_live: ClassVar[str | None] = "the inputs are mixed again in every step"
    needs_token_ids = True
    mixes = True

    spec: MixupSpec

    def draw(
        self, batch: input_transform.Batch, step_state: StepState, device: torch.device
    ) -> Mixture:
        """A function of the run's seed, the step and the kind of device."""
        own = len(next(iter(batch.values())))
        everywhere = SharedPass(batch, step_state.sharing) if step_state.sharing > 1 else None
        examples = own if everywhere is None else everywhere.count
        share = float(step_state.step_generator(_STREAM).beta(self.spec.alpha, self.spec.alpha))
        if self.spec.partner == "permutation":
            generator = step_state.device_generator(device, _STREAM)
            partner = torch.randperm(examples, generator=generator, device=device)
        else:
            partner = torch.arange(examples - 1, -1, -1, device=device)
        if everywhere is not None:  # the first one for examples that repeat others
            partner = F.pad(partner[everywhere.own], (0, own))[:own]
        share = max(share, 1 - share) if self.spec.dominant else share
        return Mixture(partner, share, self.spec.at, everywhere)

    def capture(self, asked: input_transform.ModelPass, sampled: Mixture) -> Trace:
        """One pass on the mixed batch, and one on the batch as it is where that is wanted.

        Raises:
            LimbeckError: a decoder would read inputs that are not mixed.
        """
        model, request = asked.model, asked.request
        # Made here, so that the clean pass hides the padding of decoder ids as the mixed one does.
        batch, sampled = sampled.joined(_with_decoder_input(model, asked.batch))
        if sampled.at == "embedding_output":
            # Only the main stack's entry is exchanged: a decoder's words would stay as they are.
            decoded = request.logits or any(
                one.stack in ("decoder", "cross") for one in request.items
            )
            if decoded and batch.get("decoder_input_ids") is not None:
                raise LimbeckError(
                    "mixup.at: embedding_output mixes the encoder's input, and not the decoder's tokens",
                    "set at: word_embeddings, which mixes both",
                )
            before = asked.clean | Request(frozenset({_ENTRY}))
            unmixed = capture(model, batch, before)
            _note(asked.passes, model, batch, before, unmixed)
            entry = _mixed(unmixed[_ENTRY], sampled)
            trace = capture(model, _with_union_masks(batch, sampled), request, entry=entry)
        else:
            # Asked for nothing, the model does not run, and the trace holds the examples' own masks.
            unmixed = capture(model, batch, asked.clean)
            _note(asked.passes, model, batch, asked.clean, unmixed)
            trace = capture(model, _mixed_batch(model, batch, sampled), request)
        asked.passes.add(model, batch, request, gradient=torch.is_grad_enabled())
        trace.mixed = Mixed(unmixed, batch, sampled.partner, sampled.share)
        return trace


def _note(
    passes: Passes,
    model: PreTrainedModel,
    batch: Mapping[str, Tensor],
    request: Request,
    unmixed: Trace,
) -> None:
    """The clean pass, through which a gradient may go or not: targets are detached in some methods."""
    kind = passes.add(model, batch, request, gradient=False)
    # What enters the first layer is mixed, and its gradient goes no deeper.
    passes.watch(unmixed, kind, len(batch["input_ids"]), leaving_out=[_ENTRY])


def _mixed(values: Tensor, mixture: Mixture) -> Tensor:
    return mix(values[: len(mixture.partner)], values[mixture.partner], mixture.share)


def _with_union_masks(batch: Mapping[str, Tensor], mixture: Mixture) -> dict[str, Tensor]:
    count = len(mixture.partner)
    mixed = {name: one[:count] for name, one in batch.items()}
    for name, tokens in (
        ("attention_mask", "input_ids"),
        ("decoder_attention_mask", "decoder_input_ids"),
    ):
        if batch.get(tokens) is None:
            continue
        mask = batch.get(name)
        if mask is None:
            mask = torch.ones_like(batch[tokens])
        mixed[name] = torch.maximum(mask[:count], mask[mixture.partner])
    return mixed


def _mixed_batch(
    model: PreTrainedModel, batch: Mapping[str, Tensor], mixture: Mixture
) -> dict[str, Tensor]:
    mixed = _with_union_masks(batch, mixture)
    embed = model.get_input_embeddings()
    for tokens, embedded in (
        ("input_ids", "inputs_embeds"),
        ("decoder_input_ids", "decoder_inputs_embeds"),
    ):
        if mixed.pop(tokens, None) is not None:
            mixed[embedded] = _mixed(embed(batch[tokens]), mixture)
    return mixed


def _with_decoder_input(
    model: PreTrainedModel, batch: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """An encoder–decoder's decoder ids and their mask, which it would make from labels itself."""
    shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    labels = batch.get("labels")
    given = batch.get("decoder_input_ids") is not None
    if shift is None or given or labels is None or labels.dim() != 2:
        return batch
    return {
        **batch,
        "decoder_input_ids": shift(labels=labels),
        "decoder_attention_mask": (labels != -100).to(labels.dtype),
    }
