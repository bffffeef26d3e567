"""How many tokens a model can read."""

import torch
from torch import nn
from transformers import AutoModel, PretrainedConfig, PreTrainedModel

_TABLES = ("position_embeddings", "embed_positions", "wpe")
_SHORT_TABLE = 256  # at most as many positions are looked up


def positions_of(model: PreTrainedModel) -> int | None:
    """How many tokens a model can read; None where its configuration names no limit."""
    positions = _named(model.config)
    table = position_table(model)
    if positions is not None and table is not None and table.padding_idx is not None:
        positions -= table.padding_idx + 1  # RoBERTa counts positions from behind the padding id
    return positions


def positions_by_config(config: PretrainedConfig) -> int | None:
    """The same of a model that is not loaded."""
    return _named(config) and positions_of(_without_weights(config))


def table_length(config: PretrainedConfig) -> int | None:
    """How many tokens a model's table of positions has room for, if it is a short table; otherwise None."""
    positions = _named(config)
    if positions is None or positions > _SHORT_TABLE:
        return None
    model = _without_weights(config)
    return None if position_table(model) is None else positions_of(model)


def position_table(model: PreTrainedModel) -> nn.Embedding | None:
    """A model's learned or fixed vectors of positions; None where it turns or compares positions instead."""
    return next(
        (
            module
            for name, module in model.named_modules()
            if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in _TABLES
        ),
        None,
    )


def _named(config: PretrainedConfig) -> int | None:
    positions = getattr(config, "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else None


def _without_weights(config: PretrainedConfig) -> PreTrainedModel:
    with torch.device("meta"):
        made: PreTrainedModel = AutoModel.from_config(config)
    return made
