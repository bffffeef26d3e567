"""A run's folder: its files, and how it is begun, shipped to and cleared.

Part of `limbeck.run`.
"""

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from limbeck.cards import card, settings
from limbeck.preflight import recorded_scores
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME
from limbeck.report.sections import page_parts
from limbeck.runtimes.manifest import EXPORTS, exports_of, remove_export
from limbeck.support import files, given, lock, plain
from limbeck.support.errors import LimbeckError
from limbeck.support.manifest import NAME, Manifest
from limbeck.tasks import TASKS, Task
from limbeck.training.checkpoints import SEAL, remove_all, remove_unfinished

# The predictions that a run keeps of the splits it was scored on.


PREDICTIONS_NAME = "predictions.json"


def kept_predictions(run: Path, split: str) -> Mapping[str, Sequence[Any]] | None:
    """A split's predictions by row, as the run's task type keeps them; None if they are missing or damaged."""
    manifest = Manifest.read(run)
    if manifest is None or manifest.damaged(run, PREDICTIONS_NAME):
        return None
    try:
        kept = plain.read_json((run / PREDICTIONS_NAME).read_bytes(), PREDICTIONS_NAME)[split]
        same = len(kept["prediction"]) == len(kept["label"])
    except (OSError, LimbeckError, KeyError, TypeError):
        return None
    return kept if same else None


def kept_by_its_run(
    path: str, task: Task, split: str, fingerprint: str
) -> Mapping[str, Sequence[Any]] | None:
    """Predictions for the very same rows of a split, undamaged, by the run that made a model."""
    found = recorded_scores(path, task, {split: fingerprint})
    if found is None or split not in found[0]:
        return None
    return kept_predictions(found[1].parent, split)


logger = logging.getLogger(__name__)


def _names() -> tuple[str, ...]:
    """Files of a run outside its student, whose own files it names when it ships them."""
    return (
        "recipe.yaml",
        RECORD_NAME,
        PREDICTIONS_NAME,
        "report.html",
        *(name for part in page_parts() for name in part.files),
        settings.SETTINGS_NAME,
        "student.part/**/*",
        "checkpoints/**/checkpoint-*/*",
        "tensorboard/**/events.out.tfevents.*",
    )


class RunFolder:
    """The files of one run.

    Attributes:
        path: the folder.
        recipe: the recipe, every default written out.
        student: the shipped model and its tokenizer.
        first_stage: the student as it was after its first stage, where the recipe keeps it, and its tokenizer.
        predictions: the student's predictions on the evaluation splits.
        checkpoints: the trainer's checkpoints; gone once the run has finished.
        students: runs that distill a student from each of several teachers alone.
        tries: runs with each distribution over several teachers.
        assistants: runs of a chain from the largest teacher to the student.
        report: the report page.
        events: TensorBoard's files, if they are requested.
        unshipped: the student while it is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.yaml"
        self.student = path / "student"
        self.first_stage = path / "first_stage"
        self.predictions = path / PREDICTIONS_NAME
        self.checkpoints = path / "checkpoints"
        self.students = path / "students"
        self.tries = path / "tries"
        self.assistants = path / "assistants"
        self.report = path / "report.html"
        self.events = path / "tensorboard"
        self.unshipped = path / "student.part"

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return any(self.checkpoints.rglob(SEAL))

    def begin(self, recipe: Recipe, training: Mapping[str, float]) -> None:
        """Make the folder, record which files in it are the run's, and write the recipe.

        `training`: settings that the recipe derives from the rows, written as a comment.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        own = tuple(f".{name}." for name in (*_names(), NAME))
        for path in self.path.iterdir():  # of a start that was killed while it wrote one
            if files.is_temporary(path) and path.name.startswith(own):
                path.unlink(missing_ok=True)
        if Manifest.read(self.path) is None:
            Manifest(_names()).write(self.path)
        told = given.note(recipe.model_dump(mode="json"))
        if training:
            chosen = ", ".join(f"{key} {value:g}" for key, value in training.items())
            told += f"# chosen for these rows and this student where the recipe is null: {chosen}\n"
        files.write_whole(self.recipe, told + recipe.to_yaml())

    def ship(self, target: Path, *beside: Path) -> None:
        """Move the written student to its final folder, atomically, and record its files and checksums.

        The manifest holds it, and the files `beside` it.
        """
        part = self.unshipped
        written = sorted(path.relative_to(part) for path in part.rglob("*") if path.is_file())
        manifest = Manifest.read(self.path) or Manifest(_names())
        own = f"{target.name}/"
        shipped = {
            name: known
            for name, known in manifest.checksums.items()
            if "/" in name and not name.startswith(own)
        }
        shipped |= {f"{own}{name.as_posix()}": files.checksum(part / name) for name in written}
        shipped |= {path.name: files.checksum(path) for path in beside if path.is_file()}
        manifest.holding(shipped).write(self.path)
        for path in target.rglob("*"):  # what someone else put there stays
            name = path.relative_to(target)
            known = f"{own}{name.as_posix()}" in manifest.checksums
            if path.is_file() and not known and name not in written:
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, part / name)
        files.put_in_place(part, target)

    def remove_checkpoints(self) -> None:
        """Remove them all: the run has finished."""
        remove_all(self.checkpoints)

    def remove_unfinished(self) -> None:
        """Remove partially written files, to free space."""
        remove_unfinished(self.checkpoints)
        shutil.rmtree(self.unshipped, ignore_errors=True)

    def clear(self) -> None:
        """Remove an earlier run's files in this folder, as its manifest names them, and nothing else.

        Exports of its student are removed too, as their own manifests name them.
        """
        manifest = Manifest.read(self.path)
        if manifest is None:
            return
        if card.is_ours(self.student / card.CARD_NAME):
            (self.student / card.CARD_NAME).unlink(missing_ok=True)
        for export in exports_of(self.path):
            with suppress(LimbeckError):  # its files are not known
                remove_export(export)
                logger.warning("%s is removed with the student that it was made from", export)
        with suppress(OSError):  # it is missing, or has other content
            (self.path / EXPORTS).rmdir()
        for place in (self.students, self.tries, self.assistants):
            for run in list(place.iterdir()) if place.is_dir() else ():
                if Manifest.read(run) is not None:
                    with lock.held(run):
                        RunFolder(run).clear()
                with suppress(OSError):  # it holds something else
                    run.rmdir()
            with suppress(OSError):
                place.rmdir()
        manifest.delete(self.path)


_LONGEST = 32
"""Characters of a model's name."""


def default_folder(recipe: Recipe) -> Path:
    """`runs/TASK-METHOD-MODELS-LAYERS-sSEED-DIGEST`, where no folder is given.

    The digest is of every setting that is not the usual one: two experiments never meet in one folder, and the same
    command finds its own again.
    """
    layers = recipe.student.layers
    if isinstance(layers, dict):
        kept = [f"{stack}-{_layers(number)}" for stack, number in layers.items()]
    else:
        kept = [] if layers is None else [_layers(layers)]
    kept += [f"{name}{size}" for name, size in recipe.student.narrower.items()]
    kept += ["static"] * recipe.student.static
    kind = [] if recipe.kind is None or recipe.task not in TASKS else [recipe.kind]
    parts = [str(recipe.task), *kind, recipe.method, *_models(recipe), *kept, f"s{recipe.seed}"]
    return Path("runs") / files.file_name("-".join([*parts, _digest(recipe)]))


def _models(recipe: Recipe) -> list[str]:
    """Short names of the teacher and of the checkpoint that the student starts from."""
    sources = recipe.outputs or recipe.teachers or ([recipe.teacher] if recipe.teacher else [])
    named = [_short(sources[0], recipe)] if sources else []
    named += [f"and-{len(sources) - 1}-more"] if len(sources) > 1 else []
    start = [] if recipe.student.from_teacher else [_short(recipe.student.init, recipe)]
    return [*named, *start]


def _short(model: str, recipe: Recipe) -> str:
    """The last part of a path, without the task that the run's own name begins with."""
    if model.startswith(given.PREFIX):
        return "given"
    name = Path(model).name.removeprefix(f"{recipe.task}-")
    return files.file_name(name)[:_LONGEST].rstrip("-.")


def _digest(recipe: Recipe) -> str:
    changed = recipe.model_dump(mode="json", exclude_defaults=True)
    return files.checksum_of_text(json.dumps(changed, sort_keys=True))[:6]


def _layers(kept: int | list[int]) -> str:
    return f"{kept}l" if isinstance(kept, int) else "l" + ".".join(map(str, kept))
