"""An earlier start of the same command in a run's folder: return it, resume it, or raise an error.

Part of `limbeck.run`.
"""

import hashlib
import logging
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from limbeck.data.row_facts import facts_of
from limbeck.outputs.key import add_model
from limbeck.recipe import Recipe
from limbeck.recipe.catalog import HEADER
from limbeck.recipe.load import as_written_then
from limbeck.records import RECORD_NAME, Record
from limbeck.run import inputs
from limbeck.run.prepare import prepare
from limbeck.run.prepared import Prepared
from limbeck.run.run_folder import RunFolder
from limbeck.support import files, lock, plain, registry
from limbeck.support.errors import LimbeckError
from limbeck.support.manifest import NAME, Manifest
from limbeck.teachers.teacher import Teacher

logger = logging.getLogger(__name__)

_DEFAULTS = {
    key: field.get_default(call_default_factory=True)
    for key, field in Recipe.model_fields.items()
    if not field.is_required()
}


class EarlierRun:
    """The content of a folder, compared with the recipe to be run there.

    Attributes:
        folder: its path.
        record: of this very recipe; None if it does not exist, or it is `damaged`.
        changed: the keys in which the recipe differs from the one in the folder.
    """

    def __init__(self, folder: RunFolder, recipe: Recipe) -> None:
        self.folder, self._recipe = folder, recipe
        self._manifest = Manifest.read(folder.path)
        self._recorded = (folder.path / RECORD_NAME).is_file()
        record = record_in(folder)
        self.damaged = record is None and self._recorded
        chosen = {} if record is None else record.execution.training
        try:
            there = plain.read_yaml(plain.read_text(folder.recipe), str(folder.recipe))
        except (LimbeckError, OSError):
            there = None
        self.changed = _difference(there, recipe, chosen)
        own = record is not None and not _difference(record.recipe, recipe, chosen)
        self.record = record if own else None

    def finished(
        self,
        *,
        overwrite: bool = False,
        live_teacher: Teacher | None = None,
        for_another: bool = False,
    ) -> Record | None:
        """The record of this very recipe if it has finished here and is not to be overwritten.

        Files with unchanged checksums count as unchanged; if some differ, the rows and the models
        themselves are compared. `for_another`: the run was made for another one, in whose command no
        `--overwrite` reaches it.

        Raises:
            LimbeckError: the folder has another recipe's run that is not to be overwritten, or no run; it cannot be
                written; rows or models that have changed since: the scores would be of others.
        """
        self._refuse_unwritable()
        folder, record = self.folder, self.record
        if self._manifest is None:
            self._refuse_others()
            return None
        if overwrite or not folder.recipe.is_file():
            return None
        if self.changed:
            raise LimbeckError(
                f"out: {folder.path} holds a run of another recipe (they differ in {', '.join(self.changed)})",
                "choose another folder with --out, or pass --overwrite to replace that run",
            )
        # Checkpoints go last, so with them still there a missing report was not yet written.
        reported = folder.report.is_file() or not folder.checkpoints.is_dir()
        if self.damaged:
            goes_on = "continues" if folder.checkpoints.is_dir() else "is trained again"
            logger.warning("%s is damaged: the run %s", folder.path / RECORD_NAME, goes_on)
        if record is None or record.status != "finished" or not reported:
            return None
        known = self._manifest.checksums
        broken = self._manifest.damaged(folder.path) if known else ["student"]
        if broken:
            logger.warning(
                "%s has finished, but is damaged since (%s): it is trained again",
                folder.path,
                ", ".join(broken),
            )
            return None
        if changed := self._rows_or_models_changed(record, live_teacher):
            fix = f"remove {folder.path}" if for_another else "pass --overwrite"
            raise LimbeckError(
                f"out: {folder.path} has finished, with other {' and '.join(changed)} than exist now",
                f"{fix} to train it again; or restore its {' and '.join(changed)}, or choose another folder with --out",
            )
        return record

    def _rows_or_models_changed(self, record: Record, live_teacher: Teacher | None) -> list[str]:
        """The names of changed inputs; missing inputs cannot be compared, which is reported."""
        began, now = record.execution.files, inputs.checksums_of_inputs(self._recipe)
        if other := _differing(record.execution.read, plugins_read(self._recipe)):
            return other
        if gone := [name for name in began if name not in now]:
            logger.warning(
                "%s has finished, and %s is not there any more to compare with",
                self.folder.path,
                " and ".join(gone),
            )
        if not began and not record.execution.read:  # of an earlier version
            return []
        differing = [name for name in now if now[name] != began.get(name)]
        if not differing:
            return []
        try:
            now_there = prepare(self._recipe, live_teacher)
        except LimbeckError:
            # With nothing to hold it against, a record of an earlier version has to be believed.
            return [name for name in differing if name in began]
        unseen = [name for name in differing if name.startswith(_UNSEEN) and name in began]
        return _differing(record.execution.read, digests(now_there)) + unseen

    def continues(self, *, overwrite: bool) -> bool:
        """Whether this very recipe began the run in the folder, and it is to be resumed.

        A finished run that is to be overwritten is not.
        """
        if self._manifest is None or not self.folder.recipe.is_file() or self.changed:
            return False
        if self.damaged:  # a damaged record does not lose the training
            return self.folder.checkpoints.is_dir()
        if self.record is None:
            return not self._recorded
        return not (overwrite and self.record.status == "finished")

    def is_of_another(self) -> bool:
        """Whether the folder has a run of another recipe."""
        there = self._manifest is not None and self.folder.recipe.is_file()
        return there and bool(self.changed)

    def _refuse_others(self) -> None:
        """Raise LimbeckError for a folder without a manifest that holds more than the recipe that is to be run."""
        paths = self.folder.path.iterdir() if self.folder.path.is_dir() else ()
        # A start that was killed before it began may leave some.
        others = {
            p.name
            for p in paths
            if not files.is_temporary(p) and p.name not in (lock.LOCK, lock.HOLDER)
        }
        if others and (others != {self.folder.recipe.name} or self.changed):
            raise LimbeckError(
                f"out: {self.folder.path} is not empty and holds no limbeck run (no {NAME} lists a run's files)",
                "choose another folder with --out, or remove its contents yourself",
            )

    def _refuse_unwritable(self) -> None:
        place = self.folder.path
        while not place.exists():
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise LimbeckError(
                f"out: cannot write to {self.folder.path} ({place} is not a folder you may write to)",
                "choose another folder with --out",
            )


def record_in(folder: RunFolder) -> Record | None:
    """The record in a run's folder; None if it does not exist, or is damaged."""
    try:
        return Record.load(folder.path)
    except LimbeckError:
        return None


def _difference(
    there: Any, recipe: Recipe, chosen: Mapping[str, float] = MappingProxyType({})
) -> list[str]:
    """The keys in which a recipe differs from a recorded one.

    `chosen`: the run's values for keys that its recipe left out. Leaving out such a key and setting it to this very
    value is the same: a record's own recipe has the value. A method's summary and paper describe it, and may read
    otherwise in another version.
    """
    wanted = recipe.model_dump(mode="json", exclude={*HEADER[1:]})
    there = _as_of_now(there) if isinstance(there, dict) else {}
    for key, value in chosen.items():
        for one in (there, wanted):
            one[key] = value if one.get(key) is None else one[key]
    return [key for key in wanted if key not in there or there[key] != wanted[key]]


def _as_of_now(there: dict[str, Any]) -> dict[str, Any]:
    """An older version's recipe in this one's terms: a class 0 is "0", keys it did not know have their defaults.

    What this version cannot read stays as it was written.
    """
    full = _DEFAULTS | as_written_then(there)
    try:
        return Recipe.model_validate(full).model_dump(mode="json")
    except ValidationError:
        return full


# A run resumes, or counts as finished, only with the rows and models that it began with.


# The augmentation model's files are read when examples are made, and no preparation holds their content.
_UNSEEN = "augment."


def digests(prepared: Prepared) -> dict[str, str]:
    """The inputs read throughout the run → their fingerprints: rows as they are encoded, models' weights."""
    first = prepared.stages[0]
    rows = {"training rows": prepared.train.encoded, "dev rows": prepared.selecting}
    if not first.stage.same_rows:
        rows["rows of the first stage"] = first.rows.encoded
    models = {"student start": prepared.student}
    models |= {one.setting: one.teacher.model for one in prepared.named}
    if first.own:
        models["teacher of the first stage"] = first.members[0].model
    found = {name: hashlib.blake2b(digest_size=8) for name in (*rows, *models)}
    for name, dataset in rows.items():
        facts_of(dataset).add_to(found[name])
    for name, model in models.items():
        add_model(found[name], model)
    return {name: digest.hexdigest() for name, digest in found.items()}


def plugins_read(recipe: Recipe) -> dict[str, str]:
    """The Python files that a recipe names → checksum of the executed code."""
    return {f"plugin {path}": registry.checksum_of(path) for path in recipe.plugins}


def refuse_changed(folder: RunFolder, began: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise LimbeckError if there are checkpoints of a run that began with other rows or models.

    Half of a student would come from each, and the record would know of one.
    """
    changed = _differing(began, now)
    if changed and folder.begun:
        raise LimbeckError(
            f"out: {folder.path} holds a stopped run that began with other {' and '.join(changed)} than exist now",
            "restore them; or remove the folder, or choose another with --out, to begin again",
        )


def _differing(began: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in now if began.get(name, now[name]) != now[name]]
