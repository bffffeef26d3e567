"""Request, then capture: record exactly the activations that objectives need, from any transformers model.

Student and teacher run here, and objectives read the traces. This
package is the only place that knows about architectures.
"""

from limbeck.activations.anatomy import (
    hidden_size,
    is_causal,
    kinds_available,
    number_of_heads,
    number_of_layers,
    stack_layers,
    stack_layers_name,
    stack_names,
)
from limbeck.activations.forward import (
    CastOnce,
    CompiledCapture,
    Passes,
    capture,
    packing_problems,
    token_mask,
)
from limbeck.activations.request import ActivationKey, Mixed, Request, Trace

__all__ = [
    "ActivationKey",
    "CastOnce",
    "CompiledCapture",
    "Mixed",
    "Passes",
    "Request",
    "Trace",
    "capture",
    "hidden_size",
    "is_causal",
    "kinds_available",
    "number_of_heads",
    "number_of_layers",
    "packing_problems",
    "stack_layers",
    "stack_layers_name",
    "stack_names",
    "token_mask",
]
