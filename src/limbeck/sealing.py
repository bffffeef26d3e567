"""A record's own checksum: nobody reads a number out of it that no run wrote.

Below everything that reads a `record.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.files import checksum_of_text

_CHECKSUM = "checksum"


class DamagedRecordError(LimbeckError):
    """A record that is not what its checksum was taken of."""


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """A record in plain JSON, with the checksum of all it says."""
    return content | {_CHECKSUM: _of(content)}


def verified(content: object, source: Path) -> object:
    """The content without its checksum; earlier versions wrote none.

    Raises:
        DamagedRecordError: it is not what its checksum was taken of.
    """
    if not isinstance(content, dict) or _CHECKSUM not in content:
        return content
    if content[_CHECKSUM] != _of(content):
        raise DamagedRecordError(
            f"{source} is damaged, or was edited: it is not what its checksum was taken of",
            f"put back a copy of it; or take out its line {_CHECKSUM!r}, to use it as it is",
        )
    return {key: value for key, value in content.items() if key != _CHECKSUM}


def _of(content: dict[str, Any]) -> str:
    """Of what a record says, however it is set out."""
    said = {key: value for key, value in content.items() if key != _CHECKSUM}
    return checksum_of_text(json.dumps(said, sort_keys=True))
