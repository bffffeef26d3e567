"""Which files a recipe names, and checksums of what they hold: a quick look at whether a run's inputs are the same.

Part of `limbeck.run`. It may see a change where a run would see none (quotes in a table, a file that nothing reads),
and never misses one; what comes from the Hub by name has no files here and is taken to be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from limbeck.outputs import StoreFiles
from limbeck.outputs.manifest import MANIFEST
from limbeck.outputs.store import place_and_member
from limbeck.recipe import Recipe
from limbeck.run.protected_paths import places
from limbeck.support.errors import LimbeckError
from limbeck.support.files import checksum, checksum_of_text
from limbeck.support.manifest import NAME

# Settings that name a model or a tokenizer; others name rows, text or vectors.
_MODELS = frozenset({"teacher", "teachers", "init", "tokenizer", "model"})
# What a model and its tokenizer are read from; a card or a log beside them says nothing of either.
_OF_MODELS = frozenset({".safetensors", ".json", ".txt", ".model", ".jinja"})
_UNREADABLE = "unreadable"


def checksums_of_inputs(recipe: Recipe) -> dict[str, str]:
    """Setting and place, as `teacher runs/t`, → checksum of the files there; none where nothing lies."""
    found = {}
    for setting, place in places(recipe.model_dump(mode="json")):
        if place.exists():
            model = setting.rpartition(".")[2] in _MODELS
            files = _of_model(place) if model else _of_rows(place, set())
            found[f"{setting} {place}"] = _of(place, files)
    return found | _of_far_stores(recipe)


def _of_far_stores(recipe: Recipe) -> dict[str, str]:
    """Of stores that lie behind a URL what their manifests say, which has the checksum of every shard."""
    found = {}
    for named in recipe.outputs or ():
        url, _ = place_and_member(named)
        if "://" in url:
            with suppress(FileNotFoundError):
                found[f"outputs {url}"] = _of_manifest(StoreFiles(url))
    return found


def _of_manifest(files: StoreFiles) -> str:
    """Raise FileNotFoundError where there is none."""
    try:
        return checksum_of_text(files.read(MANIFEST).decode(errors="replace"))
    except LimbeckError:  # whoever reads it says why it cannot
        return _UNREADABLE


def _of(root: Path, files: Iterator[Path]) -> str:
    try:
        known = [f"{path.relative_to(root).as_posix()} {_of_file(path)}" for path in sorted(files)]
    except OSError:  # whoever reads it says why it cannot
        return _UNREADABLE
    return checksum_of_text("\n".join(known))


def _of_model(place: Path) -> Iterator[Path]:
    """Of a run the student's files."""
    if place.is_file():
        return iter((place,))
    student = place / "student"
    run = not (place / "config.json").exists() and student.is_dir()
    files = (student if run else place).iterdir()
    return (path for path in files if path.suffix in _OF_MODELS and path.is_file())


def _of_rows(place: Path, seen: set[Path]) -> Iterator[Path]:
    """All below a folder, but for hidden ones and for runs, which may lie beside the rows; each folder once."""
    if not place.is_dir():
        if place.is_file():  # a pipe would be waited for
            yield place
        return
    if place.resolve() in seen:  # a link leads back
        return
    seen.add(place.resolve())
    for path in place.iterdir():
        if path.name.startswith(".") or (path / NAME).is_file():
            continue
        yield from _of_rows(path, seen)


def _of_file(path: Path) -> str:
    about = path.stat()
    return _once(path, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


@lru_cache(maxsize=100_000)
def _once(path: Path, size: int, modified: int, changed: int) -> str:
    """A grid's cells share their teacher and their rows."""
    return f"{size} {checksum(path)}"
