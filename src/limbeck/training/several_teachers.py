"""A method of several parts, as one training: what comes before a trainer's own stage, or in its place.

Part of `limbeck.training`. In the order of a run: teachers are ranked or chained, then the student goes
through the first stage, then the trainer trains its own. Each part is trained by a `DistillationTrainer`
with the user's data, collator, metrics and callbacks.
"""

from __future__ import annotations

import copy
import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from transformers import EarlyStoppingCallback, PreTrainedModel, TrainingArguments

from limbeck.recipe import Recipe, Stage
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import TaskType
from limbeck.teachers import (
    RANKINGS,
    ChainSpec,
    Team,
    by_capacity,
    chain_links,
    has_ties,
    shares,
)
from limbeck.teachers.teacher import Teacher
from limbeck.training.assistant_start import pretrained_start
from limbeck.training.callbacks import users_callbacks
from limbeck.training.course import FIRST, Course, Part
from limbeck.training.feeding import numbered
from limbeck.training.method import Teaching, first_stage_arguments, ranking, unscored
from limbeck.training.objectives import objectives_for
from limbeck.training.running_trainer import StagedTrainer

log = logging.getLogger(__name__)


class MethodPlan:
    """What a recipe trains besides the terms of its last stage.

    Args:
        recipe: the whole one.
        who: who teaches it.
        first: of the first stage what the user gives as objects: teacher, rows, collator.
    """

    def __init__(self, recipe: Recipe, who: Teaching, first: Mapping[str, Any]) -> None:
        self.recipe = recipe
        self.who = who
        self.first = first
        *before, last = recipe.stages()
        self.first_stage: Stage | None = before[0] if before else None
        self.last = last.recipe
        self.ranking = ranking(recipe, who)
        self.chained = isinstance(recipe.team, ChainSpec) and len(who.members) > 1
        given = first.get("teacher")
        self.first_teacher = Teacher(given) if isinstance(given, PreTrainedModel) else given

    @property
    def staged(self) -> bool:
        """Whether anything is trained or scored besides the last stage."""
        return self.first_stage is not None or self.ranking is not None or self.chained

    @property
    def best_of(self) -> bool:
        """Whether whole trainings take the place of the trainer's own, and the best one is kept."""
        return self.ranking == "best-of"

    # ---- before any work ----

    def check(self, student: PreTrainedModel, trainer: StagedTrainer) -> None:
        """Look for everything that would end the training after hours of it.

        Raises:
            LimbeckError: terms that do not fit the models, or scores that nobody can compute.
        """
        problems: list[Problem] = []
        if self.first_stage is not None:
            teacher = self.first_teacher or self.who.teacher
            own = self.first_stage.recipe
            rows = self.first.get("train_dataset", trainer.train_dataset)
            problems += [
                _in_first_stage(problem)
                for problem in _unbuildable(partial(self._terms, student, teacher, own, rows))
            ]
        if self.chained:
            for first, second in chain_links(self.who.members):
                large, small = self.who.members[first], self.who.members[second]
                terms = partial(self._terms, small.model, large, self.last, trainer.train_dataset)
                problems += _unbuildable(terms)
        if self.ranking is not None:
            problems += unscorable(trainer, self.who.members, self.ranking)
        if problems:
            raise LimbeckError(problems)

    def refuse_labels_alone(self, kind: TaskType) -> None:
        """Before a training: terms of labels teach nothing where the task type has no labels.

        Raises:
            LimbeckError: a stage has no other terms.
        """
        stages = [self.last] if self.first_stage is None else [self.first_stage.recipe, self.last]
        without = [name for name, now in kind.becomes.items() if now is None]
        if any(
            stage.objectives and all(term.compare in without for term in stage.objectives.values())
            for stage in stages
        ):
            raise LimbeckError(
                f"objectives: method {self.recipe.method} learns from labels alone, and kind {kind.name} has none",
                "take a method that learns from a teacher: limbeck methods",
            )

    @staticmethod
    def _terms(
        student: PreTrainedModel, teacher: Teacher | Team | None, recipe: Recipe, rows: Any
    ) -> None:
        objectives_for(student, teacher, recipe.loss, numbered(rows))

    # ---- the training ----

    def before(self, trainer: StagedTrainer, course: Course) -> list[Part]:
        """Train everything that comes before the trainer's own stage; teachers and student are ready then."""
        parts = []
        if self.ranking is not None:
            parts += self._rank(trainer, course)
        if self.chained:
            parts += self._chain(trainer, course)
        if self.first_stage is not None and not course.parts_are_done:
            parts.append(self._first(trainer, course))
        return parts

    def _first(self, trainer: StagedTrainer, course: Course) -> Part:
        assert self.first_stage is not None
        stage, first = self.first_stage.recipe, self.recipe.first_stage
        assert first is not None
        optimisation = trainer.optimisation
        if first.lr_schedule is not None:
            optimisation = replace(optimisation, milestones=stage.milestones, decay=stage.decay)
        changes = {key: value for key, value in self.first.items() if key != "teacher"}
        # No epoch is scored, so none can be the one to stop at.
        changes["callbacks"] = [
            callback
            for callback in users_callbacks(trainer)
            if not isinstance(callback, EarlyStoppingCallback)
        ]
        return train_part(
            trainer,
            course,
            FIRST,
            trainer.student,
            args=first_stage_arguments(self.recipe, trainer.args),
            teacher=self.first_teacher or trainer.teacher,
            method=stage.model_copy(update={"team": None, "teachers": None}),
            optimisation=optimisation,
            **changes,
        )

    def _rank(self, trainer: StagedTrainer, course: Course) -> list[Part]:
        """Shares by the scores of the teachers, or of a student distilled from each alone."""
        parts: list[Part] = []
        if self.ranking == "student-rank":
            team = self.recipe.team
            args = copy.copy(trainer.args)
            if (epochs := getattr(team, "student_epochs", None)) is not None:
                args.num_train_epochs = epochs
            alone = self.recipe.model_copy(update={"team": None, "teachers": None})
            for name, member in zip(self.who.names, self.who.members, strict=True):
                part = train_part(
                    trainer,
                    course,
                    f"students/{name.replace('/', '-')}",
                    copy.deepcopy(trainer.student),
                    args=args,
                    teacher=member,
                    method=alone,
                    first_stage=self.first,
                    scored=True,
                )
                parts.append(part)
            scores = [score(part.metrics, trainer.args) for part in parts]
        else:
            scores = [score_of_teacher(trainer, member) for member in self.who.members]
        by = str(self.ranking)
        assert self.who.teacher is not None  # several are ranked
        trainer.teacher = self.who.teacher.weighed(shares(by, scores, len(scores)).tolist())
        return parts

    def _chain(self, trainer: StagedTrainer, course: Course) -> list[Part]:
        """From the largest teacher down, each distilled by the one before; the last one teaches.

        Of several teachers of one size the one with the best score is first; without scores, the first given.
        """
        members, scores = self.who.members, None
        if has_ties(members) and not unscorable(trainer, members, "chain"):
            scores = [score_of_teacher(trainer, member) for member in members]
        order = by_capacity(members, scores)
        teacher, parts = self.who.members[order[0]], []
        update: dict[str, Any] = {"team": None, "teachers": None}
        if (
            not self.recipe.joint
        ):  # a first stage is the student's own; joined, its terms are everyone's
            update["first_stage"] = None
        alone = self.recipe.model_copy(update=update)
        for number, place in enumerate(order[1:], start=1):
            assistant = self._assistant(place, trainer.args.seed)
            name = f"assistants/{number:02}-{self.who.names[place].replace('/', '-')}"
            args = trainer.args
            part = train_part(
                trainer, course, name, assistant, args=args, teacher=teacher, method=alone
            )
            parts.append(part)
            teacher = Teacher(assistant, dropout=self.recipe.teacher_dropout)
            teacher.inputs = self.who.members[place].inputs
        trainer.teacher = teacher.to(trainer.args.device)
        return parts

    def _assistant(self, place: int, seed: int) -> PreTrainedModel:
        """A teacher's model with its pretrained weights, to be distilled."""
        model = self.who.members[place].model
        started = pretrained_start(model, seed=seed)
        if started is None:
            log.warning(
                "assistant %s starts from the weights that it was given with: nothing says which pretrained checkpoint "
                "they were fine-tuned from. Load it from its run's folder, or fine-tune it in the process that loaded "
                "the pretrained checkpoint",
                self.who.names[place],
            )
            started = copy.deepcopy(model)
        return started.requires_grad_(True)

    def best(self, trainer: StagedTrainer, course: Course) -> tuple[Part, list[Part]]:
        """A training with each ranking; the best one's weights are the student's (SKDBERT, Figure 2)."""
        start = copy.deepcopy(trainer.student)
        parts, students = [], []
        for by in RANKINGS:
            own: dict[str, Any] = {"by": by}
            if by != "student-rank":
                own |= {"student_runs": None, "student_epochs": None}
            team = self.recipe.team
            assert team is not None
            recipe = self.recipe.model_copy(update={"team": team.model_copy(update=own)})
            students.append(copy.deepcopy(start))
            parts.append(
                train_part(
                    trainer,
                    course,
                    f"tries/{by}",
                    students[-1],
                    args=trainer.args,
                    teacher=dict(zip(self.who.names, self.who.members, strict=True)),
                    method=recipe,
                    first_stage=self.first,
                    scored=True,
                )
            )
        scores = [score(part.metrics, trainer.args) for part in parts]
        place = scores.index(max(scores))
        trainer.student.load_state_dict(students[place].state_dict())
        return parts[place], parts


def train_part(
    trainer: StagedTrainer,
    course: Course,
    name: str,
    student: PreTrainedModel,
    *,
    teacher: Teacher | Team | Mapping[str, Teacher] | None,
    args: TrainingArguments,
    scored: bool = False,
    **changes: Any,
) -> Part:
    """Train one part to its end, go on with it, or find it finished.

    Args:
        trainer: whose data, collator, metrics and callbacks are used, unless `changes` has others.
        name: of its folder.
        student: whom it trains, in place.
        teacher: whom it learns from.
        args: its own, but for the folder.
        scored: evaluate the student that comes out.
        changes: to what `DistillationTrainer` and its configuration are given.
    """
    folder = trainer.folder / name
    done = course.finished(folder, name, student)
    if done is not None:
        return done
    own = copy.copy(args)
    own.output_dir = str(folder)
    own.push_to_hub = False
    part = trainer.for_part(student, teacher, own, course, **changes)
    part.start_or_continue(course.checkpoint_in(folder))
    metrics = part.evaluate() if scored else {}
    # Its entries are kept apart from those of the trainer's own stage.
    history = [
        entry | {"part": f"{name}/{entry['part']}" if "part" in entry else name}
        for entry in part.state.log_history
    ]
    found = Part(name, history, part.progress.epochs, metrics)
    keeps = own.save_strategy != "no"
    course.finish(folder, found, student, write=keeps and own.should_save)
    del part
    gc.collect()
    return found


def _unbuildable(build: Callable[[], None]) -> list[Problem]:
    try:
        with torch.random.fork_rng(devices=[]):
            build()
    except LimbeckError as error:
        return list(error.problems)
    return []


def _in_first_stage(problem: Problem) -> Problem:
    own = problem.message.startswith(("objectives", "curriculum"))
    return replace(problem, message=f"{FIRST}{'.' if own else ': '}{problem.message}")


# What decides between teachers, and between whole trainings: one score, the higher the better.


def score_of_teacher(trainer: StagedTrainer, member: Teacher) -> float:
    """On the evaluation data, as the student is scored."""
    args = unscored(trainer.args)
    args.output_dir = str(trainer.folder / "teachers")
    args.report_to = []
    frozen = [weight.requires_grad for weight in member.model.parameters()]
    hard = {"hard": {"compare": "hard_label"}}
    changes: dict[str, Any] = {"objectives": hard, "callbacks": []}
    if member.inputs is not None:
        changes["data_collator"] = lambda rows: dict(member.as_read(trainer.data_collator(rows)))
    part = trainer.for_part(member.model, None, args, None, **changes)
    found = score(part.evaluate(), trainer.args)
    for weight, before in zip(member.model.parameters(), frozen, strict=True):
        weight.requires_grad_(before)
    return found


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


def unscorable(trainer: StagedTrainer, members: Sequence[Teacher], by: str) -> list[Problem]:
    """Why teachers cannot be ranked by their scores, before any of them is."""
    if trainer.eval_dataset is None:
        return [
            Problem(
                f"team.by: {by} ranks by scores, and there is nothing to score on",
                "pass eval_dataset=, or say the shares: "
                "Recipe.load(METHOD, **{'team.by': [3, 2, 1]})",
            )
        ]
    if by != "student-rank" and any(_reads_otherwise(member) for member in members):
        return [
            Problem(
                f"team.by: {by} scores teachers on the student's tokens, and one reads its own",
                "say the shares: Recipe.load(METHOD, **{'team.by': [3, 2, 1]})",
            )
        ]
    if isinstance(trainer.eval_dataset, dict) and not trainer.args.metric_for_best_model:
        return [
            Problem(
                f"team.by: {by} ranks by one score, and there are several evaluation sets",
                "name it: TrainingArguments(metric_for_best_model=…)",
            )
        ]
    return []


def _reads_otherwise(member: Teacher) -> bool:
    columns = member.inputs is not None and bool(member.inputs.own)
    return columns or member.own_tokens is not None
