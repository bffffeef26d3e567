"""Language models that label: a causal model on this machine, or one behind an OpenAI-compatible endpoint.

`read_prompt` and `bind_prompt` say what is asked, `CausalLabeller` and `EndpointLabeller` ask it; the latter needs
the client of the extra `endpoint`, which is imported when it is first named.
"""

from typing import TYPE_CHECKING, Any

from limbeck.labelling.language_models.causal_labeller import (
    CausalLabeller,
    is_causal_model,
    is_language_model,
    load_causal_labeller,
)
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.prompt import (
    BoundPrompt,
    Prompt,
    bind_prompt,
    read_prompt,
    sample_examples,
)
from limbeck.support.errors import LimbeckError

__all__ = [
    "BoundPrompt",
    "CausalLabeller",
    "EndpointLabeller",
    "EndpointSettings",
    "Prompt",
    "bind_prompt",
    "is_causal_model",
    "is_language_model",
    "load_causal_labeller",
    "read_prompt",
    "sample_examples",
]

if TYPE_CHECKING:
    from limbeck.labelling.language_models.endpoint_labeller import EndpointLabeller


def __getattr__(name: str) -> Any:
    if name != "EndpointLabeller":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from limbeck.labelling.language_models.endpoint_labeller import EndpointLabeller
    except ModuleNotFoundError as error:
        raise LimbeckError(
            f"labels from an endpoint need the package {error.name}, which is not installed",
            "pip install 'limbeck[endpoint]'",
        ) from error
    return EndpointLabeller
