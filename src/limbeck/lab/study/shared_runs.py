"""A folder of runs that studies share: each has one record, is made once and by one process at a time."""

import gc
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from limbeck.outputs.remembering import RememberingTeacher
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.run import distill
from limbeck.scoring import evaluate
from limbeck.support import files, manifest
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import TASKS
from limbeck.tasks.abstract_type import get_task_type
from limbeck.teachers.teacher import Teacher

log = logging.getLogger(__name__)

Held = Callable[[str], Record | None]
"""A run's name → the record of it, if it has finished."""

_DIGEST = 5
_POCKET_ROWS = 25_000
"""No pocket task has more."""
_BYTES = 2 * 4
"""Two poolings in fp32, of each layer."""
_MOST_REMEMBERED = 2**30
# The settings in which two runs may differ while their teacher sees the same rows in the same way.
_NOT_THE_TEACHERS = frozenset(
    {
        *("method", "family", "summary", "paper", "formula", "settings", "seed", "objectives"),
        *("epochs", "max_steps", "lr", "batch_size", "accumulation", "patience"),
        *("warmup", "weight_decay", "lr_schedule", "select_by", "report_to"),
    }
)


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
        name: of its folder; runs of one recipe, and of teachers of one recipe, have one name.
        method: a shipped method or a recipe file.
        settings: the recipe keys that are set, without the teacher of a student whose teacher is made here.
        label: the name of its row.
        needs: the names of the runs that make its teachers; empty without teachers, or if they exist already.
        team: whether it learns from several teachers, even if there is only one.
        lead: which of `needs` is the recipe's `teacher`, in addition to its `teachers`; None without one.
        tries: for a chosen teacher, the runs of which it is the one best on dev; `needs` names them.
        role: the run's purpose, `teacher` or `student`.
        cell: for a grid, the settings that it tries, in words.
        beyond: the task out of its domain that its model is scored on as well; "" for none.
    """

    name: str
    method: str
    settings: Mapping[str, Any] = field(hash=False)
    label: str = ""
    needs: tuple[str, ...] = ()
    team: bool = False
    role: str = "student"
    cell: str = ""
    beyond: str = ""
    lead: int | None = None
    tries: "tuple[StudyRun, ...]" = ()

    def recipe(self, runs: Path) -> Recipe:
        """The recipe, its teachers in `runs` named. Raises LimbeckError as `Recipe.load`."""
        return self.recipe_with([str(runs / name) for name in self.needs])

    def recipe_with(self, teachers: Sequence[str]) -> Recipe:
        """The recipe with teachers in other folders. Raises LimbeckError as `Recipe.load`."""
        if self.tries:  # they are alike in rows, models and length
            return self.tries[0].recipe_with(())
        taught = taught_by(teachers, self.team, self.lead)
        recipe = Recipe.load(self.method, **{**taught, **self.settings})
        # Papers' students have their model's first layers, unless a method sets others.
        student = recipe.student.model_copy(update={"pick": recipe.student.pick or "first"})
        return recipe.model_copy(update={"student": student})

    def may_begin(self, held: Held, ended: Callable[[str], bool] | None = None) -> bool:
        """Whether its teachers are there; a choice is made once all that are tried have ended."""
        there = ended if self.tries and ended is not None else lambda name: held(name) is not None
        return all(there(name) for name in self.needs)

    def lost(self, held: Held, ended: Callable[[str], bool]) -> list[str]:
        """Its teachers that have failed: it cannot be made."""
        return [name for name in self.needs if held(name) is None and ended(name)]


def taught_by(
    teachers: Sequence[str], team: bool = False, lead: int | None = None
) -> dict[str, Any]:
    """The recipe's keys that name the teachers: one, or several with one of them as the lead."""
    if not teachers:
        return {}
    if not team:
        return {"teacher": teachers[0]}
    several: dict[str, Any] = {"teachers": list(teachers)}
    return several if lead is None else several | {"teacher": teachers[lead]}


def name_of(recipe: Recipe, taught: Mapping[str, Any], role: str, beyond: str = "") -> str:
    """A readable name, unique to the recipe's content; `taught` (`taught_by`) names its teachers, not their paths.

    A student without a teacher is no teacher, be their recipes the same: its weights are not kept. So is a run that is
    scored `beyond` its domain another one: of a run that was not, the weights to do it with may be gone.
    """
    said = recipe.model_dump(mode="json", exclude_defaults=True)
    said |= taught
    if role == "student" and not taught:
        said["role"] = role
    if beyond:
        said["beyond"] = beyond
    digest = hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=_DIGEST)
    return files.file_name(f"{recipe.task}-{recipe.method}-s{recipe.seed}-{digest.hexdigest()}")


@dataclass(frozen=True)
class Outcome:
    """How one run ended; without problems if it is finished, or `busy` in another process."""

    name: str
    problems: tuple[Problem, ...] = ()
    busy: bool = False


@dataclass
class SharedRuns:
    """The folder, and the teacher of this process that remembers its outputs for the next run.

    Attributes:
        path: the folder.
        keep_students: whether students' weights are kept.
        remember: whether a teacher's outputs are shared between runs in memory. They come from the batch in which a row
        was first seen: the order of runs in a process changes them by rounding. Without it each run has them from
            disk, where they are the same for all.
    """

    path: Path
    keep_students: bool = True
    remember: bool = True
    _teachers: dict[str, Teacher] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled for another process as it was before the first run."""
        return SharedRuns, (self.path.absolute(), self.keep_students, self.remember)

    def held(self, name: str) -> Record | None:
        """The record of a run that has finished.

        Raises:
            LimbeckError: a record that is damaged.
        """
        if not (self.path / name / RECORD_NAME).is_file():
            return None
        if self._unscored(name).is_file():
            return None
        record = Record.load(self.path / name)
        return record if record.status == "finished" else None

    def failed(self, name: str) -> Record | None:
        """For a run that failed the last time, the record with its reason."""
        note = self._failure(name)
        return Record.load(note) if note.is_file() else None

    def carry_out(self, run: StudyRun) -> Outcome:
        """Make the run unless its record is held; whatever ends it is kept and does not end the caller."""
        with self.claimed(run.name) as ours:
            if not ours:
                return Outcome(run.name, busy=True)
            try:
                if self.held(run.name) is None:
                    self._make(run)
                self._failure(run.name).unlink(missing_ok=True)
                self._slim(run)
            except LimbeckError as error:
                problems = [one for one in error.problems if one.severity == "error"]
                return self.note_failure(run, problems)
            except Exception as error:  # if one run fails, the others continue
                log.debug("%s failed", run.name, exc_info=True)
                first = (str(error).strip().splitlines() or [""])[0]
                return self.note_failure(run, [Problem(f"{type(error).__name__}: {first}", "")])
            finally:
                gc.collect()  # A trainer and its callbacks hold each other, and the next may be large.
        return Outcome(run.name)

    def lost(self, run: StudyRun, problem: Problem) -> Outcome:
        """Keep why the process of a run ended."""
        return self.note_failure(run, [problem])

    def note_failure(self, run: StudyRun, problems: list[Problem]) -> Outcome:
        """Keep why a run failed where tables find it, also of one that never began."""
        record = Record(
            kind="finetune" if run.role == "teacher" else "distill",
            method=run.label or run.method,
            task=str(run.settings.get("task")),
            data=str(run.settings.get("data")),
            seed=int(run.settings.get("seed", 0)),
            recipe=nested(run.settings),
        )
        record.fail("; ".join(problem.message for problem in problems) or "no reason given")
        record.save(self._failure(run.name))
        return Outcome(run.name, tuple(problems))

    @contextmanager
    def claimed(self, name: str) -> Iterator[bool]:
        """Whether the run is this process's own until the block ends; a killed process holds nothing."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / f".{name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def _make(self, run: StudyRun) -> None:
        if run.tries:
            self._choose(run)
            return
        recipe = run.recipe(self.path)
        alone = recipe.needs_teacher and recipe.teacher and not run.team
        live = self._teacher(recipe) if alone else None
        folder = self.path / run.name
        if run.beyond:  # until it has all its scores it is not held, whatever happens between
            files.write_whole(self._unscored(run.name), "")
        distill(recipe, folder, report=False, live_teacher=live)
        if run.beyond:
            evaluate(folder, run.beyond)
            self._unscored(run.name).unlink()

    def _choose(self, run: StudyRun) -> None:
        """Give the run best on dev, of equals the first, the place of the chosen one; files are shared, not copied.

        Raises:
            LimbeckError: no candidate has a score.
        """
        scores = {
            one.name: score
            for one in run.tries
            if (record := self.held(one.name)) is not None
            and (score := record.primary_score("dev")) is not None
        }
        if not scores:
            raise LimbeckError(
                f"{run.label}: none of the {len(run.tries)} runs that were tried has a dev score",
                "see above why they failed",
            )
        part, place = self.path / f".{run.name}.part", self.path / run.name
        for stale in (part, place):
            shutil.rmtree(stale, ignore_errors=True)
        best = max(scores, key=lambda name: scores[name])
        shutil.copytree(self.path / best, part, copy_function=_shared)
        part.rename(place)

    def _teacher(self, recipe: Recipe) -> Teacher | None:
        """One teacher per process, which caches its outputs for rows that the next runs have too."""
        if not self.remember:
            return None
        if recipe.augment is not None or recipe.teacher_dropout or recipe.cache == "never":
            return None
        if _seen_anew(recipe):
            return None
        rows = _POCKET_ROWS if recipe.data == "pocket" else recipe.train_rows
        if rows is None:  # as many as there are: stored outputs on disk are for these
            return None
        said = recipe.model_dump(mode="json")
        said["student"] = {"init": recipe.student.init, "tokenizer": recipe.student.tokenizer}
        key = repr(sorted((k, v) for k, v in said.items() if k not in _NOT_THE_TEACHERS))
        if key not in self._teachers:
            self._teachers.clear()  # another task's outputs are not requested again
            teacher = Teacher.load(str(recipe.teacher))
            config = teacher.model.config
            layers = getattr(config, "num_hidden_layers", 0) or 0
            width = getattr(config, "hidden_size", 0) or 0
            if rows * layers * width * _BYTES > _MOST_REMEMBERED:
                return None
            self._teachers[key] = RememberingTeacher(teacher)
        return self._teachers[key]

    def _slim(self, run: StudyRun) -> None:
        """A student's weights go once its record is there; a teacher's stay."""
        if run.role != "teacher" and not self.keep_students:
            for weights in ("student", "first_stage"):
                shutil.rmtree(self.path / run.name / weights, ignore_errors=True)

    def _unscored(self, name: str) -> Path:
        return self.path / f".{name}.unscored"

    def _failure(self, name: str) -> Path:
        return self.path / f"{name}.failed.json"


def _shared(source: str, target: str) -> None:
    """A second name of a file, or a copy if the file system does not support links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _seen_anew(recipe: Recipe) -> bool:
    """Whether every epoch has other views of a row, as for images: outputs for one are not used again."""
    known = TASKS.get(str(recipe.task))
    if recipe.kind is not None:
        return not get_task_type(recipe.kind).reads.in_columns
    return known is not None and not known.kind.reads.in_columns


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Recipe keys with dots, `student.layers`, as a recipe has them: of runs whose recipe never came to be."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        *outer, last = key.split(".")
        place = found
        for part in outer:
            inner = place.get(part)
            place[part] = dict(inner) if isinstance(inner, Mapping) else {}
            place = place[part]
        place[last] = value
    return found


# ---- records that travel ----


def portable(run: Path) -> dict[str, Any] | None:
    """The record of a finished run as plain JSON without this machine's folders; otherwise None."""
    file = run / RECORD_NAME
    if not file.is_file():
        return None
    # Its checksum is of the run's own record, which names this machine's folders.
    record = manifest.verified(json.loads(file.read_text(encoding="utf-8")), file)
    if not isinstance(record, dict) or record["status"] != "finished":
        return None
    found: dict[str, Any] | None = without_folders(record)
    return found


def without_folders(value: Any) -> Any:
    """Plain JSON whose absolute paths keep their last part alone."""
    if isinstance(value, dict):
        return {_without_folder(key): without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def _without_folder(key: str) -> str:
    """A key of an input and its location, `teacher /folder/name`, with only the last part of the path."""
    what, separator, place = key.partition(" /")
    return f"{what} {Path(place).name}" if separator else key
