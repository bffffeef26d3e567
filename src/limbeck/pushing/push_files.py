"""What of a run goes to the Hub, file by file, and what each says there. Part of `limbeck.pushing`.

A list of what is sent, not of what is left out: checkpoints, teacher outputs and rows never get in. No file
that is sent names a folder of the machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from limbeck.records import RECORD_NAME, Record, finite
from limbeck.reporting.cards import CARD_NAME, is_ours
from limbeck.reporting.cards.card_settings import read_settings
from limbeck.reporting.cards.model_card import render_card
from limbeck.reporting.cards.origins import public_name, without_paths
from limbeck.runtimes import EXPORT_NAME, exports_of, read_export
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home, checksum_of_text
from limbeck.support.manifest import Manifest, sealed
from limbeck.support.plain import read_text

_STUDENT = "student/"


@dataclass(frozen=True)
class PushFile:
    """One file: its place in the repository, and where its bytes are.

    Attributes:
        name: its path in the repository.
        content: a file's path, or the bytes themselves.
    """

    name: str
    content: Path | bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size


def push_files(run: str | Path, repo: str) -> list[PushFile]:
    """Student, exported folders, card and record of a finished run, as they will lie in a repository.

    Raises:
        LimbeckError: no finished run, or files that are not what the run wrote.
    """
    folder = at_home(run)
    record = Record.load(folder)
    if record.status != "finished":
        raise LimbeckError(f"run {run} is {record.status}", "finish it first")
    found = [*_student(folder), _card(folder, repo), _record(record)]
    for place in exports_of(folder):
        found += _exported(place)
    return found


def _student(folder: Path) -> Iterator[PushFile]:
    """What the run wrote and nothing that was put beside it."""
    manifest = Manifest.read(folder)
    names = [] if manifest is None else [n for n in manifest.checksums if n.startswith(_STUDENT)]
    if manifest is None or not names:
        raise LimbeckError(
            f"{folder} does not say which files are its student's", "name a run of limbeck's"
        )
    if broken := manifest.damaged(folder, _STUDENT):
        raise LimbeckError(
            f"{folder} is damaged: {', '.join(broken)}", "put back a copy, or train it again"
        )
    for name in sorted(names):
        yield PushFile(name.removeprefix(_STUDENT), folder / name)


def _card(folder: Path, repo: str) -> PushFile:
    """A card under the repository's name; a person's own as it is."""
    card = folder / "student" / CARD_NAME
    if not is_ours(card):
        return PushFile(CARD_NAME, card)
    return PushFile(CARD_NAME, render_card(folder, read_settings(folder), repo).encode())


def _record(record: Record) -> PushFile:
    """The record with names in place of paths and no text of any row, sealed again."""
    bare = {name: found.without_texts() for name, found in record.classification.items()}
    record = record.model_copy(update={"classification": bare})
    plain = finite(record.model_dump(mode="python", by_alias=True))
    for part in ("recipe", "data", "stages", "team", "outputs", "teacher"):
        plain[part] = without_paths(plain[part])
    # Checksums of files by their places: they say nothing where these are not.
    plain["execution"].update(read={}, files={})
    text = json.dumps(sealed(plain), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return PushFile(RECORD_NAME, text.encode())


def _exported(place: Path) -> Iterator[PushFile]:
    """An exported folder under its own name; what says where it came from says the name alone."""
    manifest = read_export(place)
    source = public_name(manifest.source)
    sums = dict(manifest.checksums)
    for name in sorted(sums):
        content: Path | bytes = place / name
        if name == CARD_NAME and manifest.source != source:
            text = read_text(place / name).replace(f"`{manifest.source}`", f"`{source}`")
            content, sums[name] = text.encode(), checksum_of_text(text)
        yield PushFile(f"{place.name}/{name}", content)
    gate = manifest.gate.model_copy(update={"data": without_paths(manifest.gate.data)})
    said = manifest.model_copy(update={"source": source, "gate": gate, "checksums": sums})
    text = json.dumps(said.model_dump(), indent=1) + "\n"
    yield PushFile(f"{place.name}/{EXPORT_NAME}", text.encode())
