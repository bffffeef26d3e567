"""What a model is made of, asked by name: layers, widths, heads, and what can be seen of it.

Pre-flight, projections, mappings
and students size themselves by them.
"""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

from limbeck.activations.anatomy import anatomy_of, stack_of
from limbeck.activations.plan import kinds_of
from limbeck.support.errors import LimbeckError


def number_of_layers(model: PreTrainedModel, stack: str = "main") -> int:
    """How many layers a stack runs, L; shared layers count once per call.

    Raises:
        LimbeckError: a model without such a stack.
    """
    return len(stack_of(model, stack).modules)


def hidden_size(model: PreTrainedModel, stack: str = "main") -> int:
    """The width d of a stack's hidden states.

    Raises:
        LimbeckError: a model without such a stack.
    """
    return int(stack_of(model, stack).owner.config.hidden_size)


def number_of_heads(model: PreTrainedModel, stack: str = "main") -> int:
    """How many attention heads H each layer of a stack has (query heads, where keys are grouped); 0 without attention.

    Raises:
        LimbeckError: a model without such a stack.
    """
    found = stack_of(model, stack)
    config = found.owner.config
    own = getattr(config, f"{found.name}_attention_heads", None)
    return int(getattr(config, "num_attention_heads", 0) if own is None else own)


def stack_layers(model: PreTrainedModel, stack: str = "main") -> nn.ModuleList:
    """The list of a stack's layer modules, the very one the model runs.

    Raises:
        LimbeckError: a model without such a stack, or one whose layers share one module (ALBERT).
    """
    found = stack_of(model, stack)
    if found.shared:
        raise LimbeckError(
            f"the layers of {type(model).__name__} share one module and cannot be picked apart",
            "set num_hidden_layers in the student's configuration instead of listing layers",
        )
    return found.layers


def stack_layers_name(model: PreTrainedModel, stack: str = "main") -> str:
    """The dotted name of `stack_layers` in the model, for example `bert.encoder.layer`.

    Raises:
        LimbeckError: as `stack_layers`.
    """
    stack_layers(model, stack)
    return stack_of(model, stack).layers_name


def kinds_available(model: PreTrainedModel, stack: str = "main") -> tuple[str, ...]:
    """Which values of `ActivationKey.what` can be asked of a stack.

    Raises:
        LimbeckError: a model without such a stack.
    """
    return kinds_of(stack_of(model, stack), cross=stack == "cross")


def stack_names(model: PreTrainedModel) -> tuple[str, ...]:
    """The stacks a request may name: `main`; of an encoder–decoder the others too."""
    return tuple(anatomy_of(model).stacks)


def is_causal(model: PreTrainedModel, stack: str = "main") -> bool:
    """Whether a stack's attention is kept from seeing what comes later.

    Raises:
        LimbeckError: a model without such a stack.
    """
    core = stack_of(model, stack).core(1, cross=stack == "cross")
    return bool(getattr(core, "is_causal", False))
