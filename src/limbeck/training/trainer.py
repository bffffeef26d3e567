"""`DistillationTrainer`: `transformers.Trainer` with a teacher.

It captures what the objectives need, and weighs and adds their terms. The loop, logging, mixed
precision and multi-process training are the Trainer's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import PreTrainedModel, TrainingArguments
from transformers.trainer_utils import has_length

from limbeck.students.execution import give_attention, warn_of_emulated_bf16
from limbeck.support.errors import LimbeckError
from limbeck.tasks import task_type_of
from limbeck.teachers import Bandit, Team, members_of
from limbeck.teachers.teacher import Teacher
from limbeck.training import checkpoints
from limbeck.training.adaptive import LearnWhomToSample, hold_out
from limbeck.training.arguments import (
    keyword_problems,
    label_problems,
    said_elsewhere,
    setting_problems,
    sharded,
    value_problems,
)
from limbeck.training.callbacks import (
    EarlierEntries,
    EpochEntries,
    stop_if_not_finite,
    users_callbacks,
)
from limbeck.training.config import DistillationConfig, MethodSettings
from limbeck.training.distiller import Distiller
from limbeck.training.feeding import numbered
from limbeck.training.method import kind_of, learns_whom_to_sample, teaching, with_first_stage
from limbeck.training.objectives import (
    check_terms,
    foreign_optimizer,
    objectives_for,
    pair_problems,
    terms_of,
    warn_of_lost_segments,
)
from limbeck.training.optimizer import unseen_maps
from limbeck.training.parts import TrainsParts
from limbeck.training.progress import Progress
from limbeck.training.several_teachers import MethodPlan


class DistillationTrainer(TrainsParts):
    """A drop-in for `transformers.Trainer` that also takes a teacher and a method.

    `train` trains the whole method. What comes before its last stage, or beside it, is trained first by
    trainers of its own, with the same data, collator, metrics and callbacks, in folders below
    `args.output_dir`: `first_stage`, `students/NAME` (to rank teachers by), `assistants/01-NAME` (a chain),
    `tries/BY` (the best of three). `train(resume_from_checkpoint=True)` goes on in whichever part a training
    was stopped.

    Args:
        model: the student, any `PreTrainedModel` with a head of one of `limbeck.tasks`.
        teacher: the model to learn from; several of them as a list, as a dict by name, or as a
            `limbeck.teachers.Team`; None for plain fine-tuning.
        args: a `DistillationConfig`: the method, and the Trainer's arguments of the last stage; of the others
            too, where the method or its `first_stage` says nothing else. Plain `TrainingArguments` train
            method kd. Every setting does what it says or is refused.
        data_collator: as for `Trainer`.
        train_dataset: as for `Trainer`.
        eval_dataset: as for `Trainer`.
        processing_class: as for `Trainer`.
        compute_metrics: as for `Trainer`.
        callbacks: as for `Trainer`.
        first_stage: what a first stage has for itself and a configuration cannot hold: its own `teacher`,
            `train_dataset`, `data_collator`.
        holdout: rows on which a team that learns whom to sample sees its progress; by default some of
            the training rows, which are not trained on then.
        **kwargs: as for `Trainer`, `model_init` among them.

    `trainer.student` is the student; `save_model` writes it by `save_pretrained`. Checkpoints also
    hold the learned parts of the objectives. `trainer.parts` are the parts that have been trained.

    Raises:
        LimbeckError: the method does not fit the models, or a setting would not do what it says.
    """

    def __init__(
        self,
        model: PreTrainedModel | None = None,
        teacher: Any = None,
        args: TrainingArguments | None = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        compute_metrics: Callable[..., dict[str, float]] | None = None,
        callbacks: list[Any] | None = None,
        *,
        first_stage: Mapping[str, Any] | None = None,
        holdout: Dataset | None = None,
        **kwargs: Any,
    ) -> None:
        known = {*inspect.signature(DistillationTrainer.__init__).parameters, *kwargs}
        self._subclass_takes = {k: v for k, v in self._given.items() if k not in known}
        args = DistillationConfig("tmp_trainer") if args is None else args
        if problems := said_elsewhere(kwargs, first_stage):
            raise LimbeckError(problems)
        self._plan(args, model, teacher, first_stage or {})
        problems = setting_problems(args) + keyword_problems(kwargs, staged=self.plan.staged)
        problems += value_problems(args, callbacks or ())
        if problems:
            raise LimbeckError(problems)
        train_dataset, holdout = self._rows_to_train(args, train_dataset, holdout)
        args = self._for_rows(args, train_dataset, model)
        kwargs |= {
            "data_collator": data_collator,
            "train_dataset": train_dataset,
            "eval_dataset": eval_dataset,
            "processing_class": processing_class,
            "compute_metrics": compute_metrics,
            "callbacks": callbacks,
        } | self._optimizer_of(args, kwargs)
        self._seed = args.seed
        distiller = None if model is None else self._distil(model)
        super().__init__(cast(Any, distiller), args, **kwargs)
        self._refuse_what_does_not_fit()
        self._as_the_terms_need()
        self._add_callbacks(callbacks, holdout)
        self._ready_teacher()
        warn_of_emulated_bf16("bf16" if args.bf16 else "fp32")
        self.begin_counting()
        self.plan.check(self.student, self)

    # ---- how it is made ----

    def _plan(self, args: TrainingArguments, model: Any, teacher: Any, first: Any) -> None:
        """What is to be trained, and by whom."""
        own = self.own = MethodSettings.of(args)
        settings = cast(dict[str, Any], own.first_stage or {})
        recipe = with_first_stage(own.recipe(kind_of(model)), {**settings, **first})
        recipe = recipe.model_copy(update={"seed": args.seed})
        who = teaching(recipe, teacher)
        self.plan = MethodPlan(recipe, who, first)
        self.transform = self.plan.last.transform
        self.padded_width = self.plan.last.padded_width
        self.teacher: Teacher | Team | None = who.teacher
        self.optimisation = own.how_to_optimise()
        self.group_by_length = own.group_by_length
        self.may_group = self.plan.last.groups_by_length
        self.labelled_share = own.labelled_share
        self.candidates = own.candidates
        self.progress = Progress()

    def _rows_to_train(
        self, args: TrainingArguments, rows: Any, holdout: Dataset | None
    ) -> tuple[Any, Dataset | None]:
        """The training rows, numbered where somebody finds them by number, and those held out."""
        recipe = self.plan.recipe
        if learns_whom_to_sample(recipe) and holdout is None:
            holdout, rows = hold_out(rows, getattr(recipe.team, "holdout", None), args.seed)
        found = any(term.needs_index for term in self.plan.last.objectives.values())
        if found or self.own.cache_teacher_outputs != "off":
            rows = numbered(rows)
        self._examples = rows
        return rows, holdout

    def _for_rows(
        self, args: TrainingArguments, rows: Any, student: PreTrainedModel | None
    ) -> TrainingArguments:
        """The arguments with epochs and rate for these rows and this student, where nobody set them."""
        if not isinstance(args, DistillationConfig):
            return args
        kind = kind_of(student)
        if student is None or not has_length(rows):
            return args.for_rows(0, None, 1.0)
        models = [student, *(member.model for member in self.plan.who.members)]
        own, *teachers = (getattr(model.config, "num_hidden_layers", None) for model in models)
        deepest = max((depth for depth in teachers if depth), default=own)
        return args.for_rows(len(rows), kind, own / deepest if own and deepest else 1.0)

    def _optimizer_of(self, args: TrainingArguments, given: Mapping[str, Any]) -> dict[str, Any]:
        """The method's optimiser, unless the user passes one; as a keyword of the Trainer."""
        self._optimizer_given = given.get("optimizer_cls_and_kwargs")
        self._made_optimizer = not any(given.get("optimizers") or ())
        if self._optimizer_given is not None or not self._made_optimizer:
            return {}
        return {"optimizer_cls_and_kwargs": self.optimisation.optimizer(args.learning_rate)}

    def _refuse_what_does_not_fit(self) -> None:
        if problems := [
            *label_problems(self.args, self.kind.label_names),
            *sharded(self),
            *foreign_optimizer(self.optimizer, self.distiller),
            *unseen_maps(self.optimizer, self.objectives),
        ]:
            raise LimbeckError(problems)

    def _as_the_terms_need(self) -> None:
        # The objectives average over a batch themselves, and `weights_of` over a step; a model that takes
        # `num_items_in_batch` would switch off the division by the accumulation factor.
        self.model_accepts_loss_kwargs = False
        self.loss_is_scaled_for_ga = False
        self.label_names = list(self.args.label_names or self.kind.label_names)
        # A NaN must end the run, not be averaged away.
        self.args.logging_nan_inf_filter = False

    def _add_callbacks(self, given: Any, holdout: Dataset | None) -> None:
        """Its own, distinguished from those that the user gave."""
        self.own_callbacks = {id(callback) for callback in self.callback_handler.callbacks}
        self.own_callbacks -= {id(one) for one in users_callbacks(self, given)}
        for own in (EarlierEntries(self), EpochEntries(self)):
            self._add_own(own)
        if self.bandit is not None:
            self._add_own(LearnWhomToSample(self, self.bandit, holdout))

    def _ready_teacher(self) -> None:
        if self.teacher is None:
            return
        if self.own.compile:
            self.teacher.compile()
        self.teacher.to(self.args.device)
        warn_of_lost_segments(self.teacher.members, self.train_dataset)

    def _add_own(self, callback: Any) -> None:
        self.add_callback(callback)
        self.own_callbacks.add(id(callback))

    def _distil(self, student: PreTrainedModel) -> Distiller:
        """A student, from the beginning, and the terms between it and whoever teaches it."""
        if not isinstance(student, PreTrainedModel):
            raise LimbeckError(
                f"model: a {type(student).__name__} is not a transformers model",
                "pass the transformers model itself",
            )
        self.student = student
        self._set_attention(student)
        self.kind = task_type_of(student)
        self.teacher = self.plan.who.teacher
        self._words = None
        # Their learned maps start from the run's seed, whatever drew numbers before.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            loss = self.plan.last.loss
            self.objectives = objectives_for(student, self.teacher, loss, self._examples)
        who, compared = self.plan.who, self.objectives.ever("teacher").logits
        if problems := pair_problems(student, who.members, who.names, compared=compared):
            raise LimbeckError(problems)
        return Distiller(
            student,
            self.objectives,
            kind=self.kind,
            compact=self.own.compact_metrics,
            compiled=self.own.compile,
            bandit=self.bandit,
        )

    def _set_attention(self, student: PreTrainedModel) -> None:
        name = self.own.attn_implementation
        if name is None:
            return
        give_attention(student, name, "attn_implementation", "student")
        for member in self.plan.who.members:
            give_attention(member.model, name, "attn_implementation", "teacher")

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """What `model_init` makes, with terms of its own: each training, or trial, begins again."""
        self._seed = self.args.seed
        if self.bandit is not None:
            self.bandit.reset()
        return self._distil(cast(PreTrainedModel, super().call_model_init(trial)))

    def columns_read(self) -> list[str]:
        """What student and teachers read of an example."""
        read = {*inspect.signature(self.student.forward).parameters}
        return sorted(read.union(*(member.columns for member in members_of(self.teacher))))

    @property
    def bandit(self) -> Bandit | None:
        """What learns whom to draw, if anything does."""
        sampling = None if self.sampled_team is None else self.sampled_team.sampling
        return sampling if isinstance(sampling, Bandit) else None

    # ---- checkpoints and the shipped student ----

    def save_checkpoint(self, folder: str) -> None:
        """The whole wrapper and the progress."""
        stop_if_not_finite(self, weights=True)
        state = self.progress.state() | {"finished": self.control.should_training_stop}
        state |= {"run": self._run, "passes": self.passes(), "terms": terms_of(self.plan.last)}
        if self.args.should_save:
            checkpoints.save(folder, self.distiller, state)

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: nn.Module | None = None
    ) -> None:
        state = checkpoints.load_progress(resume_from_checkpoint)
        check_terms(state.get("terms"), self.plan.last, resume_from_checkpoint)
        checkpoints.load_weights(resume_from_checkpoint, self.distiller)
        self.progress.restore(state, self.args.device)
        self.restore_passes(state.get("passes"))

    def _load_best_model(self) -> None:
        checkpoints.load_weights(str(self.state.best_model_checkpoint), self.distiller)
