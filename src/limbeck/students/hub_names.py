"""Names of models that are no folder here: the Hub's, or a path that leads nowhere. Part of `limbeck.students`.

huggingface_hub asks again for half a minute where nobody answers, for every file that it looks for. So the Hub
is knocked at once before it is asked for what no cache holds.
"""

from __future__ import annotations

import difflib
from functools import lru_cache
from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache
from huggingface_hub.utils import HFValidationError, get_session, validate_repo_id

from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home

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
