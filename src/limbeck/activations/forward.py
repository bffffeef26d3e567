"""`capture(model, batch, request) -> Trace`: one forward pass, recording what was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.activations.capture_plan import CapturePlan, known_plan, plan_for
from limbeck.activations.explore import LayerStack
from limbeck.activations.masks import text_mask
from limbeck.activations.recorders import Recorder, StopForward, attach, detach
from limbeck.activations.request import Request
from limbeck.activations.stacks import anatomy_of, stack_of
from limbeck.activations.trace import Trace
from limbeck.support.errors import LimbeckError

# Never handed to the model: with labels it would compute a loss nobody reads.
_LABELS = frozenset({"labels", "label", "label_ids", "start_positions", "end_positions"})


def capture(
    model: PreTrainedModel,
    batch: Mapping[str, Tensor],
    request: Request,
    *,
    entry: Tensor | None = None,
) -> Trace:
    """Run `model` on `batch` and record exactly what `request` asks for.

    The caller's grad mode, autocast and train or eval mode hold. Labels and keys the model's
    forward does not name (such as `index`) are left out. Without logits only the bare stack runs,
    and only down to the deepest layer asked for. Nothing stays on the model afterwards, also when
    the pass fails. `entry` [B, N, d] takes the place of the embedding output in the main stack.

    Raises:
        LimbeckError: a model that cannot be captured; layers or kinds it does not have; no decoder
            input where the decoder must run; logits asked of a model without a head; a mask that
            is not [B, N].
    """
    if entry is not None:
        # Seen as the first layer's input, which is where it is exchanged.
        request = request | Request.hidden([0])
    plan = known_plan(model, request)
    if plan is None:
        return _first_capture(model, batch, request, entry)
    return _record(model, batch, request, plan, entry)


@torch.compiler.disable
def _first_capture(
    model: PreTrainedModel, batch: Mapping[str, Tensor], request: Request, entry: Tensor | None
) -> Trace:
    """Plan and record outside compiled graphs: exploring a model is nothing to trace."""
    return _record(model, batch, request, plan_for(model, request), entry)


def _record(
    model: PreTrainedModel,
    batch: Mapping[str, Tensor],
    request: Request,
    plan: CapturePlan,
    entry: Tensor | None,
) -> Trace:
    masks = {name: _text_mask(plan.stacks, name, batch) for name in plan.stacks}
    recorders = {part.stack.name: Recorder(part, masks[part.stack.name]) for part in plan.parts}
    if entry is not None:
        recorders[plan.stacks["main"].name].entry = entry
    outputs = None
    if plan.parts or plan.logits:
        module = _module_to_run(model, plan, batch)
        inputs = _inputs(model, module, batch, plan)
        try:
            for recorder in recorders.values():
                attach(recorder)
            outputs = _run(model, module, inputs, plan)
        finally:
            for recorder in recorders.values():
                detach(recorder)
    return Trace(
        values={
            seen: recorders[plan.stacks[seen.stack].name].value(seen) for seen in request.items
        },
        logits=_logits(model, outputs) if plan.logits else None,
        masks=_all_masks(plan, masks, recorders),
    )


def token_mask(model: PreTrainedModel, batch: Mapping[str, Tensor], stack: str = "main") -> Tensor:
    """Which tokens of a batch are real, [B, N] boolean; all of them for images, class token
    included. A network without layers over tokens makes one of an image.

    Raises:
        LimbeckError: a stack this model does not have, or a mask that is not [B, N].
    """
    anatomy = anatomy_of(model)
    if not anatomy.stacks:
        examples = batch[model.main_input_name]
        return torch.ones(len(examples), 1, dtype=torch.bool, device=examples.device)
    found = stack_of(model, stack)
    mask = _text_mask(anatomy.stacks, stack, batch)
    if mask is None:
        examples = batch[model.main_input_name]
        size = tuple(examples.shape[1:])
        if size not in anatomy.tokens:
            one = {name: value[:1] for name, value in batch.items()}
            with torch.no_grad():
                trace = capture(model, one, Request.hidden([0]))
            anatomy.tokens[size] = trace.mask(found.name).shape[1]
        shape = (len(examples), anatomy.tokens[size])
        mask = torch.ones(shape, dtype=torch.bool, device=examples.device)
    return mask


def _masked_stack(stacks: Mapping[str, LayerStack], name: str) -> LayerStack:
    """The stack whose tokens a mask is about: of cross attention the encoder's, which are keys."""
    return stacks["main" if name == "cross" else name]


def _text_mask(
    stacks: Mapping[str, LayerStack], name: str, batch: Mapping[str, Tensor]
) -> Tensor | None:
    return text_mask(batch, decoder=_masked_stack(stacks, name).name == "decoder")


def _all_masks(
    plan: CapturePlan, masks: Mapping[str, Tensor | None], recorders: Mapping[str, Recorder]
) -> dict[str, Tensor]:
    """The masks by every name a request may use; of images, as the recorders found them."""
    known = {}
    for name, mask in masks.items():
        recorder = recorders.get(_masked_stack(plan.stacks, name).name)
        mask = recorder.mask if mask is None and recorder is not None else mask
        if mask is not None:
            known[name] = mask
    return known


def _module_to_run(
    model: PreTrainedModel, plan: CapturePlan, batch: Mapping[str, Tensor]
) -> nn.Module:
    """The smallest module whose forward pass holds all that is asked."""
    if plan.logits:
        return model
    if plan.encoder_only:
        return plan.stacks["main"].owner
    # Some heads make the decoder's input from the encoder's, which the model below them does not.
    return model.base_model if _has_decoder_input(batch) else model


def _has_decoder_input(batch: Mapping[str, Tensor]) -> bool:
    return any(
        batch.get(name) is not None for name in ("decoder_input_ids", "decoder_inputs_embeds")
    )


def _inputs(
    model: PreTrainedModel, module: nn.Module, batch: Mapping[str, Tensor], plan: CapturePlan
) -> dict[str, Any]:
    """The arguments of the forward call: what the batch holds and `module` names, and no
    labels."""
    names = plan.arguments[type(module)]
    unread = _LABELS if _has_segments(model) else _LABELS | {"token_type_ids"}
    inputs: dict[str, Any] = {
        name: value for name, value in batch.items() if name in names and name not in unread
    }
    if "decoder_input_ids" in names and not _has_decoder_input(batch):
        labels = batch.get("labels")
        shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
        if shift is not None and labels is not None and labels.dim() == 2:
            inputs["decoder_input_ids"] = shift(labels=labels)
    # Nothing is generated. With logits the model's own way is kept, as caching changes last bits:
    # encoder-decoders do without a cache when they are given labels.
    trains_decoder = "decoder" in plan.stacks and batch.get("labels") is not None
    if "use_cache" in names and (trains_decoder or not plan.logits):
        inputs.setdefault("use_cache", False)
    if any(not part.stack.declared for part in plan.parts):
        inputs["output_hidden_states"] = any(part.hidden for part in plan.parts)
        inputs["output_attentions"] = any(part.attention for part in plan.parts)
    if not getattr(model.config, "return_dict", True):
        inputs["return_dict"] = True
    return inputs


def _has_segments(model: PreTrainedModel) -> bool:
    """Whether a second text can be distinguished from a first; a table of one row (RoBERTa) has none for it."""
    return getattr(model.config, "type_vocab_size", None) not in (0, 1)


def _run(
    model: PreTrainedModel, module: nn.Module, inputs: dict[str, Any], plan: CapturePlan
) -> Any:
    try:
        return module(**inputs)
    except StopForward:
        return None
    except ValueError as error:
        if "decoder" not in plan.stacks or plan.encoder_only or _has_decoder_input(inputs):
            raise
        raise LimbeckError(
            f"the decoder of {type(model).__name__} needs input, and the batch has none",
            "put decoder_input_ids, or the labels they are made from, into the batch",
        ) from error


def _logits(model: PreTrainedModel, outputs: Any) -> Tensor:
    logits = getattr(outputs, "logits", None)
    if logits is None and getattr(outputs, "start_logits", None) is not None:
        # A question-answering head: start and end of each token side by side, [B, N, 2].
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)
    if logits is None:
        raise LimbeckError(
            f"{type(model).__name__} has no head, so no logits",
            "load the model with a head, for example AutoModelForSequenceClassification",
        )
    return logits
