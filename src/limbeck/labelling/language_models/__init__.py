"""Language models that label: a causal model on this machine, or one behind an OpenAI-compatible endpoint.

`read_prompt` and `bind_prompt` say what is asked, `CausalLabeller` and `endpoint_labeller.EndpointLabeller` ask it; the
latter needs the client of the extra `endpoint`.
"""

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

__all__ = [
    "BoundPrompt",
    "CausalLabeller",
    "EndpointSettings",
    "Prompt",
    "bind_prompt",
    "is_causal_model",
    "is_language_model",
    "load_causal_labeller",
    "read_prompt",
    "sample_examples",
]
