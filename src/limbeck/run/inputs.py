"""What a recipe reads from disk: which its run must not write over, and checksums of what it holds.

Part of `limbeck.run`.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from limbeck.data.stream import matching
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.manifest import MANIFEST
from limbeck.outputs.store import place_and_member
from limbeck.recipe import Recipe
from limbeck.students import named_model, names_cnn
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home, checksum, checksum_of_text
from limbeck.support.manifest import NAME

# Settings whose value may be a file or a folder, wherever in a recipe they stand.
_MODELS = frozenset({"teacher", "teachers", "init", "tokenizer", "model"})
_PLACES = _MODELS | {
    "outputs",
    "data",
    "dev",
    "test",
    "unlabelled",
    "embeddings",
    "source",
    "plugin",
}
# Values that name no place, whatever lies beside the working directory.
_NO_PLACES = frozenset({"hub", "pocket", "digits", "fresh"})
# Of settings that name a model the ones that stand for another of the run's.
_OTHERS = frozenset({"teacher", "pretrained", "distilled"})


def refuse_inputs(recipe: Recipe, out: Path) -> None:
    """Raise LimbeckError for an output folder that is, or holds, something the run reads."""
    target = at_home(out).resolve()
    found = [
        f"{place} ({setting})"
        for setting, place in places(recipe.model_dump(mode="json"))
        if place.exists() and place.resolve().is_relative_to(target)
    ]
    if found:
        raise LimbeckError(
            f"out: {out} is, or holds, what this run reads: {', '.join(found)}",
            "choose another folder with --out",
        )


def places(settings: dict[str, Any], above: str = "") -> Iterator[tuple[str, Path]]:
    """Each setting whose value may be a file or a folder, and where that would be."""
    for key, value in settings.items():
        name = f"{above}{key}"
        if isinstance(value, dict):
            yield from places(value, f"{name}.")
        elif key in _PLACES:
            for text in value if isinstance(value, list) else [value]:
                shape = key == "init" and isinstance(text, str)
                shape = shape and (names_cnn(text) or named_model(text) is not None)
                other = key in ("init", "model") and text in _OTHERS
                if not isinstance(text, str) or shape or other or text in _NO_PLACES:
                    continue
                url = place_and_member(text)[0] if key == "outputs" else text
                # All files that a pattern means.
                pattern = key == "unlabelled" and not at_home(url).exists()
                for path in (matching(url) if pattern else []) or [
                    at_home(url.removeprefix("hub:"))
                ]:
                    yield name, path


# Which files a recipe names, and checksums of what they hold: a quick look at whether a run's
# inputs are the same. It may see a change where a run would see none (quotes in a table, a file
# that nothing reads), and never misses one; what comes from the Hub by name has no files here and
# is taken to be the same.


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
    # Of stores that lie behind a URL the manifest, which has the checksum of every shard.
    urls = [place_and_member(named)[0] for named in recipe.outputs or ()]
    for url in urls:
        with suppress(FileNotFoundError):
            if "://" in url:
                found[f"outputs {url}"] = _of_manifest(url)
    return found


def _of_manifest(url: str) -> str:
    """Raise FileNotFoundError where there is none."""
    try:
        return checksum_of_text(StoreFiles(url).read(MANIFEST).decode(errors="replace"))
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
