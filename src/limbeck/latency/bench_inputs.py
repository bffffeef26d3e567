"""What models read while they are timed: random token ids of one length, or random pixels.

Every row is full, so that a length means what it says; a model's own vocabulary decides the ids.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from limbeck.activations.compat import TEXT_TO_TEXT
from limbeck.latency.contenders import Contender
from limbeck.support.errors import LimbeckError

_TEXT = ("input_ids", "attention_mask", "token_type_ids")


def inputs_of(one: Contender, batch: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """A batch for a contender: (batch, length) ids, mask and segments, or pixels.

    A text-to-text model's decoder gets its start token alone, so a pass is an answer's first token.

    Raises:
        LimbeckError: the model has fewer positions than `length`.
    """
    random = np.random.default_rng(seed)
    config = one.config.get_text_config()
    size = getattr(config, "image_size", None)
    if size is not None:
        height, width = (size, size) if isinstance(size, int) else size
        shape = batch, getattr(config, "num_channels", 3), height, width
        return {"pixel_values": random.standard_normal(shape).astype(np.float32)}
    limit = getattr(config, "max_position_embeddings", None)
    if isinstance(limit, int) and 0 < limit < length:
        raise LimbeckError(
            f"bench: {one.model} reads {limit} tokens, not {length}", "measure shorter lengths"
        )
    ids = random.choice(_usable(config), (batch, length))
    end = _end_of(config)
    if end is not None:
        ids[:, -1] = end  # some heads read what stands there
    made = {
        "input_ids": ids.astype(np.int64),
        "attention_mask": np.ones((batch, length), np.int64),
        "token_type_ids": np.zeros((batch, length), np.int64),
        "decoder_input_ids": np.full((batch, 1), _start_of(config), np.int64),
    }
    names = one.inputs or _read_by(config)
    return {name: made[name] for name in names}


def _read_by(config: Any) -> tuple[str, ...]:
    """What a checkpoint of this configuration reads."""
    if (
        getattr(config, "is_encoder_decoder", False)
        and {*(config.architectures or ())} & TEXT_TO_TEXT
    ):
        return (*_TEXT[:2], "decoder_input_ids")
    return _TEXT if getattr(config, "type_vocab_size", 0) > 1 else _TEXT[:2]


def _start_of(config: Any) -> int:
    """The one token that a decoder is given."""
    return getattr(config, "decoder_start_token_id", None) or 0


def _usable(config: Any) -> np.ndarray:
    special = {_end_of(config), getattr(config, "pad_token_id", None)}
    ids = np.arange(config.vocab_size)
    return ids[~np.isin(ids, [token for token in special if token is not None])]


def _end_of(config: Any) -> int | None:
    end = getattr(config, "eos_token_id", None)
    end = end[0] if isinstance(end, list | tuple) and end else end
    return end if isinstance(end, int) and 0 <= end < config.vocab_size else None


def write_inputs(folder: Path, name: str, feed: dict[str, np.ndarray]) -> Path:
    """A file the workers read; equal feeds share one."""
    path = folder / f"{name}.npz"
    np.savez(path, **feed)  # type: ignore[arg-type]  # arrays by name; the stubs see options
    return path
