"""Weights of some layers of one model, copied into another model of the same class.

Names are remapped on the dotted name of the layer list,
so nothing here knows an architecture. What only the first layer of a stack holds (T5's relative
position bias) stays with the student's first layer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel

from limbeck.activations import number_of_layers, stack_layers, stack_layers_name
from limbeck.embedding import SentenceEmbedder
from limbeck.students.shapes import refuse_impossible
from limbeck.support.errors import LimbeckError

log = logging.getLogger(__name__)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw initial weights from `seed` and give the caller's random state back.

    Only the CPU's generator is used: models are built there, and seeding an accelerator's would
    disturb a run that is under way.
    """
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


def fresh_model(
    config: PretrainedConfig,
    *,
    seed: int = 0,
    auto: Any = AutoModelForSequenceClassification,
    attn_implementation: str | None = None,
) -> PreTrainedModel:
    """A randomly initialised model in float32, in eval mode, the same for the same seed.

    Raises LimbeckError when the configuration has no class for the task or makes no valid model.
    """
    refuse_impossible(config, f"student: {type(config).__name__}")
    try:
        with seeded(seed):
            model = auto.from_config(
                config, dtype=torch.float32, attn_implementation=attn_implementation
            )
    except Exception as error:  # of another library: zero heads are a ZeroDivisionError
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LimbeckError(
            f"student: no model can be built from this {type(config).__name__}: {first}",
            "check student.config (widths must be divisible by the number of heads)",
        ) from error
    return model.eval()


def shares_one_layer(model: PreTrainedModel) -> bool:
    """Whether the main stack runs fewer layer modules than it has layers (ALBERT)."""
    try:
        return len(stack_layers(model)) != number_of_layers(model)
    except LimbeckError:  # capture names no list for a stack whose layers are shared
        return True


def head_keys(model: PreTrainedModel) -> set[str]:
    """Names in the state dict that belong to the task head: outside the backbone, and its pooler.

    The pooler counts because checkpoints pretrained without it are whole for every purpose but the
    head's. A bare model has no head.
    """
    prefix = model.base_model_prefix
    if not isinstance(getattr(model, prefix, None), torch.nn.Module):
        return set()
    return {
        key
        for key in model.state_dict()
        if not key.startswith(prefix + ".") or key.startswith(prefix + ".pooler.")
    }


def has_no_weights(model: PreTrainedModel) -> bool:
    """Whether what stands on the backbone has no weights of its own: tied ones (T5), or a pooling."""
    return isinstance(model, SentenceEmbedder) or model.get_output_embeddings() is not None


def trained_head_keys(model: PreTrainedModel) -> set[str]:
    """Of `head_keys` those that a trained head cannot be without: an embedding reads no pooler."""
    keys = head_keys(model)
    return outside_backbone(model) if isinstance(model, SentenceEmbedder) else keys


def heads_alike(source: PreTrainedModel, target: PreTrainedModel) -> bool:
    """Whether two models hold the same weights outside their backbones."""
    shapes = [
        {key: model.state_dict()[key].shape for key in outside_backbone(model)}
        for model in (source, target)
    ]
    return shapes[0] == shapes[1]


def transplant(
    source: PreTrainedModel,
    target: PreTrainedModel,
    picked: Mapping[str, Sequence[int]],
    *,
    copy_head: bool,
) -> PreTrainedModel:
    """Fill `target` with `source`'s weights, its layer j with `source`'s layer `picked[stack][j]`.

    Stacks that `picked` leaves out are copied whole. Without `copy_head` the head keeps its fresh
    values, except a pooler, which belongs to the backbone once it is there. Returns `target`.

    Raises LimbeckError when the two models do not hold the same weights in the same shapes.
    """
    if type(source) is not type(target):
        raise LimbeckError(
            f"student: a {type(target).__name__} cannot take weights of a {type(source).__name__}",
            "load the model it starts from with the same task head",
        )
    names = {stack_layers_name(source, stack): layers for stack, layers in picked.items()}
    theirs, ours = source.state_dict(), target.state_dict()
    used: set[str] = set()
    filled: dict[str, Tensor] = {}
    absent: list[str] = []
    kept_head = set() if copy_head else outside_backbone(target)
    for key, own in ours.items():
        if key in kept_head:
            filled[key] = own
            continue
        found = _source_key(key, names)
        if found not in theirs:
            found = key
        if found not in theirs or theirs[found].shape != own.shape:
            absent.append(key)
            continue
        used.add(found)
        filled[key] = theirs[found]
    if absent:
        raise LimbeckError(
            f"student: its shape differs from the model it starts from in {len(absent)} weights: "
            f"{', '.join(absent[:6])}",
            "leave sizes out of student.config, or set init: fresh",
        )
    _say_dropped(theirs.keys() - used - kept_head, names)
    target.load_state_dict(filled, strict=True)
    return target


def outside_backbone(model: PreTrainedModel) -> set[str]:
    """Of `head_keys` those that are no pooler."""
    return {key for key in head_keys(model) if not key.startswith(model.base_model_prefix + ".")}


def _source_key(key: str, names: Mapping[str, Sequence[int]]) -> str:
    """A weight's name in the source: the student's layer number replaced by the picked one."""
    for name, layers in names.items():
        if key.startswith(name + "."):
            number, rest = key[len(name) + 1 :].split(".", 1)
            return f"{name}.{layers[int(number)] - 1}.{rest}"
    return key


def _say_dropped(unused: set[str], names: Mapping[str, Sequence[int]]) -> None:
    """Log weights of picked layers for which the student has no place (ModernBERT's first norm)."""
    picked = tuple(f"{name}.{layer - 1}." for name, layers in names.items() for layer in layers)
    dropped = sorted(key for key in unused if key.startswith(picked))
    if dropped:
        log.warning(
            "student: its first layer has no place for %s of the layer it was copied from",
            ", ".join(dropped),
        )
