"""A finished run for analyses: its models and its rows, loaded at first use."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import stack_names
from limbeck.data import Collator, Division, batches_of, encode, load_task
from limbeck.evaluation.model_outputs import inputs_of, outputs_by_batch
from limbeck.lab.measures.layer_probing import Progressed, nobody
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME
from limbeck.run.models import processor_of
from limbeck.run.run_folder import RunFolder
from limbeck.scoring import scored_model
from limbeck.students import load_model
from limbeck.support import files, machine
from limbeck.support.errors import LimbeckError, Problem, check_choice, raise_problems, unknown
from limbeck.tasks import Processor, Results, ScoredSplit, Task, join

# Missing files that a run's record names can be named otherwise.


@contextmanager
def or_name(what: str, *, given: str | None) -> Iterator[None]:
    """Add the setting of a replacement to a problem with a file that the run's record names, not with a given one."""
    try:
        yield
    except LimbeckError as error:
        if given is not None:
            raise
        raise LimbeckError(
            [replace(one, fix=f"{one.fix}; or name {what}") for one in error.problems]
        ) from None


# After which stage of its run a student is looked at.


FIRST, LAST = "first", "last"
STAGES = (FIRST, LAST)


def stage_problems(stage: str | None, recipe: Recipe, whose: str = "") -> list[Problem]:
    """Why no run of a recipe has a student after this stage; `whose` begins each message.

    Args:
        stage: one of `STAGES`; None is the last.
        recipe: the run's.
        whose: such as `run runs/kd: `.
    """
    if stage is not None and stage not in STAGES:
        return [unknown("stage:", stage, STAGES)]
    if stage != FIRST or recipe.keep_first_stage:
        return []
    if recipe.first_stage is None or recipe.joint:
        return [
            Problem(
                f"{whose}{recipe.method} trains in one stage, and stage: first looks at a student after the first "
                "of two",
                "leave stage out, or name a run of two stages",
            )
        ]
    return [
        Problem(
            f"{whose}the student as it was after its first stage has not been kept",
            "train it with keep_first_stage=true",
        )
    ]


_BATCH = 32

Watch = Callable[[str], Progressed]
"""Begins to show the progress of a long task, by its name."""


@dataclass(frozen=True)
class Side:
    """One of a run's two models, with its tokenizer or processor; `path` is where it was loaded from."""

    name: str
    path: str
    model: PreTrainedModel
    processor: Processor


class AnalysedRun:
    """One finished run.

    Args:
        path: its folder.
        teacher: the model to compare the student with; by default the run's own teacher.
        data: the location of its task's rows; by default the run's own.
        split: of which rows are looked at; by default the one that selects, dev.
        stage: first, the student as it was after its first stage; by default last, the run's own.

    Raises:
        LimbeckError: no run's folder, a run that is not finished, or one that did not keep the requested data.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        teacher: str | None = None,
        data: str | None = None,
        split: str | None = None,
        stage: str | None = None,
    ) -> None:
        self.folder = RunFolder(files.at_home(str(path)))
        found = scored_model.finished_run(self.folder.path)
        if found is None:
            raise LimbeckError(
                f"{path} is no run folder (there is no {RECORD_NAME} in it)",
                "name the folder that limbeck distill or finetune wrote, its --out",
            )
        self.record, self.recipe = found
        self._teacher, self._data, self._split, self._stage = teacher, data, split, stage
        self._first = stage == FIRST
        raise_problems(stage_problems(stage, self.recipe, f"run {path}: "))

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.path.resolve().name

    def beside(self, path: str | Path) -> "AnalysedRun":
        """Another run, looked at as this one is.

        Raises:
            LimbeckError: as for any run.
        """
        return AnalysedRun(
            path, teacher=self._teacher, data=self._data, split=self._split, stage=self._stage
        )

    # ---- models ----

    @cached_property
    def student(self) -> Side:
        """The run's student, after the stage that is looked at.

        Raises:
            LimbeckError: its weights were removed.
        """
        name, place = "student", self.folder.student
        if self._first:
            name, place = "first-stage student", self.folder.first_stage
        if not any(place.glob("*.safetensors")):
            raise LimbeckError(
                f"run {self.folder.path}: the weights of the {name} are not there any more",
                "train it again; a study keeps them with keep_students: true",
            )
        model = load_model(place, auto=self.task.kind.auto)
        return Side(name, str(place), _moved(model), self.task.kind.reads.load(str(place)))

    @cached_property
    def teacher(self) -> Side:
        """Whom the student is held against.

        Raises:
            LimbeckError: no model is named, or it cannot be loaded.
        """
        path = self._teacher or self.recipe.teacher
        if path is None:
            several = " but a team" if self.recipe.teachers else ""
            raise LimbeckError(
                f"run {self.folder.path} has no teacher of its own{several}",
                "name one: --teacher FOLDER",
            )
        kind = self.task.kind
        with or_name("another teacher with --teacher FOLDER", given=self._teacher):
            model = load_model(path, auto=kind.auto)
            processor = processor_of(self.recipe, self.task, str(path))
        return Side("teacher", str(path), _moved(model), processor)

    @property
    def has_teacher(self) -> bool:
        """Whether a teacher is known."""
        return (self._teacher or self.recipe.teacher) is not None

    def sides(self, named: Sequence[str]) -> list[Side]:
        """The models that are named, the teacher only where there is one."""
        found = [self.student] if "student" in named else []
        return found + ([self.teacher] if "teacher" in named and self.has_teacher else [])

    # ---- rows ----

    @cached_property
    def _loaded(self) -> tuple[Task, DatasetDict]:
        recipe = self.recipe
        with or_name(
            "where the rows are with --data (the run may have read them from another folder)",
            given=self._data,
        ):
            return load_task(
                recipe.task,
                self._data or recipe.data,
                text_columns=recipe.text_columns,
                label_column=recipe.label_column,
                kind=recipe.kind,
                labelling=scored_model.student_labelling(recipe, self.folder.student),
                # A single file is cut as the run cut it.
                for_training=True,
                division=recipe.division if self._data is None else Division(),
            )

    @property
    def task(self) -> Task:
        """The task of its rows."""
        return self._loaded[0]

    @cached_property
    def split(self) -> str:
        """The task type of the rows."""
        return scored_model.split_to_score(self.task, self._loaded[1], self._split)

    def rows(self, split: str | None = None, count: int | None = None) -> Dataset:
        """The first rows of a split as they were loaded.

        Raises:
            LimbeckError: there is no such split.
        """
        name = split or self.split
        check_choice("split", name, self._loaded[1])
        rows = self._loaded[1][name]
        return rows if count is None else rows.select(range(min(count, len(rows))))

    def encoded(self, side: Side, rows: Dataset) -> Dataset:
        """Rows as one model reads them."""
        return encode(rows, self.task, side.processor, self.recipe.max_length)[0]

    def batches(
        self, side: Side, rows: Dataset, watch: Watch | None = None
    ) -> Iterator[dict[str, Tensor]]:
        """Rows in batches on the model's device, without their numbers; `watch` is shown how far they are."""
        for batch in self._walked(side, self.encoded(side, rows), watch):
            yield inputs_of(batch, side.model)

    def _walked(
        self, side: Side, encoded: Dataset, watch: Watch | None
    ) -> Iterator[dict[str, Tensor]]:
        collate = Collator(side.processor, kind=self.task.kind)
        progressed = nobody if watch is None else watch(f"{side.name} over rows")
        total = len(encoded)
        for place, batch in enumerate(
            batches_of(encoded, collate, _BATCH, side.model.device), start=1
        ):
            yield batch
            progressed(min(place * _BATCH, total), total)

    def labels(self, rows: Dataset) -> np.ndarray:
        """Class ids of rows.

        Raises:
            LimbeckError: the task has no classes, or some rows no label.
        """
        if not self.task.one_class:
            raise LimbeckError(
                f"run {self.folder.path}: the rows of {self.task.name} are not of one class each",
                "this analysis counts classes; choose another one, or a classifier's run",
            )
        return np.asarray(self.encoded(self.student, rows)["labels"][:], dtype=np.int64)

    # ---- predictions ----

    def results(
        self, side: Side, rows: Dataset, watch: Watch | None = None
    ) -> tuple[Results, float]:
        """Scores and predictions of rows, and the mean loss of their labels; `watch` as for `batches`.

        Raises:
            LimbeckError: the model's classes do not correspond to the rows'.
        """
        task, kind = self.task, self.task.kind
        unproven = scored_model.class_names(task, side.model.config, side=side.name)
        encoded = self.encoded(side, rows)
        kept, losses, sizes = [], [], []
        for one in outputs_by_batch(side.model, self._walked(side, encoded, watch), kind):
            kept.append(one.kept)
            losses.append(float(kind.hard_label(one.logits, one.batch)))
            sizes.append(len(one.logits))
        outputs, labels = join(kept), rows[task.label_column][:]
        scored_model.resolve_class_order(
            task, unproven, outputs, labels, self.split, side=side.name
        )
        results = kind.results(task, outputs, ScoredSplit(encoded, rows, side.processor))
        return results, float(np.average(losses, weights=sizes))

    def loss(self, side: Side, rows: Dataset) -> float:
        """The mean loss of the labels of rows."""
        return self.results(side, rows)[1]

    def scored(self, side: Side, rows: Dataset) -> tuple[float, float]:
        """The primary score of rows, 0 to 100, and the mean loss of their labels."""
        results, loss = self.results(side, rows)
        return results.scores["primary"], loss

    def need_layers(self, *sides: Side) -> None:
        """Raise LimbeckError for a model without layers over tokens."""
        for side in sides:
            if not stack_names(side.model):
                raise LimbeckError(
                    f"the {side.name} at {side.path} has no layers over tokens",
                    "this analysis looks at layers; choose another one, or a transformer",
                )

    def need_embeddings(self, side: Side) -> None:
        """Raise LimbeckError for a model that has no input embeddings."""
        try:
            side.model.get_input_embeddings()
        except NotImplementedError:  # transformers' own word for a missing model
            raise LimbeckError(
                f"the {side.name} at {side.path} has no input embeddings",
                "this analysis adds noise to them; choose another one, or a transformer",
            ) from None

    def texts(self, rows: Dataset) -> Mapping[str, Any] | None:
        """The text columns, where the run's recipe keeps texts."""
        return self.task.kind.shown_texts(self.task, rows) if self.recipe.keep_texts else None


def _moved(model: PreTrainedModel) -> PreTrainedModel:
    model.to(machine.device())  # type: ignore[arg-type]  # transformers wraps the method
    return model
