"""Which files a checkpoint's weights are read from: safetensors of its own folder alone.

Part of `limbeck.students`. transformers reads what an index or a configuration names, and unpickles
what does not end in .safetensors; so the names are looked at before it is asked.
"""

from __future__ import annotations

import difflib
import json
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from huggingface_hub import constants, try_to_load_from_cache
from huggingface_hub.utils import HFValidationError, get_session, validate_repo_id
from transformers import PreTrainedTokenizerBase
from transformers.utils import (
    ADAPTER_CONFIG_NAME,
    ADAPTER_SAFE_WEIGHTS_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    cached_file,
)

from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.support.given import place_of
from limbeck.support.manifest import Manifest
from limbeck.tasks import TEXT_READING, Processor, Reading

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


# Names of models that are no folder here: the Hub's, or a path that leads nowhere. huggingface_hub
# asks again for half a minute where nobody answers, for every file that it looks for. So the Hub
# is knocked at once before it is asked for what no cache holds.


_SECONDS = 5
_FIRST_READ = ("config.json", "tokenizer_config.json", "preprocessor_config.json")


def refuse_absent(name: str | Path, what: str = "model") -> None:
    """Look whether a name that is no folder here can be one of the Hub's.

    Args:
        name: as it was given.
        what: how a message calls it.

    Raises:
        LimbeckError: it is a path, or the Hub cannot be reached and no cache holds it.
    """
    text = str(name)
    try:
        validate_repo_id(text)
    except HFValidationError:
        raise LimbeckError(
            f"{what} {text!r}: no such folder",
            f"{_near(text)}give a folder that save_pretrained wrote, a limbeck run folder, or a Hub name",
        ) from None
    # Offline, huggingface_hub says at once what its cache lacks.
    if constants.HF_HUB_OFFLINE or any(_is_cached(text, file) for file in _FIRST_READ):
        return
    try:
        _knock(constants.ENDPOINT)
    # Each release of huggingface_hub has an HTTP library of its own choice, with errors of its own.
    except Exception as error:
        raise LimbeckError(
            f"{what} {text!r}: not a folder here, and the Hub ({constants.ENDPOINT}) cannot be reached "
            f"({str(error).strip() or type(error).__name__})",
            f"{_near(text)}check the path, or the network",
        ) from error


def _is_cached(name: str, file: str) -> bool:
    return isinstance(try_to_load_from_cache(name, file), str)


@lru_cache(maxsize=4)
def _knock(endpoint: str) -> None:
    """Whatever it answers, it is there; who did not answer is asked again the next time."""
    get_session().head(endpoint, timeout=_SECONDS)


def _near(text: str) -> str:
    """A folder beside the place that a path names, of nearly its name."""
    place = at_home(text)
    try:
        folders = [path.name for path in place.parent.iterdir() if path.is_dir()]
    except OSError:
        return ""
    near = difflib.get_close_matches(place.name, folders, n=1)
    return f"did you mean {str(place.with_name(near[0]))!r}? " if near else ""


# Reading a tokenizer, or an image processor, from a folder, a run or the Hub.


def read_tokenizer(path_or_name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint's folder, of a run's student, or of a Hub name.

    Raises LimbeckError where there is none to read.
    """
    return read_processor(path_or_name, TEXT_READING)


def read_processor(path_or_name: str | Path, reads: Reading) -> Processor:
    """What makes a model's input in a form of input: a tokenizer, or an image processor.

    Raises LimbeckError where there is none to read.
    """
    folder = at_home(place_of(path_or_name))
    student = folder / "student"
    here = folder.exists()
    own = any((folder / name).exists() for name in _OWN_FILES)
    source = student if not own and student.is_dir() else folder if here else path_or_name
    if not here:
        refuse_absent(path_or_name, reads.processor)
    try:
        return reads.load(str(source))
    # tokenizers raises a bare Exception for a file that is cut, so nothing narrower catches it.
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LimbeckError(
            f"{reads.processor} {str(path_or_name)!r} cannot be read: {first}",
            f"give a folder that {reads.processor}.save_pretrained wrote"
            if here
            else "no such folder, and the Hub did not give it: check the name, the network, "
            "and whether HF_HUB_OFFLINE is set",
        ) from error


_OWN_FILES = ("config.json", "tokenizer_config.json", "preprocessor_config.json")
