"""Which files a checkpoint's weights are read from: safetensors of its own folder alone.

Part of `limbeck.students`. transformers reads what an index or a configuration names, and unpickles
what does not end in .safetensors; so the names are looked at before it is asked.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from transformers.utils import (
    ADAPTER_CONFIG_NAME,
    ADAPTER_SAFE_WEIGHTS_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    cached_file,
)

from limbeck.support.errors import LimbeckError
from limbeck.support.manifest import Manifest

_SAFE = ".safetensors"
_INDEX = ".safetensors.index.json"
_FIX = (
    "do not use it if you did not make it; load your own where you trust it and write it again with "
    "model.save_pretrained(FOLDER)"
)


def refuse_unsafe_weights(source: str | Path, folder: Path) -> None:
    """Look at everything in a folder that names a file of weights.

    Raises:
        LimbeckError: a name of a pickled file or of one outside the folder; an index that is none.
    """
    # What else is wrong with a configuration is said where it is read.
    named = (_read(folder / "config.json") or {}).get("transformers_weights")
    if named is not None:
        _refuse(source, "config.json", named, (_SAFE, _INDEX))
    for index in {SAFE_WEIGHTS_INDEX_NAME, *([named] if named else [])}:
        if index.endswith(_INDEX) and (folder / index).exists():
            _refuse_index(source, folder / index)
    if (folder / ADAPTER_CONFIG_NAME).exists() and not (
        folder / ADAPTER_SAFE_WEIGHTS_NAME
    ).exists():
        raise LimbeckError(
            f"model {str(source)!r}: {ADAPTER_CONFIG_NAME} belongs to an adapter without safetensors",
            "merge the adapter into its model and write it with model.save_pretrained(FOLDER)",
        )


def refuse_unsafe_index_on_hub(name: str) -> None:
    """The same of a Hub name's index, where the Hub or the cache has one.

    Raises:
        LimbeckError: as `refuse_unsafe_weights`.
    """
    try:
        index = cached_file(
            name,
            SAFE_WEIGHTS_INDEX_NAME,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    except OSError:  # loading it says why it cannot be had
        return
    if index is not None:
        _refuse_index(name, Path(index))


def refuse_damaged_student(source: str | Path, folder: Path) -> None:
    """Raise LimbeckError for a run's student that is not, file for file, what the run shipped."""
    manifest = Manifest.read(folder.parent)
    if manifest is None:
        return
    broken = manifest.damaged(folder.parent, start=f"{folder.name}/")
    if broken:
        raise LimbeckError(
            f"model {str(source)!r}: {', '.join(broken)} is not what the run wrote",
            "run the same command again, which trains it again; or copy the folder elsewhere to use "
            "it as it is",
        )


def _refuse_index(source: str | Path, path: Path) -> None:
    shards = (_read(path) or {}).get("weight_map")
    if not isinstance(shards, dict):
        raise LimbeckError(
            f"model {str(source)!r}: {path.name} is no JSON object with a weight_map",
            "copy or download it again",
        )
    for shard in shards.values():
        _refuse(source, path.name, shard, (_SAFE,))


def _refuse(source: str | Path, where: str, name: Any, endings: tuple[str, ...]) -> None:
    text = str(name)
    # As either system reads it.
    parts = {*PurePosixPath(text).parts, *PureWindowsPath(text).parts}
    rooted = text.startswith(("/", "\\", "~")) or PureWindowsPath(text).drive
    if not isinstance(name, str) or rooted or ".." in parts:
        problem = "a file outside the folder"
    elif not text.endswith(endings):
        problem = "which is not safetensors (pickled weights are never loaded: they can run code)"
    else:
        return
    raise LimbeckError(f"model {str(source)!r}: {where} names {text!r}, {problem}", _FIX)


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
