"""Checks of a recipe's names, and of the files it reads: a run must not overwrite them, and their checksums.

Part of `limbeck.run`.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from limbeck.data import load, own, stream, text_rows
from limbeck.outputs import manifest, store
from limbeck.outputs.files import StoreFiles
from limbeck.recipe import Recipe, StudentSpec
from limbeck.recipe.paper_settings import stated_of
from limbeck.run.models import learns_from_its_teacher
from limbeck.students import named_model, names_cnn, resolve_checkpoint, starts_random
from limbeck.support import given
from limbeck.support.errors import LimbeckError, Problem, problem_list
from limbeck.support.files import at_home, checksum, checksum_of_text, no_such_file
from limbeck.support.manifest import NAME
from limbeck.training import tracker_problems
from limbeck.training.assistant_start import recorded_start

# Settings whose value may be a file or a folder, anywhere in a recipe.
_MODELS = frozenset({"teacher", "teachers", "init", "tokenizer", "model"})
_PLACES = _MODELS | {
    "outputs",
    "data",
    "dev",
    "test",
    "unlabelled",
    "parallel",
    "embeddings",
    "source",
    "plugin",
}
# Values that name no path, whatever the working directory contains.
_NO_PLACES = frozenset({"hub", "pocket", "digits", "fresh"})
# Among settings that name a model, the values that refer to another of the run's models.
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
                url = store.place_and_member(text)[0] if key == "outputs" else text
                # All files that a pattern means.
                pattern = key == "unlabelled" and not at_home(url).exists()
                for path in (stream.matching(url) if pattern else []) or [
                    at_home(url.removeprefix("hub:"))
                ]:
                    yield name, path


# The files that a recipe names, and checksums of their content: a quick check of whether a run's
# inputs are the same. It may see a change where a run would see none (quotes in a table, a file
# that nothing reads), and never misses one; an input from the Hub has no files here and
# is assumed unchanged.


# The files of a model and its tokenizer; a card or a log in the same folder affects neither.
_OF_MODELS = frozenset({".safetensors", ".json", ".txt", ".model", ".jinja"})
_UNREADABLE = "unreadable"


def checksums_of_inputs(recipe: Recipe) -> dict[str, str]:
    """Setting and path, as `teacher runs/t`, → checksum of the files there; empty if there are no files."""
    found = {}
    for setting, place in places(recipe.model_dump(mode="json")):
        if place.exists():
            model = setting.rpartition(".")[2] in _MODELS
            files = _of_model(place) if model else _of_rows(place, set())
            found[f"{setting} {place}"] = _of(place, files)
    # For stores behind a URL the manifest, which has the checksum of every shard.
    urls = [store.place_and_member(named)[0] for named in recipe.outputs or ()]
    for url in urls:
        with suppress(FileNotFoundError):
            if "://" in url:
                found[f"outputs {url}"] = _of_manifest(url)
    return found


def _of_manifest(url: str) -> str:
    """Raise FileNotFoundError if it does not exist."""
    try:
        return checksum_of_text(StoreFiles(url).read(manifest.MANIFEST).decode(errors="replace"))
    except LimbeckError:  # its reader reports why it cannot be read
        return _UNREADABLE


def _of(root: Path, files: Iterator[Path]) -> str:
    try:
        known = [f"{path.relative_to(root).as_posix()} {_of_file(path)}" for path in sorted(files)]
    except OSError:  # its reader reports why it cannot be read
        return _UNREADABLE
    return checksum_of_text("\n".join(known))


def _of_model(place: Path) -> Iterator[Path]:
    """For a run the student's files."""
    if place.is_file():
        return iter((place,))
    student = place / "student"
    run = not (place / "config.json").exists() and student.is_dir()
    files = (student if run else place).iterdir()
    return (path for path in files if path.suffix in _OF_MODELS and path.is_file())


def _of_rows(place: Path, seen: set[Path]) -> Iterator[Path]:
    """All files below a folder, except for hidden ones and for runs, which may share the rows' folder."""
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


@problem_list
def missing(recipe: Recipe) -> Iterator[Problem]:
    """Settings a run cannot do without, and files that are not there."""
    path = at_home(given.place_of(recipe.data))
    if load.is_absent(recipe.data):
        yield load.no_source(recipe.data)
    elif recipe.task is None and path.is_dir():
        yield own.folder_without_task(path)
    elif recipe.task is None and recipe.unlabelled:
        first, *others = recipe.unlabelled
        more = f" --unlabelled {' '.join(others)}" if others else ""
        yield Problem(
            f"data: none is given; unlabeled text alone is data: {', '.join(recipe.unlabelled)}",
            f"write --data {first}{more} instead of --unlabelled {' '.join(recipe.unlabelled)}",
        )
    elif recipe.task is None:
        yield Problem("task: none is given", "add --task mrpc, or task: in the recipe")
    for split, named in (("dev", recipe.dev), ("test", recipe.test)):
        if named is not None and not at_home(given.place_of(named)).exists():
            yield no_such_file(split, named)
    try:
        text_rows.row_files(recipe.unlabelled, "unlabelled")
    except LimbeckError as error:
        yield from error.problems
    taught = learns_from_its_teacher(recipe)
    if recipe.team is not None and recipe.teachers is None and not recipe.outputs:
        yield Problem(
            f"teachers: method {recipe.method} learns from several, and none are given",
            "add --teachers FOLDER FOLDER …; `limbeck finetune` makes them; or --outputs STORE STORE …",
        )
    if recipe.team is None and taught and not any(recipe.taught_by):
        yield Problem(
            f"teacher: method {recipe.method} learns from one, and none is given",
            "add --teacher FOLDER; `limbeck finetune` makes one; or --outputs STORE",
        )
    if recipe.outputs and not taught:
        yield Problem(
            f"outputs: no term of {recipe.method} learns from a teacher",
            "leave them out, or take a method that does (kd-soft)",
        )
    if recipe.student.from_teacher and recipe.lead is None:
        stored = "; stored outputs have no layers" if recipe.outputs else ""
        if recipe.student.static and recipe.student.init == "fresh":
            stored += "; or give it a tokenizer of its own: student.tokenizer=30000 is trained on the texts"
        elif recipe.student.static and recipe.outputs:
            stored += "; or start from random numbers: student.init=fresh student.tokenizer=30000"
        yield Problem(
            f"student.init: {recipe.student.init} needs a teacher, and none is given",
            f"add --teacher FOLDER, or start from a checkpoint: --student FOLDER{stored}",
        )
    yield from start_problems(recipe) + tracker_problems(recipe.report_to)


# The checkpoint that a student starts from where the recipe does not name one. Papers start
# students from the pretrained encoder that their teacher was fine-tuned from, which the teacher's
# run remembers, or from a checkpoint of its own, which the user has to name.


PRETRAINED = "pretrained"
NAMED_BY_THE_USER = {
    "distilled": "an already distilled checkpoint",
    "smaller": "a smaller pretrained checkpoint",
}
"""Starts that papers have and no teacher leads to."""


def with_start(recipe: Recipe) -> Recipe:
    """The recipe with the pretrained checkpoint's name instead of `student.init: pretrained`.

    If it is not found, the recipe is unchanged, and `start_problems` reports why.
    """
    if recipe.student.init != PRETRAINED:
        return recipe
    found = _origin(recipe.lead)
    if isinstance(found, Problem):
        return recipe
    tokenizer = recipe.student.tokenizer or found.tokenizer
    student = recipe.student.model_copy(update={"init": found.init, "tokenizer": tokenizer})
    return recipe.model_copy(update={"student": student})


@problem_list
def start_problems(recipe: Recipe) -> Iterator[Problem]:
    """Why there is nothing to start from; empty where there is."""
    init = recipe.student.init
    if init == PRETRAINED and isinstance(found := _origin(recipe.lead), Problem):
        yield found
    if init in NAMED_BY_THE_USER:
        stated = stated_of(recipe.method).get(recipe.settings)
        words = NAMED_BY_THE_USER[init] if stated is None else stated.start
        yield Problem(
            f"student.init: {init}, and no checkpoint is named to start from; settings "
            f"{recipe.settings} start from {words}",
            "name it: --student FOLDER or a Hub name; --student teacher starts from the teacher's layers instead",
        )


def _origin(teacher: str | None) -> StudentSpec | Problem:
    """The checkpoint that a teacher was fine-tuned from, or why it is unknown."""

    def unknown_because(reason: str) -> Problem:
        return Problem(
            f"student.init: {PRETRAINED} is the checkpoint that the teacher was fine-tuned from, and {reason}",
            "name the pretrained encoder: --student FOLDER or a Hub name (--model for finetune)",
        )

    if teacher is None:
        return Problem(
            "model: none is given to start from",
            "add --model FOLDER or a Hub name, a pretrained encoder (student.init in a recipe); for random weights "
            "a shape, such as bert-4-256-4:random",
        )
    try:
        found = recorded_start(teacher)
    except LimbeckError:
        return unknown_because(f"the record of {teacher} does not name it")
    if found is None:
        return unknown_because(f"{teacher} has no record of a run")
    spec, _ = found
    if spec.from_teacher:
        return unknown_because(f"{teacher} started from a teacher of its own")
    if starts_random(spec.init) or names_cnn(spec.init):
        return unknown_because(f"{teacher} started from random weights")
    if spec.layers is not None:
        return unknown_because(f"{teacher} has only some layers of {spec.init}")
    try:
        resolve_checkpoint(spec.init)
    except LimbeckError as error:
        return unknown_because(f"that is gone: {error.problems[0].message}")
    return spec
