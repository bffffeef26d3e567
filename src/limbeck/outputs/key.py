"""The key of an entry: everything that determines its content. Part of `limbeck.outputs`."""

import hashlib
import json
from importlib import metadata

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset
from transformers import PreTrainedModel

from limbeck.outputs.columns import Ask
from limbeck.support.machine import weights_of
from limbeck.tasks import TEXT_READING, Processor

_FORMAT = 3
# The outputs of a model of given weights depend on them.
LIBRARIES = ("torch", "transformers")
_LABELS = "labels"
# Columns that no model reads, but for the labels, which a decoder does.
_UNREAD = frozenset({_LABELS, "label", "start_positions", "end_positions"})


def fingerprint(model: PreTrainedModel, rows: Dataset, wanted: Ask, precision: str) -> str:
    """A key of teacher weights and configuration, tokenised rows, request, precision, libraries."""
    digest = hashlib.blake2b(digest_size=16)
    about = [_FORMAT, precision, library_versions(), wanted.names()]
    digest.update(json.dumps(about).encode())
    add_model(digest, model)
    read_too = {_LABELS} if model.config.is_encoder_decoder else set()
    add_rows(digest, rows, _UNREAD - read_too)
    return digest.hexdigest()


def library_versions() -> list[str]:
    """Those that a model's outputs depend on."""
    return [metadata.version(name) for name in LIBRARIES]


def add_model(digest: hashlib.blake2b, model: PreTrainedModel) -> None:
    """Add everything that determines a model's outputs: class, configuration and weights."""
    digest.update(type(model).__name__.encode())
    config = json.loads(model.config.to_json_string(use_diff=False))
    for name in ("_name_or_path", "transformers_version"):  # moved, or read by a later version
        config.pop(name, None)
    digest.update(json.dumps(config, sort_keys=True).encode())
    add_weights(digest, model)


def digest_of_model(model: PreTrainedModel) -> str:
    """What its outputs follow from but for the libraries: class, configuration and weights."""
    digest = hashlib.blake2b(digest_size=16)
    add_model(digest, model)
    return digest.hexdigest()


def digest_of_tokenizer(tokenizer: Processor) -> str:
    """The tokenizer that makes the tokens of a text."""
    return digest_of_text(TEXT_READING.describe(tokenizer))


def digest_of_text(text: str) -> str:
    """For keys."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def add_weights(digest: hashlib.blake2b, model: PreTrainedModel) -> None:
    """Add the weights alone, by name, shape, type and value."""
    for name, weight in weights_of(model):
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        flat = weight.detach().cpu().contiguous().flatten()
        # numpy has no bfloat16; bytes it has.
        digest.update(flat.view(torch.uint8).numpy().data)


def add_rows(digest: hashlib.blake2b, rows: Dataset, unread: frozenset[str] = frozenset()) -> None:
    """Add all columns of encoded rows but the unread ones, in the rows' order."""
    table: pa.Table = rows.with_format("arrow")[:]
    for name in sorted(set(table.column_names) - unread):
        digest.update(name.encode())
        column = table.column(name)
        if not _is_numbers(column.type):
            # As numpy has them they are addresses, which no other process repeats.
            column = column.cast(pa.large_binary())
            digest.update(pc.binary_length(column).to_numpy().tobytes())
            for value in column:
                digest.update(value.as_buffer())
            continue
        while _is_list(column.type):
            digest.update(pc.list_value_length(column).to_numpy().tobytes())
            column = pc.list_flatten(column)
        digest.update(str(column.type).encode())
        digest.update(column.to_numpy().tobytes())


def _is_numbers(kind: pa.DataType) -> bool:
    """Whether values, or values of lists, are numbers; bytes and text of any type are not."""
    while _is_list(kind):
        kind = kind.value_type
    found: bool = pa.types.is_primitive(kind)
    return found


def _is_list(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_one(kind) for is_one in lists)


def digest_of_ids(ids: np.ndarray) -> str:
    """A digest of row ids in their order."""
    return hashlib.blake2b(np.ascontiguousarray(ids, "<i8").tobytes(), digest_size=16).hexdigest()
