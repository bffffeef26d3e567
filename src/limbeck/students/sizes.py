"""Sizes that no model has, refused before anyone builds a billion layers one by one.

Below `checkpoints` and `transplanting`, which read and build models.
"""

from __future__ import annotations

from transformers import PretrainedConfig

from limbeck.support.errors import LimbeckError, Problem

_MOST = {
    "num_hidden_layers": 10_000,
    "num_layers": 10_000,
    "num_decoder_layers": 10_000,
    "encoder_layers": 10_000,
    "decoder_layers": 10_000,
    "num_attention_heads": 10_000,
    "hidden_size": 1_000_000,
    "intermediate_size": 10_000_000,
    "vocab_size": 100_000_000,
}
# A float32 model of so many parameters takes 4 TB.
_MOST_PARAMETERS = 10**12


def refuse_impossible(config: PretrainedConfig, what: str) -> None:
    """Raise LimbeckError for a configuration whose sizes are no positive numbers, or beyond any model's."""
    problems = []
    sizes: dict[str, int] = {}
    for name, most in _MOST.items():
        own = config.attribute_map.get(name, name)
        value = getattr(config, own, None)
        if value is None or isinstance(value, list | tuple):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            problems.append(
                Problem(f"{what}: {own} is {value!r:.40}", f"write a whole number from 1 to {most}")
            )
        else:
            sizes[name] = value
    problems += _indivisible(config, sizes, what)
    width = sizes.get("hidden_size", 1)
    layers = sizes.get("num_hidden_layers", 1)
    parameters = width * (sizes.get("vocab_size", 1) + 4 * layers * width)
    if not problems and parameters > _MOST_PARAMETERS:
        problems.append(
            Problem(f"{what}: its sizes come to more than {parameters:.0e} parameters", "lower one")
        )
    if problems:
        raise LimbeckError(problems)


def refuse_beyond(layers: int, width: int, what: str) -> None:
    """Raise LimbeckError for a shape beyond any model's, before a configuration lists its layers."""
    for name, value in (("num_hidden_layers", layers), ("hidden_size", width)):
        if value > _MOST[name]:
            raise LimbeckError(
                f"{what}: {name} is {value}", f"write a whole number from 1 to {_MOST[name]}"
            )


def _indivisible(config: PretrainedConfig, sizes: dict[str, int], what: str) -> list[Problem]:
    """A width that the heads have to share evenly, as they do where they have no width of their own.

    Rotary positions turn a head's numbers in pairs: there it has to be even.
    """
    width, heads = sizes.get("hidden_size"), sizes.get("num_attention_heads")
    own = any(
        getattr(config, name, None) for name in ("head_dim", "d_kv", "d_head", "embedding_size")
    )
    if width is None or heads is None or own:
        return []
    unit = heads * 2 if any("rope" in name for name in config.to_dict()) else heads
    if width % unit == 0:
        return []
    return [
        Problem(
            f"{what}: {heads} attention heads cannot share a width of {width} evenly",
            f"take a width that {unit} divides, or other num_attention_heads",
        )
    ]
