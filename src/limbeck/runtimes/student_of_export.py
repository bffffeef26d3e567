"""Which student an exported folder was made of, held against the one that its run holds now.

Part of `limbeck.runtimes`. A run may be trained again in its place: what was exported of the student before
must not pass for the new one's. A run's manifest knows its weights by their checksums, so nothing large is
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from limbeck.support.errors import Problem
from limbeck.support.files import checksum
from limbeck.support.manifest import Manifest

EXPORTS = "exported"
"""The folder of a run that holds its exported models."""
_WEIGHTS = ".safetensors"
_STUDENT = "student/"


def weights_of(folder: Path) -> dict[str, str]:
    """Names and checksums of the files of weights in a checkpoint's folder; of a Hub name none.

    An embedding model's linear map has a folder of its own, `2_Dense`.
    """
    found = [*folder.glob(f"*{_WEIGHTS}"), *folder.glob(f"[0-9]*_*/*{_WEIGHTS}")]
    return {path.relative_to(folder).as_posix(): checksum(path) for path in sorted(found)}


def shipped_weights(run: Path) -> dict[str, str] | None:
    """The same of a run's student, as its manifest has them: none while it is trained; None of no run."""
    manifest = Manifest.read(run)
    if manifest is None:
        return None
    return {
        name.removeprefix(_STUDENT): known
        for name, known in sorted(manifest.checksums.items())
        if name.startswith(_STUDENT) and name.endswith(_WEIGHTS)
    }


def other_student(folder: Path, format: str, weights: Mapping[str, str]) -> Problem | None:
    """What is wrong with a folder in a run's `exported` that was made of another student; None if nothing.

    Args:
        folder: the exported folder.
        format: what it was exported as.
        weights: those it was made of, as `weights_of` gives them; none where nobody wrote them down.
    """
    place = folder.resolve()
    run = place.parent.parent
    now = shipped_weights(run) if place.parent.name == EXPORTS else None
    if now is None or (weights and now == dict(weights)):
        return None
    said = "was made from another student than the run holds" if weights else (
        "does not say which student it was made from"
    )  # fmt: skip
    out = "" if place.name == format else f" --out {folder}"
    again = f"limbeck export {folder.parent.parent} --format {format}{out} --overwrite"
    return Problem(f"exported model {str(folder)!r} {said}", f"export again ({again})")
