"""Work that depends on a model's architecture alone, done once for all models that share it.

A grid's cells, a team's students and a run's stages are of few shapes; each would be counted again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable

from transformers import PreTrainedModel

from limbeck.activations.compat import attention_of

# What a configuration says of where a model comes from, not of what it is.
_ORIGIN = {"_name_or_path", "architectures", "transformers_version"}
_KNOWN: dict[Hashable, int] = {}


def once_for_each(model: PreTrainedModel, about: Hashable, count: Callable[[], int]) -> int:
    """What `count()` finds, or has found about another model of this architecture.

    `about` names what is counted: the pass and its sizes. An architecture is a class, a
    configuration with its attention implementation, and the shapes of all parameters.
    """
    config = {k: v for k, v in model.config.to_dict().items() if k not in _ORIGIN}
    attention = attention_of(model)
    shapes = tuple((name, weight.shape) for name, weight in model.named_parameters())
    key = (type(model), json.dumps(config, sort_keys=True, default=str), attention, shapes, about)
    if key not in _KNOWN:
        _KNOWN[key] = count()
    return _KNOWN[key]
