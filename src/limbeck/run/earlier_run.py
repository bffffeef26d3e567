"""What an earlier start of the same command left in a run's folder: to return, to go on with, or to refuse.

Part of `limbeck.run`.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from limbeck.data.row_facts import facts_of
from limbeck.outputs import StoreFiles, add_model
from limbeck.outputs.manifest import MANIFEST
from limbeck.outputs.store import place_and_member
from limbeck.recipe import Recipe
from limbeck.recipe.load import as_divided_then
from limbeck.records import RECORD_NAME, Record
from limbeck.run.prepare import prepare
from limbeck.run.prepared import Prepared
from limbeck.run.protected_paths import places
from limbeck.run.run_folder import RunFolder
from limbeck.support.errors import LimbeckError
from limbeck.support.files import checksum, checksum_of_text, is_temporary
from limbeck.support.lock import HOLDER, LOCK
from limbeck.support.manifest import NAME, Manifest
from limbeck.support.plain import read_text, read_yaml
from limbeck.support.registry import checksum_of
from limbeck.teachers.teacher import Teacher

logger = logging.getLogger(__name__)

_DEFAULTS = {
    key: field.get_default(call_default_factory=True)
    for key, field in Recipe.model_fields.items()
    if not field.is_required()
}


@dataclass(frozen=True)
class EarlierRun:
    """Whatever lies in a folder, next to the recipe that is to be run there."""

    folder: RunFolder
    recipe: Recipe

    def finished(self, *, overwrite: bool = False) -> Record | None:
        """The record of this very recipe if it has run to its end here and is to stay.

        Raises:
            LimbeckError: another recipe's run lies here and is to stay, what lies here is no run,
                or the folder cannot be written.
        """
        self._refuse_unwritable()
        manifest = Manifest.read(self.folder.path)
        if manifest is None:
            self._refuse_others()
            return None
        if overwrite or not self.folder.recipe.is_file():
            return None
        self._refuse_other()
        record = self._record_of()
        # Checkpoints go last, so with them still there a missing report was not yet written.
        reported = self.folder.report.is_file() or not self.folder.checkpoints.is_dir()
        if record is None and self._record_is_damaged():
            logger.warning(
                "%s is damaged: the run %s",
                self.folder.path / RECORD_NAME,
                "goes on" if self.folder.checkpoints.is_dir() else "is trained again",
            )
        if record is None or record.status != "finished" or not reported:
            return None
        broken = manifest.damaged(self.folder.path) if manifest.checksums else ["student"]
        if broken:
            logger.warning(
                "%s has finished, but is damaged since (%s): it is trained again",
                self.folder.path,
                ", ".join(broken),
            )
        return None if broken else record

    def continues(self, *, overwrite: bool) -> bool:
        """Whether what lies here was begun by this very recipe, and is to be gone on with.

        What is finished, and is to be overwritten, is not.
        """
        if (
            Manifest.read(self.folder.path) is None
            or not self.folder.recipe.is_file()
            or self._changed()
        ):
            return False
        if not (self.folder.path / RECORD_NAME).is_file():
            return True
        record = self._record_of()
        if record is None:  # what was trained is not lost with what was said of it
            return self.folder.checkpoints.is_dir() and self._record_is_damaged()
        return not (overwrite and record.status == "finished")

    def is_of_another(self) -> bool:
        """Whether a run of another recipe lies here."""
        there = Manifest.read(self.folder.path) is not None and self.folder.recipe.is_file()
        return there and bool(self._changed())

    def _refuse_others(self) -> None:
        """Raise LimbeckError for a folder without a manifest that holds more than the recipe that is to be run."""
        paths = self.folder.path.iterdir() if self.folder.path.is_dir() else ()
        # A start that was killed before it began may leave some.
        others = {p.name for p in paths if not is_temporary(p) and p.name not in (LOCK, HOLDER)}
        if others and (others != {self.folder.recipe.name} or self._changed()):
            raise LimbeckError(
                f"out: {self.folder.path} is not empty and holds no limbeck run (no {NAME} says which of its "
                "files are one's)",
                "choose another folder with --out, or remove what lies there yourself",
            )

    def _record_of(self) -> Record | None:
        """The record, if it is of this recipe."""
        try:
            record = Record.load(self.folder.path)
        except LimbeckError:
            return None
        chosen = record.execution.training
        return None if _difference(record.recipe, self.recipe, chosen) else record

    def _record_is_damaged(self) -> bool:
        try:
            Record.load(self.folder.path)
        except LimbeckError:
            return (self.folder.path / RECORD_NAME).is_file()
        return False

    def _refuse_unwritable(self) -> None:
        place = self.folder.path
        while not place.exists():
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise LimbeckError(
                f"out: cannot write to {self.folder.path} ({place} is not a folder you may write to)",
                "choose another folder with --out",
            )

    def _refuse_other(self) -> None:
        if changed := self._changed():
            raise LimbeckError(
                f"out: {self.folder.path} holds a run of another recipe (they differ in "
                f"{', '.join(changed)})",
                "choose another folder with --out, or pass --overwrite to replace that run",
            )

    def _changed(self) -> list[str]:
        """The keys in which the recipe differs from the one that lies here."""
        try:
            there = read_yaml(read_text(self.folder.recipe), str(self.folder.recipe))
        except (LimbeckError, OSError):
            there = None
        try:
            chosen = Record.load(self.folder.path).execution.training
        except LimbeckError:
            chosen = {}
        return _difference(there, self.recipe, chosen)


def _difference(
    there: Any, recipe: Recipe, chosen: Mapping[str, float] = MappingProxyType({})
) -> list[str]:
    """The keys in which a recipe differs from one that was written down.

    `chosen`: what the run chose for keys that its recipe left out. To leave such a key out and to give it this very
    value is the same: a record's own recipe has the value.
    """
    wanted = recipe.model_dump(mode="json")
    there = _as_of_now(there) if isinstance(there, dict) else {}
    for key, value in chosen.items():
        for one in (there, wanted):
            one[key] = value if one.get(key) is None else one[key]
    return [key for key in wanted if key not in there or there[key] != wanted[key]]


def _as_of_now(there: dict[str, Any]) -> dict[str, Any]:
    """What an older version wrote, in this one's words: a class 0 is "0", what it did not know has its default.

    What this version cannot read stays as it was written.
    """
    full = _DEFAULTS | as_divided_then(there)
    try:
        return Recipe.model_validate(full).model_dump(mode="json")
    except ValidationError:
        return full


# A run goes on, or counts as finished, with the rows and models that it began with.


_ROWS = "training rows"
_DEV = "dev rows"
_FIRST_ROWS = "rows of the first stage"
_START = "student start"
_FIRST_TEACHER = "teacher of the first stage"
# What makes augmented examples is read when they are made, and no preparation holds what it says.
_UNSEEN = "augment."


def digests(prepared: Prepared) -> dict[str, str]:
    """What is read all through a run → what it was: rows as they are encoded, models' weights."""
    first = prepared.stages[0]
    rows = {_ROWS: prepared.train.encoded, _DEV: prepared.selecting}
    if not first.stage.same_rows:
        rows[_FIRST_ROWS] = first.rows.encoded
    models = {_START: prepared.student}
    models |= {one.setting: one.teacher.model for one in prepared.named}
    if first.own:
        models[_FIRST_TEACHER] = first.members[0].model
    found = {}
    for name, dataset in rows.items():
        digest = hashlib.blake2b(digest_size=8)
        facts_of(dataset).add_to(digest)
        found[name] = digest.hexdigest()
    for name, model in models.items():
        digest = hashlib.blake2b(digest_size=8)
        add_model(digest, model)
        found[name] = digest.hexdigest()
    return found


def plugins_read(recipe: Recipe) -> dict[str, str]:
    """The files of Python that a recipe names → checksum of what was executed."""
    return {f"plugin {path}": checksum_of(path) for path in recipe.plugins}


def refuse_changed(folder: RunFolder, began: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise LimbeckError where checkpoints lie of a run that began with other rows or models.

    Half of a student would come from each, and the record would know of one.
    """
    changed = _differing(began, now)
    if changed and folder.begun:
        raise LimbeckError(
            f"out: {folder.path} holds a stopped run that began with other {' and '.join(changed)} "
            "than lie there now",
            "put back what it began with; or remove the folder, or choose another with --out, to "
            "begin again",
        )


def finished(
    recipe: Recipe,
    folder: RunFolder,
    *,
    overwrite: bool = False,
    live_teacher: Teacher | None = None,
    for_another: bool = False,
) -> Record | None:
    """As `EarlierRun.finished`, of a run whose rows and models are still what they were.

    Files with the checksums of then hold what they held; where some differ, the rows and the models
    themselves are compared. `for_another`: the run was made for another one, in whose command no
    `--overwrite` reaches it.

    Raises:
        LimbeckError: also where they differ, with their names: the scores would be of others.
    """
    record = EarlierRun(folder, recipe).finished(overwrite=overwrite)
    changed = [] if record is None else _changed(recipe, folder, record, live_teacher)
    if changed:
        fix = f"remove {folder.path}" if for_another else "pass --overwrite"
        raise LimbeckError(
            f"out: {folder.path} has finished, with other {' and '.join(changed)} than lie there now",
            f"{fix} to train it again; or put back what it was made from, or choose another folder "
            "with --out",
        )
    return record


def _changed(
    recipe: Recipe, folder: RunFolder, record: Record, live_teacher: Teacher | None
) -> list[str]:
    """What is other than it was, by name; what is not there any more cannot be compared, and is said."""
    began, now = record.execution.files, checksums_of_inputs(recipe)
    if other := _differing(record.execution.read, plugins_read(recipe)):
        return other
    gone = [name for name in began if name not in now]
    if gone:
        logger.warning(
            "%s has finished, and %s is not there any more to compare with",
            folder.path,
            " and ".join(gone),
        )
    if not began and not record.execution.read:  # of an earlier version
        return []
    differing = [name for name in now if now[name] != began.get(name)]
    if not differing:
        return []
    try:
        now_there = prepare(recipe, live_teacher)
    except LimbeckError:
        # With nothing to hold it against, a record of an earlier version has to be believed.
        return [name for name in differing if name in began]
    unseen = [name for name in differing if name.startswith(_UNSEEN) and name in began]
    return _differing(record.execution.read, digests(now_there)) + unseen


def _differing(began: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in now if began.get(name, now[name]) != now[name]]


# Which files a recipe names, and checksums of what they hold: a quick look at whether a run's
# inputs are the same. It may see a change where a run would see none (quotes in a table, a file
# that nothing reads), and never misses one; what comes from the Hub by name has no files here and
# is taken to be the same.


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
