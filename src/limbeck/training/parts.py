"""Trainings that come before a training's own stages, or replace them: rankings, chains, the best of several.

Part of `limbeck.training`. The parts that a recipe needs, and their effects, are defined once, over a `Maker` that
trains a part to its end or finds it: a run makes a run of it in a folder of its own (`limbeck.run.several_teachers`), a
`DistillationTrainer` a trainer below its `output_dir` (`TrainerParts`).
"""

import copy
import gc
import json
import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from transformers import EarlyStoppingCallback, PreTrainedModel, TrainingArguments

from limbeck.recipe import Recipe, Stage
from limbeck.support import files, machine
from limbeck.support.errors import LimbeckError, Problem, collecting, raise_problems
from limbeck.tasks import TaskType
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import (
    RANKINGS,
    ChainSpec,
    Team,
    by_capacity,
    chain_links,
    has_ties,
    shares,
)
from limbeck.training import assistant_start, callbacks, checkpoints, feeding, method, objectives
from limbeck.training.step import TakesSteps

log = logging.getLogger(__name__)

Made = TypeVar("Made")
"""A part that has been trained, as its maker has it."""


@dataclass(frozen=True)
class Part(Generic[Made]):
    """A training that another one needs first.

    Attributes:
        name: its folder: students/NAME, assistants/01-NAME, tries/BY.
        recipe: the recipe that it trains.
        teacher: the teacher it learns from: the index of one, or a part; None for all of them.
        assistant: the index of the teacher whose model is trained; None for the student.
        epochs: its own, where it has some.
    """

    name: str
    recipe: Recipe
    teacher: int | Made | None = None
    assistant: int | None = None
    epochs: float | None = None


class Maker(ABC, Generic[Made]):
    """Trains parts, and scores their students.

    Attributes:
        names: the teachers' names.
    """

    names: Sequence[str]

    @abstractmethod
    def make(self, part: Part[Made]) -> Made:
        """Train a part to its end, resume it, or find it finished."""

    @abstractmethod
    def score(self, made: Made) -> float | None:
        """The dev score of a part's student, the higher the better; None if unknown."""

    @abstractmethod
    def score_of_teacher(self, place: int) -> float | None:
        """The dev score of one of the teachers, the higher the better; None if unknown."""

    def folder_name(self, place: int) -> str:
        """A teacher's name as a folder name."""
        return self.names[place].replace("/", "-")


def ranked(
    recipe: Recipe, by: str | list[float], maker: Maker[Made]
) -> tuple[list[float], list[float | None], list[Made]]:
    """Shares by the rank of the teachers' scores, or of their students' scores (SKDBERT, Eq. 2).

    Returns:
        The shares, and by which scores and which students they came about.
    """
    made: list[Made] = []
    if by == "student-rank":
        epochs = getattr(recipe.team, "student_epochs", None)
        for place in range(len(maker.names)):
            name = f"students/{maker.folder_name(place)}"
            made.append(maker.make(Part(name, recipe, place, epochs=epochs)))
        scores = [maker.score(one) for one in made]
    else:
        scores = [maker.score_of_teacher(place) for place in range(len(maker.names))]
    return shares(by, scores, len(scores)).tolist(), scores, made


def chained(recipe: Recipe, order: Sequence[int], maker: Maker[Made]) -> list[Made]:
    """From the largest teacher down, each distilled by the one before; the last one teaches (TAKD)."""
    # A first stage is the student's own; joined, its terms are everyone's.
    own = recipe if recipe.joint else recipe.model_copy(update={"first_stage": None})
    made: list[Made] = []
    for number, place in enumerate(order[1:], start=1):
        name = f"assistants/{number:02}-{maker.folder_name(place)}"
        made.append(maker.make(Part(name, own, made[-1] if made else order[0], place)))
    return made


def best_of(recipe: Recipe, maker: Maker[Made]) -> tuple[int, list[Made]]:
    """A training with each ranking, and the place of the best by its dev score (SKDBERT, Figure 2)."""
    team, made = recipe.team, []
    assert team is not None
    for by in RANKINGS:
        own: dict[str, Any] = {"by": by}
        if by != "student-rank":
            own |= {"student_runs": None, "student_epochs": None}
        tried = recipe.model_copy(update={"team": team.model_copy(update=own)})
        made.append(maker.make(Part(f"tries/{by}", tried)))
    scores = [maker.score(one) or 0.0 for one in made]
    return scores.index(max(scores)), made


# How a trainer's parts resume after a stop: their checkpoints record the progress and the owner of each.

IDENTITY = "limbeck_run.json"
"""In `output_dir`: which call of `train` its parts and checkpoints are of."""


@dataclass(frozen=True)
class Course:
    """One call of `train`, with all its parts.

    Attributes:
        identity: what its checkpoints carry: nothing that an earlier call left is taken for this one's.
        fresh: nothing is there yet.
        parts_are_done: the trainer's own stage is continued, so every part has finished.
        at: a checkpoint of a part that is to be continued from, if one was named.
    """

    identity: str
    fresh: bool = True
    parts_are_done: bool = False
    at: Path | None = None

    @classmethod
    def begin(cls, folder: Path, *, write: bool) -> "Course":
        """A new one; its identity is written where later calls look, if checkpoints are kept."""
        course = cls(machine.agreed(uuid.uuid4().hex))
        if write:
            folder.mkdir(parents=True, exist_ok=True)
            files.write_whole(folder / IDENTITY, json.dumps({"run": course.identity}))
        return course

    @classmethod
    def resume(cls, folder: Path, checkpoint: str | Path | bool) -> "tuple[Course, Path | None]":
        """The one that a folder holds, and the checkpoint of the trainer's own stage, if it got there.

        Args:
            folder: the trainer's `output_dir`.
            checkpoint: a checkpoint of the trainer or of one of its parts; True for the newest.

        Raises:
            LimbeckError: there is no checkpoint to resume from, or it is of another type.
        """
        if checkpoint is True:
            try:
                identity = json.loads((folder / IDENTITY).read_text(encoding="utf-8"))["run"]
            except (OSError, ValueError, KeyError, TypeError):
                raise LimbeckError(
                    f"resume_from_checkpoint: {folder} holds no training to resume",
                    "name a checkpoint, or leave resume_from_checkpoint out to begin",
                ) from None
            own = machine.agreed(checkpoints.last_whole(folder, run=identity))
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

    def checkpoint_in(self, folder: Path) -> Path | None:
        """The checkpoint from which a part resumes; every process has to call it.

        Raises:
            LimbeckError: the part has not finished, where it has to.
        """
        if self.fresh:
            return None
        if self.at is not None and self.at.parent == folder.resolve():
            return self.at
        found = machine.agreed(checkpoints.last_whole(folder, run=self.identity))
        if self.parts_are_done and (found is None or not checkpoints.is_last(found)):
            raise LimbeckError(
                f"resume_from_checkpoint: {folder} does not contain the parts trained before the checkpoint",
                "put the folder back, or train from the beginning",
            )
        return found


FIRST = "first_stage"
"""The part that the student itself goes through."""


@dataclass(frozen=True)
class FinishedPart:
    """A part that has finished.

    Attributes:
        name: its folder, below `output_dir`: first_stage, students/NAME, assistants/01-NAME, tries/BY.
        student: what came out.
        log_history: as the Trainer's state has it.
        epochs: an entry an epoch: means of the terms, layers, seconds.
        metrics: of its student on the evaluation data, if it was scored.
        assistant: the place of the teacher whose model it trained, if it did.
    """

    name: str
    student: PreTrainedModel
    log_history: list[dict[str, Any]]
    epochs: list[dict[str, Any]]
    metrics: dict[str, float]
    assistant: int | None = None

    @property
    def of_student(self) -> bool:
        """Whether it trained the very student that continues."""
        return self.name == FIRST


class MethodPlan:
    """The parts that a recipe trains in addition to the terms of its last stage.

    Args:
        recipe: the complete one.
        given: its teachers, as the user passes them.
        first: the first stage's objects from the user: teacher, rows, collator.
    """

    def __init__(self, recipe: Recipe, given: Any, first: Mapping[str, Any]) -> None:
        self.recipe = recipe
        self.teacher, self.members, self.names = method.teaching(recipe, given)
        self.first = first
        *before, last = recipe.stages()
        self.first_stage: Stage | None = before[0] if before else None
        self.last = last.recipe
        by = getattr(recipe.team, "by", None)
        # The shares of a team that the user has formed are known.
        self.ranking: str | None = (
            by if by in method.RANKED and not isinstance(given, Team) else None
        )
        self.chained = isinstance(recipe.team, ChainSpec) and len(self.members) > 1
        own = first.get("teacher")
        self.first_teacher = Teacher(own) if isinstance(own, PreTrainedModel) else own

    @property
    def staged(self) -> bool:
        """Whether anything is trained or scored in addition to the last stage."""
        return self.first_stage is not None or self.ranking is not None or self.chained

    @property
    def best_of(self) -> bool:
        """Whether complete trainings replace the trainer's own, and the best one is kept."""
        return self.ranking == "best-of"

    def check(self, student: PreTrainedModel, trainer: TakesSteps) -> None:
        """Look for everything that would end the training after hours of it.

        Raises:
            LimbeckError: terms that do not fit the models, or scores that cannot be computed.
        """
        problems: list[Problem] = []
        if self.first_stage is not None:
            teacher = self.first_teacher or self.teacher
            rows = self.first.get("train_dataset", trainer.train_dataset)
            loss = self.first_stage.recipe.loss
            for one in _unbuildable(student, teacher, loss, feeding.numbered(rows)):
                own = one.message.startswith(("objectives", "curriculum"))
                said = f"{FIRST}{'.' if own else ': '}{one.message}"
                problems.append(replace(one, message=said))
        for first, second in chain_links(self.members) if self.chained else ():
            large, small = self.members[first], self.members[second]
            rows = feeding.numbered(trainer.train_dataset)
            problems += _unbuildable(small.model, large, self.last.loss, rows)
        if self.ranking is not None:
            problems += unscorable(trainer, self.members, self.ranking)
        raise_problems(problems)

    def refuse_labels_alone(self, kind: TaskType) -> None:
        """Before a training: terms of labels teach nothing where the task type has no labels.

        Raises:
            LimbeckError: a stage has no other terms.
        """
        without = [name for name, now in kind.becomes.items() if now is None]
        for stage in self.recipe.stages():
            terms = stage.recipe.objectives.values()
            if terms and all(term.compare in without for term in terms):
                raise LimbeckError(
                    f"objectives: method {self.recipe.method} learns from labels alone, and kind {kind.name} has "
                    "no labels",
                    "take a method that learns from a teacher: limbeck methods",
                )


class TrainerParts(Maker[FinishedPart]):
    """Parts of a `DistillationTrainer`, each by a trainer of its own with the user's data, metrics and callbacks."""

    def __init__(self, trainer: Any, plan: MethodPlan, course: Course) -> None:
        self.trainer, self.plan, self.course = trainer, plan, course
        self.names, self.members = plan.names, plan.members

    def before(self) -> list[FinishedPart]:
        """Train everything that comes before the trainer's own stage; teachers and student are ready then."""
        plan, trainer = self.plan, self.trainer
        parts: list[FinishedPart] = []
        if plan.ranking is not None:
            counts, _, made = ranked(plan.recipe, plan.ranking, self)
            parts += made
            assert plan.teacher is not None  # several are ranked
            trainer.teacher = plan.teacher.weighed(counts)
        if plan.chained:
            scores = None
            if has_ties(self.members) and not unscorable(trainer, self.members, "chain"):
                scores = [self.score_of_teacher(place) for place in range(len(self.members))]
            order = by_capacity(self.members, scores)
            parts += chained(plan.recipe, order, self)
            trainer.teacher = self._teacher_of(parts[-1]).to(trainer.args.device)
        if plan.first_stage is not None and not self.course.parts_are_done:
            parts.append(self.first_stage(plan.first_stage.recipe))
        return parts

    def first_stage(self, stage: Recipe) -> FinishedPart:
        """Train the student through its first stage."""
        first, optimisation = self.plan.recipe.first_stage, self.trainer.optimisation
        assert first is not None
        if first.lr_schedule is not None:
            optimisation = replace(optimisation, milestones=stage.milestones)
        changes = {key: value for key, value in self.plan.first.items() if key != "teacher"}
        # No epoch is scored, so none can be the one to stop at.
        changes["callbacks"] = [
            callback
            for callback in callbacks.users_callbacks(self.trainer)
            if not isinstance(callback, EarlyStoppingCallback)
        ]
        return self._trained(
            FIRST,
            self.trainer.student,
            self.plan.first_teacher or self.trainer.teacher,
            args=method.first_stage_arguments(self.plan.recipe, self.trainer.args),
            method=stage.model_copy(update={"team": None, "teachers": None}),
            optimisation=optimisation,
            **changes,
        )

    def make(self, part: Part[FinishedPart]) -> FinishedPart:
        """As a trainer of its own."""
        recipe, args = part.recipe, copy.copy(self.trainer.args)
        teacher: Any = part.teacher
        if teacher is None:
            teacher = dict(zip(self.names, self.members, strict=True))
        else:
            teacher = (
                self.members[teacher] if isinstance(teacher, int) else self._teacher_of(teacher)
            )
            recipe = recipe.model_copy(update={"team": None, "teachers": None})
        if part.epochs is not None:
            args.num_train_epochs = part.epochs
        if part.assistant is not None:
            student = self._pretrained(part.assistant)
            made = self._trained(part.name, student, teacher, args=args, method=recipe)
            return replace(made, assistant=part.assistant)
        student, own = copy.deepcopy(self.trainer.student), {"first_stage": self.plan.first}
        return self._trained(
            part.name, student, teacher, args=args, scored=True, method=recipe, **own
        )

    def _teacher_of(self, made: FinishedPart) -> Teacher:
        """An assistant as a teacher, which reads the same inputs as the teacher that it replaces."""
        assert made.assistant is not None
        teacher = Teacher(made.student, dropout=self.plan.recipe.teacher_dropout)
        teacher.inputs = self.members[made.assistant].inputs
        return teacher

    def _pretrained(self, place: int) -> PreTrainedModel:
        """A teacher's model with its pretrained weights, to be distilled."""
        model = self.members[place].model
        if machine.is_spread(model):
            raise LimbeckError(
                f"teacher {self.names[place]}: its parts are on several devices, and an assistant would start from it",
                "load the teachers of a chain without device_map",
            )
        started = assistant_start.pretrained_start(model, seed=self.trainer.args.seed)
        if started is None:
            log.warning(
                "assistant %s starts from its given weights: it is unknown which pretrained checkpoint "
                "they were fine-tuned from. Load it from its run's folder, or fine-tune it in the process that loaded "
                "the pretrained checkpoint",
                self.names[place],
            )
            started = copy.deepcopy(model)
        return started.requires_grad_(True)

    def _trained(
        self,
        name: str,
        student: PreTrainedModel,
        teacher: Any,
        *,
        args: TrainingArguments,
        scored: bool = False,
        **changes: Any,
    ) -> FinishedPart:
        """Train one part to its end, resume it, or find it finished.

        Args:
            name: of its folder.
            student: the model to train, in place.
            teacher: the teacher it learns from.
            args: its own, except for the folder.
            scored: evaluate the student that comes out.
            changes: to what `DistillationTrainer` and its configuration are given.
        """
        folder = self.trainer.folder / name
        checkpoint = self.course.checkpoint_in(folder)
        own = copy.copy(args)
        own.output_dir = str(folder)
        own.push_to_hub = False
        part = self.trainer.for_part(student, teacher, own, self.course, **changes)
        part.start_or_continue(checkpoint)
        metrics = part.evaluate() if scored else {}
        # Its entries are stored separately from the entries of the trainer's own stage.
        history = [
            entry | {"part": f"{name}/{entry['part']}" if "part" in entry else name}
            for entry in part.state.log_history
        ]
        found = FinishedPart(name, student, history, part.progress.epochs, metrics)
        del part
        gc.collect()
        return found

    def score(self, made: FinishedPart) -> float:
        """By `metric_for_best_model`, or the loss."""
        return score(made.metrics, self.trainer.args)

    def score_of_teacher(self, place: int) -> float:
        """On the evaluation data, as the student is scored."""
        trainer, member = self.trainer, self.members[place]
        args = method.unscored(trainer.args)
        args.output_dir = str(trainer.folder / "teachers")
        args.report_to = []
        frozen = [weight.requires_grad for weight in member.model.parameters()]
        hard = {"hard": {"compare": "hard_label"}}
        changes: dict[str, Any] = {"objectives": hard, "callbacks": []}
        if member.inputs is not None:
            changes["data_collator"] = lambda rows: dict(
                member.as_read(trainer.data_collator(rows))
            )
        part = trainer.for_part(member.model, None, args, None, **changes)
        found = score(part.evaluate(), trainer.args)
        for weight, before in zip(member.model.parameters(), frozen, strict=True):
            weight.requires_grad_(before)
        return found


def _unbuildable(*of: Any) -> list[Problem]:
    """Why the terms of a student, a teacher, a loss and rows cannot be built."""
    problems: list[Problem] = []
    with collecting(problems), torch.random.fork_rng(devices=[]):
        objectives.objectives_for(*of)
    return problems


def score(metrics: Mapping[str, float], args: TrainingArguments) -> float:
    """By `metric_for_best_model`, or the loss; the higher the better.

    Raises:
        LimbeckError: it was not computed.
    """
    name = args.metric_for_best_model or "loss"
    key = name if name.startswith("eval_") else f"eval_{name}"
    if key not in metrics:
        raise LimbeckError(
            f"args.metric_for_best_model: {name} is not among the scores "
            f"({', '.join(found.removeprefix('eval_') for found in metrics)})",
            "name one that compute_metrics returns",
        )
    higher = args.greater_is_better if args.metric_for_best_model else False
    return metrics[key] if higher else -metrics[key]


def unscorable(trainer: TakesSteps, members: Sequence[Teacher], by: str) -> list[Problem]:
    """Why teachers cannot be ranked by their scores, before any of them is."""
    own = [
        member.own_tokens is not None or (member.inputs is not None and bool(member.inputs.own))
        for member in members
    ]
    fix = "set the shares: Recipe.load(METHOD, **{'team.by': [3, 2, 1]})"
    if trainer.eval_dataset is None:
        said = "ranks by scores, and there is nothing to score on"
        fix = f"pass eval_dataset=, or {fix}"
    elif by != "student-rank" and any(own):
        said = "scores teachers on the student's tokens, and one reads its own"
    elif isinstance(trainer.eval_dataset, dict) and not trainer.args.metric_for_best_model:
        said = "ranks by one score, and there are several evaluation sets"
        fix = "name it: TrainingArguments(metric_for_best_model=…)"
    else:
        return []
    return [Problem(f"team.by: {by} {said}", fix)]
