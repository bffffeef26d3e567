"""Score any fine-tuned model on any labeled rows: a run's student, a checkpoint or an exported folder.

`ScoredModel.open(path)` finds the model, `rows(asked)` loads its rows, `score(rows)` runs it. All scores of finished
models are computed this way: by `evaluate`, the gate of an export, a team, predictions of a split.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset, DatasetDict
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from limbeck import data, preflight, tasks
from limbeck.data.splits import halved
from limbeck.embedding import modules_of
from limbeck.evaluation.model_outputs import compact_outputs_of, outputs_by_batch
from limbeck.outputs.stored_teacher import AbsentConfig
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.run.models import labelling_of, names_at, names_of
from limbeck.runtimes.cascade import CascadeManifest, is_cascade, read_cascade
from limbeck.runtimes.manifest import ExportManifest, exports_of, is_export, read_export
from limbeck.runtimes.sessions import RUNTIMES, GraphSession, check_reader, open_export
from limbeck.scoring.stored_member import StoredMember
from limbeck.students import load_model, placement, read_config, read_processor, resolve_checkpoint
from limbeck.students.pretrained import Head
from limbeck.support import files, given
from limbeck.support.errors import LimbeckError, Problem, check_choice, raise_problems, unknown
from limbeck.support.positions import positions_of
from limbeck.support.settings import DeviceMap
from limbeck.tasks.abstract_type import labelled_rows
from limbeck.tasks.metrics import TEACHER_LABEL

logger = logging.getLogger(__name__)

TORCH = "torch"
BACKENDS = (TORCH, *RUNTIMES)
HUB = "hub"
"""The location of a known task's rows, by default."""
# A model without a limit, or one of thousands of tokens, is measured on texts this long.
LONGEST = 512
# The recipe's settings of which rows there are and how they are read.
_ROWS = {
    "task", "kind", "data", "dev", "test", "dev_share", "test_share", "group_column", "text_columns",
    "label_column", "classes", "labels", "label_separator", "max_length",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadedSplit:
    """The rows of a split as loaded, for any model.

    Attributes:
        task: their task.
        data: their source.
        name: the split's.
        rows: as loaded.
        max_length: tokens of a row, if they are set; `usual_length`: a run's own limit in training.
        text_columns: as they were named, for a file of the user's own; also `label_column`.
        recipe: the run's settings that identify these rows; empty for rows that were named.
        own_classes: whether the classes are known to be in the order of the model that the rows were loaded for.
        translated_from: its own task, where the rows are of another one.
    """

    task: tasks.Task
    data: str
    name: str
    rows: Dataset
    max_length: int | None = None
    usual_length: int | None = None
    text_columns: Sequence[str] = ()
    label_column: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    own_classes: bool = False
    translated_from: tasks.Task | None = None

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the rows' content."""
        return data.rows_fingerprint(self.task, self.rows)

    @property
    def labeled(self) -> bool:
        """Whether there is something to score."""
        return self.task.label_column in self.rows.column_names


@dataclass(frozen=True)
class EncodedSplit:
    """A split as one model reads it.

    Attributes:
        loaded: the rows.
        task: theirs, with the model's own prompts and thresholds.
        encoded: as batches are made of it.
        processor: tokenizer or image processor.
        max_length: tokens of a row.
    """

    loaded: LoadedSplit
    task: tasks.Task
    encoded: Dataset
    processor: tasks.Processor
    max_length: int

    @property
    def collator(self) -> data.Collator:
        """Makes batches of the encoded rows."""
        return data.Collator(self.processor, kind=self.task.kind)

    def batches(self, size: int) -> Iterator[dict[str, Tensor]]:
        """The encoded rows in order, on CPU."""
        return data.batches_of(self.encoded, self.collator, size, "cpu")

    def results(self, outputs: np.ndarray, places: np.ndarray | None = None) -> tasks.Results:
        """Scores and predictions from the kept outputs of every row; with `places` of some rows alone."""
        encoded, rows = self.encoded, self.loaded.rows
        if places is not None:
            outputs, encoded, rows = outputs[places], encoded.select(places), rows.select(places)
        of = tasks.ScoredSplit(encoded, rows, self.processor)
        return self.task.kind.results(self.task, outputs, of)

    def halves(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The places of a random half of the rows, and of the others.

        Rows that belong together, or that a model reads as the same, stay together.
        None if a row is several examples or can only be read together with all others, as in a search.
        """
        kind, rows = self.task.kind, self.loaded.rows
        if not kind.one_example_a_row or len(rows) != len(self.encoded):
            return None
        texts = {name: rows[name][:] for name in self.task.text_columns}
        groups = kind.groups_of(self.task, texts)
        if groups is None and "input_ids" in self.encoded.column_names:
            tokens = [tuple(row) for row in self.encoded["input_ids"]]
            groups = pd.factorize(pd.Series(tokens))[
                0
            ]  # by first row: without copies, the rows' order
        parts = halved(len(rows), groups)
        return parts if min(map(len, parts)) else None


@dataclass(frozen=True)
class Scored:
    """A model's outputs, scores and predictions on a split."""

    split: EncodedSplit
    outputs: np.ndarray
    results: tasks.Results

    @property
    def task(self) -> tasks.Task:
        """The split's, as the model has it."""
        return self.split.task


@dataclass(frozen=True)
class ScoredModel:
    """A fine-tuned model, found and described; its weights are read at first use.

    Attributes:
        name: as it was named.
        place: its checkpoint's folder or Hub name, or the exported folder.
        backend: what computes, one of `BACKENDS`.
        config: its configuration.
        record: of a run, its record.
        recipe: for a run or an export of one, the settings that identify its own rows.
        manifest: for an exported folder, its description.
        cascade: for a cascade's folder, its description; `members` are its models, fastest first, no stored outputs.
        weights: the model itself, where it stays in memory (`in_memory`).
        processor: its tokenizer or image processor, where that stays in memory.
        device_map: how its parts are placed on several devices.
    """

    name: str
    place: str
    backend: str
    config: PretrainedConfig
    record: Record | None = None
    recipe: Recipe | None = None
    manifest: ExportManifest | None = None
    cascade: CascadeManifest | None = None
    members: "tuple[ScoredModel, ...]" = ()
    weights: PreTrainedModel | None = None
    processor: tasks.Processor | None = None
    device_map: DeviceMap | None = None

    @classmethod
    def open(cls, path: str | Path, backend: str | None = None) -> "ScoredModel":
        """Find a model and check it, without its weights.

        Args:
            path: a run's folder, a checkpoint's folder or Hub name, an exported folder or a run that holds one, or a
                cascade's folder.
            backend: the runtime; by default the folder's.

        Raises:
            LimbeckError: nothing there, a run that is not finished, a damaged folder, a backend that is unknown, not
                installed, or that does not read it.
        """
        name = str(path)
        check_choice("backend", backend, BACKENDS)
        if backend in RUNTIMES or is_export(name):
            return cls._exported(name, backend)
        if is_cascade(name):
            return cls._cascade(name)
        record, recipe = finished_run(files.at_home(name)) or (None, None)
        return cls(name, resolve_checkpoint(name), TORCH, read_config(name), record, recipe)

    @classmethod
    def _cascade(cls, name: str) -> "ScoredModel":
        manifest = read_cascade(name)
        members = tuple(
            cls.open(manifest.place_of(one), one.backend)
            for one in manifest.members
            if not one.stored
        )
        place, config, recipe = members[-1].place, members[-1].config, None
        # Stored outputs have the head of no model, whose thresholds are others.
        if classes := (last := manifest.members[-1]).classes:
            kind: Any = tasks.get_task_type(manifest.kind).problem_type
            config = AbsentConfig(id2label=dict(enumerate(classes)), problem_type=kind)
            config.architectures = ["AbsentForSequenceClassification"]
            if len(last.decides) == len(classes):
                setattr(config, tasks.rules.THRESHOLDS, last.decides)
        if manifest.gate.recipe:
            recipe = Recipe.recorded({"method": "cascade", **manifest.gate.recipe}, name)
        return cls(name, place, TORCH, config, None, recipe, cascade=manifest, members=members)

    @cached_property
    def stored(self) -> StoredMember | None:
        """The last member of a cascade, where it is stored outputs.

        Raises:
            LimbeckError: they cannot be read.
        """
        if self.cascade is None or not (last := self.cascade.members[-1]).stored:
            return None
        place = self.cascade.place_of(last)
        return StoredMember.open(last.name, place, self.kind, last.classes)

    @classmethod
    def _exported(cls, name: str, backend: str | None) -> "ScoredModel":
        if backend == TORCH:
            raise LimbeckError(
                f"backend torch: {name} holds an exported model, not torch's",
                f"leave it out, or choose {' or '.join(RUNTIMES)}",
            )
        manifest = read_export(find_export(name))
        recipe = None
        if manifest.gate.recipe:
            recipe = Recipe.recorded({"method": "exported", **manifest.gate.recipe}, name)
        runtime = check_reader(manifest, backend)
        config = AutoConfig.from_pretrained(manifest.folder, trust_remote_code=False)
        return cls(name, str(manifest.folder), runtime, config, None, recipe, manifest)

    @property
    def kind(self) -> tasks.TaskType:
        """The task type that follows from its configuration."""
        return tasks.kind_of_config(self.config)

    @cached_property
    def session(self) -> GraphSession:
        """An exported model's file, opened."""
        assert self.manifest is not None
        return open_export(self.manifest, runtime=self.backend)

    def load(
        self,
        kind: tasks.TaskType,
        processor: tasks.Processor | None = None,
        *,
        head: Head = "required",
    ) -> PreTrainedModel:
        """A checkpoint's weights under the head of a task type, on the CPU.

        Args:
            kind: the task type.
            processor: its tokenizer or image processor; by default the checkpoint's own of that type.
            head: as `load_model` takes it.

        Raises:
            LimbeckError: no such head, or a tokenizer that does not fit.
        """
        model = load_model(
            self.place, head=head, auto=kind.auto, loading=placement(self.device_map)
        )
        tasks.task_type_of(model)  # raises an error for a missing type
        given = processor or read_processor(self.place, kind.reads)
        preflight.refuse_unfit(self.name, model, given)
        return model

    def in_memory(self, kind: tasks.TaskType) -> "ScoredModel":
        """The same model, read once with its tokenizer: its passes can be timed without loading."""
        if self.cascade is not None:
            return replace(self, members=tuple(one.in_memory(kind) for one in self.members))
        processor = read_processor(self.place, kind.reads)
        weights = None if self.manifest is not None else self.load(kind, processor)
        return replace(self, weights=weights, processor=processor)

    # ---- rows ----

    def rows(
        self, asked: data.RowsAsked = data.NOTHING_NAMED, *, labeled: bool = True
    ) -> LoadedSplit:
        """The rows that are named, otherwise the rows that the run, or the exported model, was measured on.

        Args:
            asked: the rows' settings.
            labeled: raise an error for a split without labels.

        Raises:
            LimbeckError: no rows are identified, they cannot be read as the model's task, or an exported model's
                rows have changed.
        """
        measured_on = self.manifest or self.cascade
        if measured_on is not None:
            return self._rows_of_export(measured_on, asked, labeled=labeled)
        return self._rows(asked, labeled=labeled)

    def _rows(self, asked: data.RowsAsked, *, labeled: bool) -> LoadedSplit:
        if self.recipe is not None:
            return self._rows_of_recipe(self.recipe, asked, labeled=labeled)
        if asked.task is None and asked.data is None:
            raise LimbeckError(
                f"{self.name} is no run of limbeck's, and a checkpoint does not name rows to score it on",
                "add --task and --data, as in --task mrpc --data glue, or --data FILE with its columns",
            )
        asked = replace(asked, data=str(asked.data or HUB))
        task, splits = data.load_task(
            asked.task,
            str(asked.data),
            text_columns=asked.text_columns,
            label_column=asked.label_column,
            kind=wanted_kind(self.kind, asked.task),
            labelling=data.Labelling(teacher=names_of(self.config)),
            for_training=False,
        )
        return _split_of(task, splits, asked, labeled=labeled)

    def _rows_of_recipe(
        self, recipe: Recipe, asked: data.RowsAsked, *, labeled: bool
    ) -> LoadedSplit:
        if asked.data is not None and given.is_reference(recipe.data):
            # Rows that can be read, where the run's own were objects.
            recipe = recipe.model_copy(update={"data": str(asked.data)})
        own = asked.task in (None, recipe.task)
        task, splits, wanted = rows_of_run(recipe, self.place, asked)
        found = _split_of(task, splits, wanted, labeled=labeled)
        own_rows = asked.are_those_of(recipe.task)
        return replace(
            found,
            usual_length=recipe.max_length,
            recipe=recipe.model_dump(mode="json", include=_ROWS) if own_rows else {},
            own_classes=own and asked.data in (None, recipe.data),
            translated_from=None
            if own or self.manifest or self.cascade
            else own_task(recipe, self.place),
        )

    def _rows_of_export(
        self, manifest: ExportManifest | CascadeManifest, asked: data.RowsAsked, *, labeled: bool
    ) -> LoadedSplit:
        facts = manifest.gate
        wanted = replace(asked, max_length=asked.max_length or manifest.max_length)
        if asked.data is None and asked.task in (None, facts.task):
            wanted = replace(wanted, split=asked.split or facts.split)
        if self.recipe is None:
            wanted = replace(
                wanted,
                task=asked.task or facts.task,
                data=asked.data or facts.data,
                text_columns=asked.text_columns or facts.text_columns or None,
                label_column=asked.label_column or facts.label_column,
            )
        found = self._rows(wanted, labeled=labeled)
        same = asked.are_those_of(facts.task) and asked.split in (None, facts.split)
        if same and found.fingerprint != facts.fingerprint:
            raise LimbeckError(
                f"data {found.data}: its {found.name} rows ({len(found.rows)}) are not the rows that "
                f"{manifest.folder} was measured on ({facts.rows})",
                "name the rows to score on (--data FILE --split NAME), or export again with --overwrite",
            )
        return found

    # ---- scores ----

    def read(self, loaded: LoadedSplit, model: PreTrainedModel | None = None) -> EncodedSplit:
        """A split as this model reads it: with its prompts and thresholds, and its training's length limit.

        Args:
            loaded: the rows.
            model: its weights; not needed if the length is known otherwise.
        """
        task = decided_by(loaded.task, self.config)
        processor = self.processor or read_processor(self.place, task.kind.reads)
        length = loaded.max_length
        if length is None:
            usual = loaded.usual_length
            if usual is None:
                assert model is not None
                usual = longest_of(model, processor)
            length = task.kind.scored_length(usual)
        if model is not None:
            length = min(length, positions_of(model) or length)
        encoded, _ = data.encode(loaded.rows, task, processor, length)
        return EncodedSplit(loaded, task, encoded, processor, length)

    def score(self, loaded: LoadedSplit, *, side: str | None = None) -> Scored:
        """Outputs, scores and predictions on labeled rows.

        Args:
            loaded: as `rows` gave them, of this model or of another one.
            side: the model's name in messages; by default student for a run's, otherwise model.

        Raises:
            LimbeckError: classes that do not fit the rows'.
        """
        side = side or ("student" if self.recipe else "model")
        source = loaded.translated_from
        split, outputs = self.outputs(loaded, side=side)
        results = split.results(outputs)
        if source is not None:  # translated classes come without probabilities
            results.predictions.pop("probabilities", None)
        return Scored(split, outputs, results)

    def outputs(
        self, loaded: LoadedSplit, *, side: str = "model"
    ) -> tuple[EncodedSplit, np.ndarray]:
        """The rows as this model reads them, and what its task type keeps of its outputs, in their order.

        Args:
            loaded: as `rows` gave them; a class order that cannot be proved is checked where they have labels.
            side: what messages call the model.

        Raises:
            LimbeckError: classes that do not fit the rows'.
        """
        if self.cascade is not None:
            return self._outputs_of_cascade(loaded, self.cascade)
        source = loaded.translated_from
        named = source is not None or loaded.own_classes
        unproven = [] if named else class_names(loaded.task, self.config, side=side)
        if self.manifest is not None:
            split = self.read(loaded)
            batches = split.batches(self.manifest.gate.batch_size)
            found = outputs_by_batch(self.session, batches, split.task.kind)
            outputs = tasks.join([one.kept for one in found])
        else:
            model = self.weights or self.load((source or loaded.task).kind)
            split = self.read(loaded, model)
            outputs = compact_outputs_of(model, split.encoded, split.collator)
        if source is not None:
            outputs = tasks.project(outputs, source, split.task)
        if loaded.labeled:
            labels = loaded.rows[split.task.label_column][:]
            resolve_class_order(split.task, unproven, outputs, labels, loaded.name, side=side)
        return split, outputs

    def _outputs_of_cascade(
        self, loaded: LoadedSplit, cascade: CascadeManifest
    ) -> tuple[EncodedSplit, np.ndarray]:
        """Each row by the first member that is sure enough of it."""
        left, outputs = np.arange(len(loaded.rows)), np.empty(0)
        reads: list[EncodedSplit] = []
        for said, member in zip(cascade.members, self.members, strict=False):
            length = min(said.max_length, loaded.max_length or said.max_length)
            part = replace(loaded, rows=loaded.rows.select(left), max_length=length)
            read, found = member.outputs(part)
            answered = cascade.answer(said, found)
            outputs = outputs if reads else answered.copy()
            outputs[left] = answered
            reads.append(read)
            left = left[~said.is_sure(found, read.task.kind)]
            if not len(left):
                break
        if len(left) and self.stored is not None:
            found = self.stored.logits_of(loaded.task, loaded.rows.select(left))
            outputs[left] = cascade.answer(cascade.members[-1], found)
        return replace(reads[0], task=decided_by(loaded.task, self.config)), outputs


# The types of path: a run that has finished, an exported folder.


def finished_run(folder: Path) -> tuple[Record, Recipe] | None:
    """The record and the recipe of a finished run; None of a folder that is no run's.

    Raises:
        LimbeckError: the run has not finished.
    """
    if not (folder / RECORD_NAME).is_file():
        return None
    record = Record.of_finished(folder)
    return record, Recipe.recorded(record.recipe, str(folder))


def find_export(path: str) -> Path:
    """An exported folder, or the one that a run holds.

    Raises:
        LimbeckError: it does not exist, or there are several to choose from.
    """
    folder = files.at_home(path)
    found = [folder] if is_export(folder) else exports_of(folder)
    if len(found) == 1:
        return found[0]
    if found:
        raise LimbeckError(
            f"{path} holds {len(found)} exported models", f"name one: {', '.join(map(str, found))}"
        )
    raise LimbeckError(
        f"{path} holds no exported model", f"limbeck export {path} --format onnx makes one"
    )


# Which rows are scored: how a model's own ones are read, and which split of them.


def _split_of(
    task: tasks.Task, splits: DatasetDict, asked: data.RowsAsked, *, labeled: bool
) -> LoadedSplit:
    chosen = split_to_score(task, splits, asked.split, labeled=labeled)
    found = LoadedSplit(
        task=task,
        data=str(asked.data),
        name=chosen,
        rows=splits[chosen],
        max_length=asked.max_length,
        text_columns=tuple(asked.text_columns or ()),
        label_column=asked.label_column,
    )
    if labeled:
        refuse_gaps(found)
    return found


def refuse_gaps(loaded: LoadedSplit) -> None:
    """Raise LimbeckError for rows to score of which some have no label, as training rows may, or nothing to rank."""
    task = loaded.task
    if task.kind.candidates is not None and (wrong := task.kind.check_rows(task, loaded.rows)):
        raise LimbeckError(
            [Problem(f"{loaded.name}: {what}", "fix or remove those rows") for what in wrong]
        )
    if not task.kind.scored_by_rows:
        return
    known = labelled_rows(loaded.rows.with_format("numpy")[task.label_column][:])
    if not known.all():
        raise LimbeckError(
            f"split {loaded.name!r} of {task.name}: {int((~known).sum()):,} of {len(known):,} rows have no label",
            "give each row a label, or remove these rows",
        )


def split_to_score(
    task: tasks.Task, rows: Mapping[str, Dataset], split: str | None, *, labeled: bool = True
) -> str:
    """The split that is named, or the one that the task is scored on.

    Raises:
        LimbeckError: it does not exist, or has no labels although they are required.
    """
    chosen = split or (task.evaluation_splits(rows) or tuple(rows))[0]
    if chosen not in rows:
        problem = unknown("split", chosen, list(rows))
        if len(rows) == 1:
            problem = replace(problem, fix="leave out --split: these rows are not divided")
        raise LimbeckError(problem)
    if labeled and task.label_column not in rows[chosen].column_names:
        raise LimbeckError(
            f"split {chosen!r} of {task.name} has no labels",
            "name another split, or add --predictions FILE to predict it",
        )
    return chosen


def wanted_kind(kind: tasks.TaskType, task: str | None) -> str | None:
    """The kind to read rows as: a known task has its own, which a text-to-text model may answer in words."""
    if task in tasks.TASKS:
        own = tasks.TASKS[task].kind
        return kind.name if kind is not own and kind.answers(own) else None
    return None if kind is tasks.SENTENCE else kind.name


def longest_of(model: PreTrainedModel, processor: tasks.Processor) -> int:
    """Tokens of a text with which a checkpoint is measured: for an embedding model its folder's, for others its
    tokenizer's, at most 512."""
    modules = modules_of(model.config)
    own = getattr(processor, "model_max_length", None) or LONGEST
    longest = (None if modules is None else modules.max_tokens) or min(own, LONGEST)
    return min(positions_of(model) or longest, longest)


def student_labelling(recipe: Recipe, student: str | Path) -> data.Labelling:
    """Classes in the order of the student's head, whatever became of its teacher."""
    alone = recipe.model_copy(update={"teacher": None, "teachers": None})
    return replace(labelling_of(alone), teacher=names_at(student))


def rows_of_run(
    recipe: Recipe, student: str | Path, asked: data.RowsAsked
) -> tuple[tasks.Task, DatasetDict, data.RowsAsked]:
    """The rows that are named, otherwise the rows that a run by the recipe was scored on.

    Args:
        student: the run's, whose head has the classes in its order.

    Returns:
        Their task and splits; and the settings in use, completed from the recipe.
    """
    own = asked.task in (None, recipe.task)
    # Rows of another file have labels of their own, and no teacher's.
    labelled = own and (asked.data is None or recipe.label_column != TEACHER_LABEL)
    wanted = replace(
        asked,
        task=asked.task or recipe.task,
        data=str(asked.data or recipe.data),
        text_columns=asked.text_columns or (recipe.text_columns if own else None),
        label_column=asked.label_column or (recipe.label_column if labelled else None),
    )
    given.refuse_absent_rows(str(wanted.data))
    # The split that the run drew from a single file of its own is drawn again the same way.
    drawn = own and asked.data is None
    task, splits = data.load_task(
        wanted.task,
        str(wanted.data),
        text_columns=wanted.text_columns,
        label_column=wanted.label_column,
        kind=recipe.kind if own or recipe.kind == "text" else None,
        labelling=student_labelling(recipe, student)
        if own
        else data.Labelling(teacher=names_at(student)),
        for_training=drawn,
        division=recipe.division if drawn else data.Division(),
    )
    return task, splits, wanted


def own_task(recipe: Recipe, student: str | Path) -> tasks.Task:
    """The task that the run was trained on, of a user's own file as the file has it."""
    if recipe.task in tasks.TASKS and not (recipe.text_columns or recipe.label_column):
        return tasks.as_kind(tasks.get_task(str(recipe.task)), recipe.kind)
    return rows_of_run(recipe, student, data.NOTHING_NAMED)[0]


# A model's shipped settings of how rows are read or scored; whether it has their classes, in their order.


def decided_by(task: tasks.Task, config: PretrainedConfig) -> tasks.Task:
    """The task as a model has it: with its prompts, and for several labels per row its thresholds, by default ½.

    Raises:
        LimbeckError: invalid thresholds.
    """
    task = replace(task, kind=task.kind.of_model(config))
    found: tasks.Task = task.kind.decided_by(task, config)
    return found


def class_names(task: tasks.Task, config: PretrainedConfig, *, side: str) -> list[Problem]:
    """Names that prove nothing about the order of the classes, as warnings.

    Raises:
        LimbeckError: another number of classes than the rows', or a class of theirs at another output.
    """
    found = preflight.model_checks.check_labels(side, config, task)
    raise_problems(preflight.errors_of(found))
    return found


def resolve_class_order(
    task: tasks.Task,
    unproven: Sequence[Problem],
    outputs: np.ndarray,
    labels: Sequence[Any],
    split: str,
    *,
    side: str,
) -> None:
    """Say what `class_names` could not prove, if the outputs are in the order of the rows' classes.

    Raises:
        LimbeckError: they fit another order much better.
    """
    if not unproven:
        return
    given = preflight.TeacherOutputs(outputs, labels, f"measured on {split}")
    raise_problems(preflight.score_checks.check_class_order(task, given, side=side))
    for problem in unproven:
        logger.warning("%s (%s)", problem.message, problem.fix)
