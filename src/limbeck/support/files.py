"""Files written atomically, safe in a power cut, and compared by checksum.

Below everything that writes: a killed run leaves the last good file, never half of a new one.
"""

import difflib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import xxhash

from limbeck.support.errors import LimbeckError, Problem

# The disk, the user's share of it, or the largest file the system allows.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Libraries written in Rust or C++ pass the system's number on in words.
_FULL_IN_WORDS = re.compile(rf"\((?:os )?error ({'|'.join(map(str, _FULL))})\)|No space left")
_READ_BYTES = 2**22


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically, as `written_whole`; text as UTF-8."""
    with written_whole(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Write a file piece by piece and atomically: to a temporary file next to it, then one rename.

    After the block the file is on disk; if the block raises, the old file stays. Raises LimbeckError
    when the folder cannot be made or written, or has no room.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
        )
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        _as_open_would(Path(temporary))
        Path(temporary).replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        if is_full(error):
            raise LimbeckError(full_disk(path, error)) from error
        raise LimbeckError(
            f"cannot write {path}: {error.strerror or error}", "choose a folder you may write to"
        ) from None


def is_temporary(path: Path) -> bool:
    """Whether a file was left by a killed `write_whole`."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def _as_open_would(path: Path) -> None:
    """The mode that open() gives: mkstemp makes files that only the owner may read."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def share_weights(folder: Path) -> None:
    """Weights in a folder are as readable as its other files: safetensors writes them for their owner alone."""
    for path in folder.rglob("*.safetensors"):
        if path.stat().st_nlink == 1:  # not another folder's file
            _as_open_would(path)


def put_in_place(part: Path, target: Path) -> None:
    """Move a complete folder to its final name, replacing any folder there: on disk first, then renamed."""
    share_weights(part)
    sync_files(part)
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)
    sync_folder(target.parent)


def sync_files(folder: Path) -> None:
    """Wait until every file below a folder, and the folder itself, is on disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    if os.name == "nt":  # Windows opens no folders, and writes names at once
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- the same bytes ----


def checksum(path: Path) -> str:
    """The XXH3 of a file's bytes (128 bits): detects damage, not malice; as fast as memory is read."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def checksum_of_text(text: str) -> str:
    """The same of a text's UTF-8 bytes."""
    return checksum_of_bytes(text.encode())


def checksum_of_bytes(content: bytes) -> str:
    """The same of bytes in memory."""
    return xxhash.xxh3_128(content).hexdigest()


def checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Name below the folder → checksum."""
    return {name: checksum(folder / name) for name in names}


def damaged(folder: Path, expected: Mapping[str, str]) -> list[str]:
    """The names of files that are missing, cannot be read, or have changed."""
    return [name for name, known in expected.items() if not _is(folder / name, known)]


def _is(path: Path, known: str) -> bool:
    try:
        return checksum(path) == known
    except OSError:
        return False


# ---- a full disk ----


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or what led to it, is that there is no room on the disk."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if _FULL_IN_WORDS.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def full_disk(place: Path, error: BaseException) -> Problem:
    """The error for a full disk."""
    reason = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return Problem(
        f"the disk is full: {place} cannot be written completely ({reason})",
        "make room there (or raise the limit on your files), and run the same command again: a run "
        "continues from its last complete checkpoint",
    )


@contextmanager
def one_error_for_a_full_disk(place: Path) -> Iterator[None]:
    """Whatever a library makes of a full disk becomes one LimbeckError, which names a place."""
    try:
        yield
    except LimbeckError:
        raise
    # Libraries wrap the disk's error in errors of their own kinds; any other passes through.
    except Exception as error:
        if is_full(error):
            raise LimbeckError(full_disk(place, error)) from error
        raise


def free_bytes(place: Path) -> int:
    """Free bytes on the disk of a file or folder, which need not exist yet."""
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


# ---- names ----


def at_home(path: str | Path) -> Path:
    """A path with ~ and ~user spelled out; of a user that does not exist as it is, so no such file."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  Path.expanduser raises for such a user


TEACHER_LABELS = ".teacher-labels"
"""The folder next to run folders for rows that a teacher labeled; hidden, as it is not a run."""


def no_such_file(setting: str, given: str | Path, *, what: str = "file", also: str = "") -> Problem:
    """Say that a file that a setting names is not there, and which of nearly its name are.

    Args:
        setting: whose value it is.
        given: as it was written.
        what: description of the valid values.
        also: a further sentence for the fix.
    """
    place = at_home(given).parent
    wrong = f"{setting}: there is no {what} {given}"
    if TEACHER_LABELS in place.parts:
        return Problem(
            f"{wrong}: the rows that the teacher labeled are gone from {place}",
            "run the same `limbeck distill` command again: the teacher labels them again, and a finished run is not "
            "trained again; or name labeled rows",
        )
    try:
        names = sorted(one.name for one in place.iterdir())
    except OSError:
        return Problem(f"{wrong} (nor the folder {place})", f"check the path{also}")
    found = difflib.get_close_matches(at_home(given).name, names, n=3, cutoff=0.7)
    near = " or ".join(str(Path(given).with_name(name)) for name in found)
    return Problem(wrong, (f"did you mean {near}? " if near else "") + f"check the path{also}")


def file_name(text: str) -> str:
    """Text as the name of one file or folder, which leads nowhere else."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "none"
