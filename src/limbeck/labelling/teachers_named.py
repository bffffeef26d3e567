"""From what `--teacher` names to a labeller. Part of `limbeck.labelling`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.labelling.language_models import BoundPrompt, load_causal_labeller
from limbeck.labelling.model_labeller import ModelLabeller
from limbeck.labelling.target_labeller import TargetLabeller, kept_word
from limbeck.outputs.columns import LOGITS
from limbeck.outputs.shards import PROBABILITIES
from limbeck.preflight import refuse_beyond
from limbeck.recipe import Recipe
from limbeck.records.runs_meant import members_at
from limbeck.students import load_model, read_processor
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import device
from limbeck.support.words import short_name, short_names
from limbeck.tasks import TASKS, TEXT, TEXT_READING
from limbeck.teachers.labeller import Labeller, TeamLabeller

_MAX_LENGTH = Recipe.model_fields["max_length"].default
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class LabellerSource:
    """Where a labeller comes from: any process makes the same one of it.

    Attributes:
        teachers: paths and names, or labellers themselves; several are a team.
        task: a known task, whose classes name those of a model that has no names of its own.
        outputs: words of `--outputs`, for models.
        max_length: tokens of a row; by default what a run was trained with.
        precision: fp32 or bf16.
        batch_size: rows of a pass.
        prompt: what language models are asked; without it a model that is no causal one is asked as it was trained.
        written_task: the name with which the prompts of a text-to-text model begin, where rows have targets.
    """

    teachers: tuple[str | Labeller, ...]
    task: str | None = None
    outputs: tuple[str, ...] | None = None
    max_length: int | None = None
    precision: str = "fp32"
    batch_size: int | None = None
    prompt: BoundPrompt | None = None
    written_task: str | None = None

    def load(self) -> Labeller:
        """The labeller, on the device of this process.

        Raises:
            LimbeckError: a model that cannot be read or used, or teachers that do not agree.
        """
        found: list[Labeller] = []
        paths: list[str] = []
        for given in self.teachers:
            if not isinstance(given, str):
                found.append(given)
                paths.append(given.name)
                continue
            for path, record in members_at(given).items():
                own = None if record is None else Recipe.recorded(record.recipe, path)
                found.append(self._model(path, own))
                paths.append(path)
        if not found:
            raise LimbeckError(
                "teacher: nobody is named", "name a model, a run folder or several, or an endpoint"
            )
        return found[0] if len(found) == 1 else TeamLabeller(found, short_names(paths))

    def _model(self, path: str, recipe: Recipe | None) -> Labeller:
        if self.prompt is not None:
            return load_causal_labeller(
                path,
                self.prompt,
                max_length=self.max_length,
                precision=self.precision,  # type: ignore[arg-type]  # checked before
                **({} if self.batch_size is None else {"batch_size": self.batch_size}),
            )
        own_length = _MAX_LENGTH if recipe is None else recipe.max_length
        shared: dict[str, Any] = {
            "name": short_name(path),
            "max_length": self.max_length or own_length,
            "precision": self.precision,
            **({} if self.batch_size is None else {"batch_size": self.batch_size}),
        }
        if self.written_task is not None:
            keep = kept_word(self.outputs, shared["name"])
            model = load_model(path, head="required", auto=TEXT.auto)
            refuse_beyond(model, self.max_length)
            processor = read_processor(path, TEXT_READING)
            written = TargetLabeller(model, processor, task=self.written_task, keep=keep, **shared)
            return written.to(device())
        known = TASKS.get(self.task) if self.task is not None else None
        answers = not self.outputs or bool({LOGITS, PROBABILITIES} & {*self.outputs})
        model = load_model(path, head="required" if answers else "optional")
        refuse_beyond(model, self.max_length)
        labeller = ModelLabeller(
            model,
            read_processor(path, TEXT_READING),
            outputs=self.outputs,
            classes=known.labels if known is not None and known.kind.has_classes else (),
            **shared,
        )
        return labeller.to(device())


def named(teacher: str | Path | Labeller | Sequence[str | Path | Labeller]) -> tuple:
    """One teacher or several as a tuple of names and labellers.

    Raises:
        LimbeckError: an object that is neither.
    """
    many = teacher if isinstance(teacher, list | tuple) else [teacher]
    found: list[str | Labeller] = []
    for one in many:
        if isinstance(one, str | Path):
            found.append(str(one))
        elif isinstance(one, Labeller):
            found.append(one)
        else:
            raise LimbeckError(
                f"teacher: a {type(one).__name__} is no labeller",
                "name a model's folder, or pass an object with the methods of limbeck.teachers.labeller.Labeller",
            )
    return tuple(found)
