"""A run's folder: where everything lies, and what an earlier start of the same command left there.

Part of `limbeck.run`.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.files import checksum, file_name, is_temporary, put_in_place
from limbeck.given import note
from limbeck.manifest import NAME, Manifest
from limbeck.plain import read_text, read_yaml
from limbeck.recipe import Recipe, Stage
from limbeck.reporting.cards import CARD_NAME, is_ours
from limbeck.reporting.cards.card_settings import SETTINGS_NAME
from limbeck.reporting.pages.stored_analyses import ANALYSES_FOLDER
from limbeck.reporting.records import RECORD_NAME, Record, write_whole
from limbeck.run.kept_predictions import PREDICTIONS_NAME
from limbeck.run.lock import HOLDER, LOCK, held
from limbeck.runtimes import EXPORTS, exports_of, remove_export
from limbeck.tasks import TASKS
from limbeck.training.checkpoints import (
    SEAL,
    TRACKER_RUNS,
    last_whole,
    remove_all,
    remove_unfinished,
)

logger = logging.getLogger(__name__)

# What a run writes beside its student, whose files it names when it ships them.
_NAMES = (
    "recipe.yaml",
    RECORD_NAME,
    PREDICTIONS_NAME,
    "report.html",
    f"{ANALYSES_FOLDER}/*.json",
    f"{ANALYSES_FOLDER}/*.svg",
    f"{ANALYSES_FOLDER}/*.png",
    SETTINGS_NAME,
    "student.part/**/*",
    "checkpoints/**/checkpoint-*/*",
    f"checkpoints/**/{TRACKER_RUNS}",
    "tensorboard/**/events.out.tfevents.*",
)
_DEFAULTS = {
    key: field.get_default(call_default_factory=True)
    for key, field in Recipe.model_fields.items()
    if not field.is_required()
}


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def recipe(self) -> Path:
        """The recipe, every default written out."""
        return self.path / "recipe.yaml"

    @property
    def student(self) -> Path:
        """The shipped model and its tokenizer."""
        return self.path / "student"

    @property
    def first_stage(self) -> Path:
        """The student as it was after its first stage, where the recipe keeps it, and its tokenizer."""
        return self.path / "first_stage"

    @property
    def predictions(self) -> Path:
        """The student's predictions on the evaluation splits."""
        return self.path / PREDICTIONS_NAME

    @property
    def checkpoints(self) -> Path:
        """The trainer's checkpoints; gone once the run has finished."""
        return self.path / "checkpoints"

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return any(self.checkpoints.rglob(SEAL))

    @property
    def students(self) -> Path:
        """Runs that distil a student from each of several teachers alone."""
        return self.path / "students"

    @property
    def tries(self) -> Path:
        """Runs with each distribution over several teachers."""
        return self.path / "tries"

    @property
    def assistants(self) -> Path:
        """Runs of a chain from the largest teacher to the student."""
        return self.path / "assistants"

    def checkpoints_of(self, stage: Stage) -> Path:
        """One stage's checkpoints; a first stage's stay until the run has finished."""
        return self.checkpoints if stage.last else self.checkpoints / "first_stage"

    def events_of(self, stage: Stage) -> Path:
        """One stage's files for TensorBoard: every stage counts its steps from 0."""
        return self.events if stage.last else self.events / "first_stage"

    def name_of(self, stage: Stage) -> str:
        """What experiment trackers call one stage of the run."""
        name = self.path.resolve().name
        return name if stage.last else f"{name}/first_stage"

    @property
    def report(self) -> Path:
        """The page to open."""
        return self.path / "report.html"

    @property
    def events(self) -> Path:
        """TensorBoard's files, if they are asked for."""
        return self.path / "tensorboard"

    @property
    def unshipped(self) -> Path:
        """The student while it is written."""
        return self.path / "student.part"

    def finished(self, recipe: Recipe, *, overwrite: bool = False) -> Record | None:
        """The record of this very recipe if it has run to its end here and is to stay.

        Raises:
            LimbeckError: another recipe's run lies here and is to stay, what lies here is no run,
                or the folder cannot be written.
        """
        self._refuse_unwritable()
        manifest = Manifest.read(self.path)
        if manifest is None:
            return self._of_older_version(recipe, overwrite=overwrite)
        if overwrite or not self.recipe.is_file():
            return None
        self._refuse_other(recipe)
        record = self._record_of(recipe)
        # Checkpoints go last, so with them still there a missing report was not yet written.
        reported = self.report.is_file() or not self.checkpoints.is_dir()
        if record is None and self._record_is_damaged():
            logger.warning(
                "%s is damaged: the run %s",
                self.path / RECORD_NAME,
                "goes on" if self.checkpoints.is_dir() else "is trained again",
            )
        if record is None or record.status != "finished" or not reported:
            return None
        broken = manifest.damaged(self.path) if manifest.checksums else ["student"]
        if broken:
            logger.warning(
                "%s has finished, but is damaged since (%s): it is trained again",
                self.path,
                ", ".join(broken),
            )
        return None if broken else record

    def continues(self, recipe: Recipe, *, overwrite: bool) -> bool:
        """Whether what lies here was begun by this very recipe, and is to be gone on with.

        What is finished, and is to be overwritten, is not.
        """
        if Manifest.read(self.path) is None or not self.recipe.is_file() or self._changed(recipe):
            return False
        if not (self.path / RECORD_NAME).is_file():
            return True
        record = self._record_of(recipe)
        if record is None:  # what was trained is not lost with what was said of it
            return self.checkpoints.is_dir() and self._record_is_damaged()
        return not (overwrite and record.status == "finished")

    def begin(self, recipe: Recipe) -> None:
        """Make the folder, say which files in it are the run's, and write the recipe."""
        self.path.mkdir(parents=True, exist_ok=True)
        for path in self.path.iterdir():  # of a start that was killed while it wrote one
            if is_temporary(path) and path.name.startswith(
                tuple(f".{n}." for n in (*_NAMES, NAME))
            ):
                path.unlink(missing_ok=True)
        if Manifest.read(self.path) is None:
            Manifest(_NAMES).write(self.path)
        told = note(recipe.model_dump(mode="json"))
        write_whole(self.recipe, told + recipe.to_yaml())

    def last_checkpoint(self, stage: Stage) -> Path | None:
        """The checkpoint to continue a stage from, if there is one."""
        return last_whole(self.checkpoints_of(stage))

    def ship(self) -> None:
        """Give the student that was written its place, whole or not at all, and say what it is."""
        beside = [self.predictions] if self.predictions.is_file() else []
        self._put(self.student, {path.name: checksum(path) for path in beside})

    def ship_first_stage(self) -> None:
        """The same of a student that was written after its first stage."""
        self._put(self.first_stage, {})

    def _put(self, target: Path, beside: Mapping[str, str]) -> None:
        """What was written in a place of its own, and the manifest with it and with the files `beside`."""
        part = self.unshipped
        written = sorted(path.relative_to(part) for path in part.rglob("*") if path.is_file())
        manifest = Manifest.read(self.path) or Manifest(_NAMES)
        shipped = {name: known for name, known in manifest.checksums.items() if "/" in name}
        shipped = {n: known for n, known in shipped.items() if not n.startswith(f"{target.name}/")}
        shipped |= {f"{target.name}/{name.as_posix()}": checksum(part / name) for name in written}
        manifest.holding({**shipped, **beside}).write(self.path)
        for path in target.rglob("*"):  # what someone else put there stays
            name = path.relative_to(target)
            known = f"{target.name}/{name.as_posix()}" in manifest.checksums
            if path.is_file() and not known and name not in written:
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, part / name)
        put_in_place(part, target)

    def remove_checkpoints(self) -> None:
        """Remove them all: the run has finished."""
        remove_all(self.checkpoints)

    def remove_unfinished(self) -> None:
        """Remove what was not written to its end, to make room."""
        remove_unfinished(self.checkpoints)
        shutil.rmtree(self.unshipped, ignore_errors=True)

    def clear(self) -> None:
        """Remove what an earlier run left here, as its manifest names it, and nothing else.

        What was exported of its student goes too, as its own manifests name it.
        """
        manifest = Manifest.read(self.path)
        if manifest is None:
            return
        if is_ours(self.student / CARD_NAME):
            (self.student / CARD_NAME).unlink(missing_ok=True)
        for export in exports_of(self.path):
            with suppress(LimbeckError):  # its files are not known
                remove_export(export)
                logger.warning("%s is removed with the student that it was made from", export)
        with suppress(OSError):  # there is none, or it holds something else
            (self.path / EXPORTS).rmdir()
        for place in (self.students, self.tries, self.assistants):
            for run in list(place.iterdir()) if place.is_dir() else ():
                if Manifest.read(run) is not None:
                    with held(run):
                        RunFolder(run).clear()
                with suppress(OSError):  # it holds something else
                    run.rmdir()
            with suppress(OSError):
                place.rmdir()
        manifest.delete(self.path)

    def _of_older_version(self, recipe: Recipe, *, overwrite: bool) -> Record | None:
        """A folder without a manifest: new, of a version that wrote none, or somebody else's."""
        others = self._others()
        if not others:
            return None
        if self.recipe.is_file() and others != {self.recipe.name} and not overwrite:
            self._refuse_other(recipe)
            record = self._record_of(recipe)
            if record is not None and record.status == "finished" and self.student.is_dir():
                return record
        if others == {self.recipe.name} and not overwrite and not self._changed(recipe):
            return None  # the recipe that is to be run
        raise LimbeckError(
            f"out: {self.path} is not empty and holds no limbeck run (no {NAME} says which of its "
            "files are one's)",
            "choose another folder with --out, or remove what lies there yourself",
        )

    def _record_of(self, recipe: Recipe) -> Record | None:
        """The record, if it is of this recipe."""
        try:
            record = Record.load(self.path)
        except LimbeckError:
            return None
        return None if _difference(record.recipe, recipe) else record

    def _record_is_damaged(self) -> bool:
        try:
            Record.load(self.path)
        except LimbeckError:
            return (self.path / RECORD_NAME).is_file()
        return False

    def _refuse_unwritable(self) -> None:
        place = self.path
        while not place.exists():
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise LimbeckError(
                f"out: cannot write to {self.path} ({place} is not a folder you may write to)",
                "choose another folder with --out",
            )

    def _others(self) -> set[str]:
        """Names in the folder, but for what a start that was killed may leave before it began."""
        paths = self.path.iterdir() if self.path.is_dir() else ()
        return {p.name for p in paths if not is_temporary(p) and p.name not in (LOCK, HOLDER)}

    def _refuse_other(self, recipe: Recipe) -> None:
        if changed := self._changed(recipe):
            raise LimbeckError(
                f"out: {self.path} holds a run of another recipe (they differ in "
                f"{', '.join(changed)})",
                "choose another folder with --out, or pass --overwrite to replace that run",
            )

    def _changed(self, recipe: Recipe) -> list[str]:
        """The keys in which the recipe differs from the one that lies here."""
        try:
            there = read_yaml(read_text(self.recipe), str(self.recipe))
        except (LimbeckError, OSError):
            there = None
        return _difference(there, recipe)


def _difference(there: Any, recipe: Recipe) -> list[str]:
    """The keys in which a recipe differs from one that was written down."""
    wanted = recipe.model_dump(mode="json")
    # A key that an older version did not know has its default in what that version wrote.
    there = _DEFAULTS | there if isinstance(there, dict) else {}
    return [key for key in wanted if key not in there or there[key] != wanted[key]]


def default_folder(recipe: Recipe) -> Path:
    """`runs/<task>-<method>-<layers>-s<seed>`, where no folder is given."""
    layers = recipe.student.layers
    if isinstance(layers, dict):
        parts = [f"-{stack}-{_layers(kept)}" for stack, kept in layers.items()]
    else:
        parts = [] if layers is None else [f"-{_layers(layers)}"]
    kind = "" if recipe.kind is None or recipe.task not in TASKS else f"-{recipe.kind}"
    name = f"{recipe.task}{kind}-{recipe.method}{''.join(parts)}-s{recipe.seed}"
    return Path("runs") / file_name(name)


def _layers(kept: int | list[int]) -> str:
    return f"{kept}l" if isinstance(kept, int) else "l" + ".".join(map(str, kept))
