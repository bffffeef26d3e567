"""Ask, then capture: record exactly what objectives ask of any transformers model.

On the way of a training step: student and teacher run here, and objectives read the traces. This
package is the only place that knows about architectures.
"""

from limbeck.capture.facts import (
    hidden_size,
    kinds_available,
    number_of_heads,
    number_of_layers,
    stack_layers,
    stack_layers_name,
)
from limbeck.capture.forward import capture, token_mask
from limbeck.capture.request import Request, Seen
from limbeck.capture.trace import Trace

__all__ = [
    "Request",
    "Seen",
    "Trace",
    "capture",
    "hidden_size",
    "kinds_available",
    "number_of_heads",
    "number_of_layers",
    "stack_layers",
    "stack_layers_name",
    "token_mask",
]
