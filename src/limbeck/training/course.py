"""What is trained before a trainer's own stage, each part by a trainer of its own: run, kept, found again.

Part of `limbeck.training`. A part has a folder below the trainer's `output_dir`, with checkpoints like any
other and, when it has finished, its student and what was measured. A call of `train` has an identity,
which all of its files carry: nothing that an earlier call left is taken for this one's.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_model, save_model
from torch import nn

from limbeck.support.errors import LimbeckError
from limbeck.support.files import checksums, damaged, sync_files, write_whole
from limbeck.support.machine import agreed, wait_for_all
from limbeck.training import checkpoints

IDENTITY = "limbeck_run.json"
"""In `output_dir`: which call of `train` its parts and checkpoints are of."""

_FINISHED, _STUDENT, _RESULT = "finished", "student.safetensors", "result.json"


@dataclass(frozen=True)
class Part:
    """A part that has finished.

    Attributes:
        name: its folder, below `output_dir`: first_stage, students/NAME, assistants/01-NAME, tries/BY.
        log_history: as the Trainer's state has it.
        epochs: an entry an epoch: means of the terms, layers, seconds.
        metrics: of its student on the evaluation data, if it was scored.
    """

    name: str
    log_history: list[dict[str, Any]]
    epochs: list[dict[str, Any]]
    metrics: dict[str, float]

    @property
    def of_student(self) -> bool:
        """Whether it trained the very student that goes on."""
        return self.name == FIRST


FIRST = "first_stage"
"""The part that the student itself goes through."""


@dataclass(frozen=True)
class Course:
    """One call of `train`, with all its parts.

    Attributes:
        identity: what its files carry.
        fresh: nothing is there yet.
        parts_are_done: the trainer's own stage is continued, so every part has finished.
        at: a checkpoint of a part that is to be continued from, if one was named.
    """

    identity: str
    fresh: bool = True
    parts_are_done: bool = False
    at: Path | None = None

    @classmethod
    def begin(cls, folder: Path, *, write: bool, keep: bool) -> Course:
        """A new one; its identity is written where later calls look, if checkpoints are kept."""
        course = cls(agreed(uuid.uuid4().hex))
        if write and keep:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / IDENTITY, json.dumps({"run": course.identity}))
        return course

    @classmethod
    def resume(cls, folder: Path, checkpoint: str | Path | bool) -> tuple[Course, Path | None]:
        """The one that a folder holds, and the checkpoint of the trainer's own stage, if it got there.

        Args:
            folder: the trainer's `output_dir`.
            checkpoint: a checkpoint of the trainer or of one of its parts; True for the newest.

        Raises:
            LimbeckError: there is nothing to go on from, or a checkpoint of another sort.
        """
        if checkpoint is True:
            identity = (_read(folder / IDENTITY) or {}).get("run")
            if identity is None:
                raise LimbeckError(
                    f"resume_from_checkpoint: {folder} holds no training to go on from",
                    "name a checkpoint, or leave resume_from_checkpoint out to begin",
                )
            own = agreed(checkpoints.last_whole(folder, run=identity))
            return cls(identity, fresh=False, parts_are_done=own is not None), own
        path = Path(str(checkpoint))
        identity = checkpoints.run_of(path)
        if identity is None:
            raise LimbeckError(
                f"resume_from_checkpoint: {path} is no checkpoint of a method of several parts",
                f"name one below {folder}, or pass True for the newest",
            )
        inside = folder.resolve() in path.resolve().parent.parents
        if inside:
            return cls(identity, fresh=False, at=path.resolve()), None
        return cls(identity, fresh=False, parts_are_done=True), path

    def inside(self, checkpoint: Path | str | None) -> Course:
        """The same for a part that has parts of its own, and goes on from a checkpoint or begins."""
        return replace(self, parts_are_done=checkpoint is not None)

    def checkpoint_in(self, folder: Path) -> Path | None:
        """From which checkpoint a part goes on; every process has to ask."""
        if self.fresh:
            return None
        return (
            self.at
            if self._is_named(folder)
            else agreed(checkpoints.last_whole(folder, run=self.identity))
        )

    def _is_named(self, folder: Path) -> bool:
        return self.at is not None and self.at.parent == folder.resolve()

    def finished(self, folder: Path, name: str, student: nn.Module) -> Part | None:
        """A part that has finished in this course; its weights are put into the student.

        Raises:
            LimbeckError: it has not, where it has to.
        """
        if self.fresh or self._is_named(folder):
            return None
        place = folder / _FINISHED
        found = agreed(_read(place / _RESULT))
        whole = found is not None and not damaged(place, found.pop("files"))
        if found is None or not whole or found.pop("run") != self.identity:
            if self.parts_are_done:
                raise LimbeckError(
                    f"resume_from_checkpoint: {folder} does not hold what was trained there before "
                    "the checkpoint",
                    "put the folder back, or train from the beginning",
                )
            return None
        load_model(student, str(place / _STUDENT), strict=True)
        return Part(name, **found)

    def finish(self, folder: Path, part: Part, student: nn.Module, *, write: bool) -> None:
        """Keep a part; its result is written last, so one that is there is whole."""
        if write:
            place = folder / _FINISHED
            place.mkdir(parents=True, exist_ok=True)
            (place / _RESULT).unlink(missing_ok=True)
            save_model(student, str(place / _STUDENT))
            sync_files(place)
            kept = {key: value for key, value in asdict(part).items() if key != "name"}
            kept |= {"run": self.identity, "files": checksums(place, [_STUDENT])}
            write_whole(place / _RESULT, json.dumps(kept))
        wait_for_all()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
