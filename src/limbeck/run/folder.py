"""A run's folder: where everything lies, and what an earlier start of the same command left there.

Part of `limbeck.run`.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from limbeck.data import TASKS
from limbeck.engine.checkpoints import last_whole
from limbeck.errors import LimbeckError
from limbeck.plain import read_text, read_yaml
from limbeck.recipe import Recipe, Stage
from limbeck.records import RECORD_NAME, Record, write_whole

_DEFAULTS = {
    key: field.default for key, field in Recipe.model_fields.items() if not field.is_required()
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
    def predictions(self) -> Path:
        """The student's answers on the evaluation splits."""
        return self.path / "predictions.json"

    @property
    def checkpoints(self) -> Path:
        """The trainer's checkpoints; gone once the run has finished."""
        return self.path / "checkpoints"

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

    @property
    def report(self) -> Path:
        """The page to open."""
        return self.path / "report.html"

    @property
    def events(self) -> Path:
        """TensorBoard's files, if they are asked for."""
        return self.path / "tensorboard"

    def finished(self, recipe: Recipe, *, overwrite: bool = False) -> Record | None:
        """The record of this very recipe if it has run to its end here and is to stay.

        Raises:
            LimbeckError: another recipe's run lies here and is to stay, what lies here is no run,
                or the folder cannot be written.
        """
        self._refuse_unwritable()
        if not self.recipe.is_file():
            self._refuse_foreign()
            return None
        if overwrite:
            return None
        self._refuse_other(recipe)
        try:
            record = Record.load(self.path)
        except LimbeckError:
            return None
        # Checkpoints go last, so with them still there a missing report was not yet written.
        reported = self.report.is_file() or not self.checkpoints.is_dir()
        whole = record.status == "finished" and self.student.is_dir() and reported
        return record if whole else None

    def begin(self, recipe: Recipe) -> None:
        """Make the folder and write the recipe."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.recipe, recipe.to_yaml())

    def last_checkpoint(self, stage: Stage) -> Path | None:
        """The checkpoint to continue a stage from, if there is one."""
        return last_whole(self.checkpoints_of(stage))

    def clear(self) -> None:
        """Remove what an earlier run left here, and nothing else."""
        if not self.recipe.is_file():
            return
        for path in (
            self.student,
            self.checkpoints,
            self.events,
            self.students,
            self.tries,
            self.assistants,
        ):
            shutil.rmtree(path, ignore_errors=True)
        for path in (self.predictions, self.report, self.path / RECORD_NAME, self.recipe):
            path.unlink(missing_ok=True)

    def _refuse_unwritable(self) -> None:
        place = self.path
        while not place.exists():
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise LimbeckError(
                f"out: cannot write to {self.path} ({place} is not a folder you may write to)",
                "choose another folder with --out",
            )

    def _refuse_foreign(self) -> None:
        # A start that was killed while it wrote the recipe leaves the recipe's temporary file.
        unfinished = f".{self.recipe.name}."
        if self.path.is_dir() and any(
            not path.name.startswith(unfinished) for path in self.path.iterdir()
        ):
            raise LimbeckError(
                f"out: {self.path} is not empty and holds no limbeck run",
                "choose another folder with --out",
            )

    def _refuse_other(self, recipe: Recipe) -> None:
        try:
            there = read_yaml(read_text(self.recipe), str(self.recipe))
        except LimbeckError:
            there = None
        wanted = recipe.model_dump(mode="json")
        # A key that an older version did not know has its default in what that version wrote.
        there = _DEFAULTS | there if isinstance(there, dict) else {}
        changed = [key for key in wanted if key not in there or there[key] != wanted[key]]
        if changed:
            raise LimbeckError(
                f"out: {self.path} holds a run of another recipe (they differ in "
                f"{', '.join(changed)})",
                "choose another folder with --out, or pass --overwrite to replace that run",
            )


def default_folder(recipe: Recipe) -> Path:
    """`runs/<task>-<method>-<layers>-s<seed>`, where no folder is given."""
    layers = recipe.student.layers
    if isinstance(layers, dict):
        parts = [f"-{stack}-{_layers(kept)}" for stack, kept in layers.items()]
    else:
        parts = [] if layers is None else [f"-{_layers(layers)}"]
    kind = "" if recipe.kind is None or recipe.task not in TASKS else f"-{recipe.kind}"
    name = f"{recipe.task}{kind}-{recipe.method}{''.join(parts)}-s{recipe.seed}"
    return Path("runs") / name


def _layers(kept: int | list[int]) -> str:
    return f"{kept}l" if isinstance(kept, int) else "l" + ".".join(map(str, kept))
