"""What an earlier start of the same command left in a run's folder: to return, to go on with, or to refuse.

Part of `limbeck.run`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from limbeck.recipe import Recipe
from limbeck.recipe.load import as_divided_then
from limbeck.records import RECORD_NAME, Record
from limbeck.run.run_folder import RunFolder
from limbeck.support.errors import LimbeckError
from limbeck.support.files import is_temporary
from limbeck.support.lock import HOLDER, LOCK
from limbeck.support.manifest import NAME, Manifest
from limbeck.support.plain import read_text, read_yaml

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
            return self._of_older_version(overwrite=overwrite)
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

    def _of_older_version(self, *, overwrite: bool) -> Record | None:
        """A folder without a manifest: new, of a version that wrote none, or somebody else's."""
        others = self._others()
        if not others:
            return None
        if self.folder.recipe.is_file() and others != {self.folder.recipe.name} and not overwrite:
            self._refuse_other()
            record = self._record_of()
            if record is not None and record.status == "finished" and self.folder.student.is_dir():
                return record
        if others == {self.folder.recipe.name} and not overwrite and not self._changed():
            return None  # the recipe that is to be run
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

    def _others(self) -> set[str]:
        """Names in the folder, but for what a start that was killed may leave before it began."""
        paths = self.folder.path.iterdir() if self.folder.path.is_dir() else ()
        return {p.name for p in paths if not is_temporary(p) and p.name not in (LOCK, HOLDER)}

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
