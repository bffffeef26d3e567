"""What a causal model's configuration says about which sequences may stand in one pass.

A token's number in a cache is its place in the sequence only where no padding stands between: an attention window
counts the padding too. And frequencies of rotary positions that grow with the length are chosen once for a whole pass,
by its longest sequence.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from typing import Any

from transformers import PreTrainedConfig

# As transformers' configurations call how far a token sees.
_WINDOWS = (
    "sliding_window",
    "sliding_window_size",
    "attention_chunk_size",
    "attention_window_size",
    "window_size",
)


@dataclass(frozen=True)
class PassLimits:
    """Limits of a pass, in tokens.

    Attributes:
        window: the fewest tokens that a layer sees, or infinity.
        longrope: lengths up to which frequencies are the short ones.
        dynamic: lengths up to which frequencies are the original ones; from there each length has its own.
    """

    window: float = inf
    longrope: tuple[int, ...] = ()
    dynamic: tuple[int, ...] = ()

    @property
    def reusable(self) -> float:
        """The widest pass, shared beginning, padding and answers together, that may use keys and values again."""
        # At a dynamic model's original length itself the frequencies of the pass before it stay.
        return min(self.window, *self.longrope, *(length - 1 for length in self.dynamic), inf)

    def frequencies(self, length: int) -> Hashable:
        """Equal for lengths that have the same frequencies."""
        grown = length if any(length >= one for one in self.dynamic) else 0
        return (grown, *(length > one for one in self.longrope))


def pass_limits(config: PreTrainedConfig) -> PassLimits:
    """Of a model's configuration, the text part's if it has several."""
    text = config.get_text_config()
    ropes = _ropes(text)
    longrope = [
        rope.get("original_max_position_embeddings", text.max_position_embeddings)
        for rope in ropes
        if rope.get("rope_type") == "longrope"
    ]
    # As transformers has it: whatever the parameters say of an original length.
    dynamic = [
        text.max_position_embeddings for rope in ropes if "dynamic" in str(rope.get("rope_type"))
    ]
    return PassLimits(_window(text), tuple(longrope), tuple(dynamic))


def _window(config: PreTrainedConfig) -> float:
    if not getattr(config, "use_sliding_window", True):
        return inf
    # Layers may have sizes of their own.
    layers = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    named = [getattr(layer, name, None) for layer in layers for name in _WINDOWS]
    return min((size for size in named if isinstance(size, int) and size > 0), default=inf)


def _ropes(config: PreTrainedConfig) -> list[dict[str, Any]]:
    """One for all layers, or one for each type of layer."""
    given = getattr(config, "rope_parameters", None) or {}
    nested = [one for one in given.values() if isinstance(one, dict)]
    return nested or [given]
