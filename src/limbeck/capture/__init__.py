"""Ask, then capture: record exactly what objectives ask of any transformers model.

On the way of a training step: student and teacher run here, and objectives read the traces. This
package is the only place that knows about architectures.
"""

import sys
from types import ModuleType
from typing import Any

from limbeck.capture.cast import CastOnce
from limbeck.capture.compiled import CompiledCapture
from limbeck.capture.facts import (
    hidden_size,
    is_causal,
    kinds_available,
    number_of_heads,
    number_of_layers,
    stack_layers,
    stack_layers_name,
    stack_names,
)
from limbeck.capture.forward import capture, token_mask
from limbeck.capture.passes import Pass, Passes
from limbeck.capture.request import Request, Seen
from limbeck.capture.trace import Mixed, Trace

__all__ = [
    "CastOnce",
    "CompiledCapture",
    "Mixed",
    "Pass",
    "Passes",
    "Request",
    "Seen",
    "Trace",
    "capture",
    "hidden_size",
    "is_causal",
    "kinds_available",
    "number_of_heads",
    "number_of_layers",
    "stack_layers",
    "stack_layers_name",
    "stack_names",
    "token_mask",
]


class _Callable(ModuleType):
    """`limbeck.capture(model, batch, request)` calls the function of the package's name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Trace:
        return capture(*args, **kwargs)


# Importing any of its modules makes `limbeck.capture` the package, whatever the name meant
# before; so the package can be called.
sys.modules[__name__].__class__ = _Callable
