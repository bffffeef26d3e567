"""`DistillationTrainer`: `transformers.Trainer` with a teacher.

It captures the activations that the objectives need, and weights and adds their terms. The loop, logging, mixed
precision and multi-process training are the Trainer's own.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    PreTrainedModel,
    PrinterCallback,
    ProgressCallback,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import HubStrategy, TrainOutput, enable_full_determinism, has_length

from limbeck.students import pad_as
from limbeck.students.execution import give_attention, warn_of_emulated_bf16
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.support.files import share_weights
from limbeck.tasks import task_type_of
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import LearnedProbabilities, Team, members_of
from limbeck.training import arguments, checkpoints, feeding, method, objectives, teacher_cache
from limbeck.training.callbacks import EpochEntries, users_callbacks
from limbeck.training.checkpoints import Resumes
from limbeck.training.config import OWN_SETTINGS, DistillationConfig
from limbeck.training.optimizer import Optimises, unseen_maps
from limbeck.training.parts import Course, FinishedPart, MethodPlan, TrainerParts, best_of
from limbeck.training.progress import Progress, stop_if_not_finite
from limbeck.training.step import Distiller, TakesSteps
from limbeck.training.word_embeddings import WordsInUse, words_of

# The arguments that the trainer of a part shares with this one.
_SHARED = (
    *("train_dataset", "eval_dataset", "data_collator", "processing_class", "compute_metrics"),
    "preprocess_logits_for_metrics",
)
# Callbacks that a user may remove from a trainer, and that its parts then leave out too.
_SHOWING = (PrinterCallback, ProgressCallback)


class DistillationTrainer(TakesSteps, Optimises, Resumes):
    """A drop-in for `transformers.Trainer` that also takes a teacher and a method.

    `train` trains the complete method. The parts before its last stage are trained first by
    trainers of its own, with the same data, collator, metrics and callbacks, in folders below
    `args.output_dir`: `first_stage`, `students/NAME` (to rank teachers by), `assistants/01-NAME` (a chain),
    `tries/BY` (the best of three). `train(resume_from_checkpoint=True)` resumes in the part in which training
    was stopped.

    Args:
        model: the student, any `PreTrainedModel` with a head of one of `limbeck.tasks`.
        teacher: the model to learn from; several of them as a list, as a dict by name, or as a
            `limbeck.teachers.Team`; None for plain fine-tuning.
        args: a `DistillationConfig`: the method, and the Trainer's arguments of the last stage; of the others
            too, unless the method or its `first_stage` sets others. Plain `TrainingArguments` train
            method kd. Every setting takes effect or raises an error.
        data_collator: as for `Trainer`.
        train_dataset: as for `Trainer`.
        eval_dataset: as for `Trainer`.
        processing_class: as for `Trainer`.
        compute_metrics: as for `Trainer`.
        callbacks: as for `Trainer`.
        first_stage: a first stage's own objects, which a configuration cannot hold: its own `teacher`,
            `train_dataset`, `data_collator`.
        holdout: rows to measure progress on for a team that learns which teacher to sample; by default some of
            the training rows, which are not trained on then.
        **kwargs: as for `Trainer`, `model_init` among them.

    Example:
        ```python
        trainer = limbeck.DistillationTrainer(
            model=student, teacher=teacher, args=limbeck.DistillationConfig("out", method="kd"), train_dataset=rows
        )
        trainer.train()
        ```

    `trainer.student` is the student; `save_model` writes it by `save_pretrained`. Checkpoints also
    hold the learned parts of the objectives. `trainer.parts` are the parts that have been trained.

    Raises:
        LimbeckError: the method does not fit the models, or a setting would have no effect.
    """

    plan: MethodPlan
    own: DistillationConfig
    parts: list[FinishedPart]

    _course: Course | None = None
    _continued: Course | None = None
    _run: str | None = None
    _words: WordsInUse | None = None
    _optimizer_given: Any
    _given: dict[str, Any]
    """Every keyword argument that the trainer was made with."""
    _subclass_takes: dict[str, Any]
    """Those of them that a subclass's `__init__` takes for itself."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Store the user's arguments, before a subclass removes its own."""
        made = super().__new__(cls)
        made._given = kwargs
        return made

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
        holdout: Dataset[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        known = {*inspect.signature(DistillationTrainer.__init__).parameters, *kwargs}
        self._subclass_takes = {k: v for k, v in self._given.items() if k not in known}
        args = DistillationConfig("tmp_trainer") if args is None else args
        raise_problems(arguments.said_elsewhere(kwargs, first_stage))
        own = args if isinstance(args, DistillationConfig) else DistillationConfig.like(args)
        self._plan(own, model, teacher, first_stage or {})
        problems = arguments.setting_problems(args) + arguments.keyword_problems(
            kwargs, staged=self.plan.staged
        )
        raise_problems(problems + arguments.value_problems(args, callbacks or ()))
        train_dataset, holdout = self._rows_to_train(args, train_dataset, holdout)
        args = self._for_rows(args, train_dataset, model)
        kwargs |= {
            "data_collator": data_collator,
            "train_dataset": train_dataset,
            "eval_dataset": eval_dataset,
            "processing_class": processing_class,
            "compute_metrics": compute_metrics,
            "callbacks": callbacks,
        }
        self._optimizer_given = kwargs.get("optimizer_cls_and_kwargs")
        if self._optimizer_given is None and not any(kwargs.get("optimizers") or ()):
            ours = self.optimisation.optimizer(args.learning_rate)
            kwargs["optimizer_cls_and_kwargs"] = ours
        self._seed = args.seed
        self._tokenizer = processing_class or getattr(data_collator, "tokenizer", None)
        distiller = None if model is None else self._distil(model)
        super().__init__(cast(Any, distiller), args, **kwargs)
        if problems := [
            *arguments.sharded(self),
            *objectives.foreign_optimizer(self.optimizer, self.distiller),
            *unseen_maps(self.optimizer, self.objectives),
        ]:
            raise LimbeckError(problems)
        # The objectives average over a batch themselves, and `weights_of` over a step; a model that takes
        # `num_items_in_batch` would switch off the division by the accumulation factor.
        self.model_accepts_loss_kwargs = False
        if self.args.use_liger_kernel:
            # The student has the kernels already; the Trainer would look for its layers in the wrapper.
            self.args = copy.copy(self.args)
            self.args.use_liger_kernel = False
        self.loss_is_scaled_for_ga = False
        self.label_names = list(self.kind.label_names)
        # A NaN must end the run, not be averaged away.
        self.args.logging_nan_inf_filter = False
        self._add_callbacks(callbacks, holdout)
        if self.teacher is not None:
            if self.own.compile:
                self.teacher.compile()
            if self.own.packing:
                self.teacher.pack()
            self.teacher.to(self.args.device)
            objectives.warn_of_lost_segments(self.teacher.members, self.train_dataset)
        if self.own.packing and (problems := self._packing_refusals()):
            raise LimbeckError(problems)
        warn_of_emulated_bf16("bf16" if args.bf16 else "fp32")
        self.begin_counting()
        self.plan.check(self.student, self)

    # ---- how it is made ----

    def _packing_refusals(self) -> list[Problem]:
        live = [one for one in members_of(self.teacher) if one.live]
        teachers = {f"teacher {place + 1}": one.model for place, one in enumerate(live)}
        return objectives.packing_refusals(
            self.objectives,
            {"student": self.student, **teachers},
            compile=self.own.compile,
            transform=self.transform,
        )

    def _plan(self, own: DistillationConfig, model: Any, teacher: Any, first: Any) -> None:
        """Resolve the recipe and the teachers."""
        self.own = own
        settings = cast(dict[str, Any], own.first_stage or {})
        recipe = method.with_first_stage(own.recipe(method.kind_of(model)), {**settings, **first})
        recipe = recipe.model_copy(update={"seed": own.seed})
        self.plan = MethodPlan(recipe, teacher, first)
        self.transform = self.plan.last.transform
        self.padded_width = self.plan.last.padded_width
        self.teacher: Teacher | Team | None = self.plan.teacher
        self.optimisation = own.how_to_optimise()
        self.group_by_length = own.group_by_length
        self.may_group = self.plan.last.groups_by_length
        self.labelled_share = own.labelled_share
        self.candidates = own.candidates
        self.progress = Progress()

    def _rows_to_train(
        self, args: TrainingArguments, rows: Any, holdout: Dataset[Any] | None
    ) -> tuple[Any, Dataset[Any] | None]:
        """The training rows, numbered if something looks them up by number, and the rows held out."""
        recipe = self.plan.recipe
        if method.learns_whom_to_sample(recipe) and holdout is None:
            holdout, rows = feeding.hold_out(rows, getattr(recipe.team, "holdout", None), args.seed)
        found = any(term.needs_index for term in self.plan.last.objectives.values())
        if found or self.own.cache_teacher_outputs != "off":
            rows = feeding.numbered(rows)
        self._examples = rows
        return rows, holdout

    def _for_rows(
        self, args: TrainingArguments, rows: Any, student: PreTrainedModel | None
    ) -> TrainingArguments:
        """The arguments with epochs and rate for these rows and this student, unless they are set."""
        if not isinstance(args, DistillationConfig):
            return args
        if student is None or not has_length(rows):
            return args.for_rows(0, None, 1.0)
        models = [student, *(member.model for member in self.plan.members)]
        own, *teachers = (getattr(model.config, "num_hidden_layers", None) for model in models)
        deepest = max((depth for depth in teachers if depth), default=own)
        share = 1.0 if own is None or not deepest else own / deepest
        return args.for_rows(len(rows), method.kind_of(student), share)

    def _add_callbacks(self, given: Any, holdout: Dataset[Any] | None) -> None:
        """The trainer's own callbacks, without the user's."""
        own: list[Any] = [EpochEntries(self)]
        if self.bandit is not None:
            own.append(self.bandit.callback(self, holdout))
        known = self.callback_handler.callbacks
        self.own_callbacks = {id(one) for one in (*known, *own)}
        self.own_callbacks -= {id(one) for one in users_callbacks(self, given)}
        for callback in own:
            self.add_callback(callback)

    def _distil(self, student: PreTrainedModel) -> Distiller:
        """A student, from the beginning, and the terms between it and its teacher."""
        if not isinstance(student, PreTrainedModel):
            raise LimbeckError(
                f"model: a {type(student).__name__} is not a transformers model",
                "pass the transformers model itself",
            )
        self.student = student
        for one in (student, *(member.model for member in self.plan.members)):
            pad_as(one, lambda: self._tokenizer)
        if (name := self.own.attn_implementation) is not None:
            give_attention(student, name, "attn_implementation", "student")
            for member in self.plan.members:
                give_attention(member.model, name, "attn_implementation", "teacher")
        self.kind = task_type_of(student)
        self.teacher = self.plan.teacher
        self._words = None
        # Their learned maps start from the run's seed, whatever drew numbers before.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            loss = self.plan.last.loss
            self.objectives = objectives.objectives_for(student, self.teacher, loss, self._examples)
        if self.own.use_liger_kernel:
            arguments.with_liger_kernels(student, self.own)
        plan, compared = self.plan, self.objectives.ever("teacher").logits
        if problems := objectives.pair_problems(
            student, plan.members, plan.names, compared=compared
        ):
            raise LimbeckError(problems)
        return Distiller(
            student,
            self.objectives,
            kind=self.kind,
            compact=self.own.compact_metrics,
            compiled=self.own.compile,
            packed=self.own.packing,
            bandit=self.bandit,
        )

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
    def bandit(self) -> LearnedProbabilities | None:
        """The bandit that learns which teacher to draw, if there is one."""
        sampling = None if self.sampled_team is None else self.sampled_team.sampling
        return sampling if isinstance(sampling, LearnedProbabilities) else None

    # ---- the training, part by part ----

    @property
    def embeddings_trained(self) -> int | None:
        """The number of trained word embeddings, if tokens that occur in no training row were left out."""
        return None if self._words is None else len(self._words.used)

    @property
    def folder(self) -> Path:
        """The folder of checkpoints and parts: `output_dir`, or a trial's folder below it."""
        return Path(str(self._get_output_dir(getattr(self, "_trial", None))))

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Train the complete method, as the Trainer's `train`.

        Args:
            resume_from_checkpoint: as for the Trainer; of a method of several parts True finds the
                part in which a training was stopped, and a checkpoint may be a part's.
            trial: of a search for hyperparameters.
            ignore_keys_for_eval: as for the Trainer.
        """
        self.plan.refuse_labels_alone(self.kind)
        checkpoint: Any = resume_from_checkpoint or None
        self.parts = []
        if self.plan.staged:
            folder = Path(str(self.args.output_dir))
            if self._continued is not None:
                self._course = replace(self._continued, parts_are_done=checkpoint is not None)
            elif checkpoint is not None:
                self._course, checkpoint = Course.resume(folder, checkpoint)
            else:
                keep = self.args.should_save and self.args.save_strategy != "no"
                self._course = Course.begin(folder, write=keep)
            checkpoint = None if checkpoint is None else str(checkpoint)
        with self.progress.parts.part("training"):
            found: TrainOutput = super().train(checkpoint, trial, ignore_keys_for_eval)
            return found

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """As the Trainer's, after everything that comes before it; unused words take no part."""
        objectives.check_trainable(self.student)
        objectives.check_class_ids(self.student, self.train_dataset)
        if kwargs.get("resume_from_checkpoint") is None:
            self.progress.restart()
        course, self._course = self._course, None
        if course is not None:
            parts = TrainerParts(self, self.plan, course)
            if self.plan.best_of:
                return self._best_of(parts)
            self.parts = parts.before()
            # Later draws are the same, whether the parts were trained just now or earlier.
            (enable_full_determinism if self.args.full_determinism else set_seed)(self.args.seed)
            self._run = course.identity
            if kwargs.get("resume_from_checkpoint") is None:
                self.begin_counting()  # the teachers have worked for the parts as well
        self.teacher = teacher_cache.answering_once(
            self, self.own.cache_teacher_outputs, self.plan.recipe.cache_limit
        )
        if self.own.skip_unused_embeddings:
            self._words = words_of(self, self.student, self._words)
        with self._words.engaged() if self._words is not None else nullcontext():
            return super()._inner_training_loop(*args, **kwargs)

    def _best_of(self, parts: TrainerParts) -> TrainOutput:
        place, self.parts = best_of(self.plan.recipe, parts)
        best = self.parts[place]
        self.student.load_state_dict(best.student.state_dict())
        self.progress.epochs = list(best.epochs)
        self.state = TrainerState(log_history=list(best.log_history))
        last = best.epochs[-1]
        self.state.global_step = self.state.max_steps = last["step"]
        self.state.epoch = best.log_history[-1]["epoch"]
        self.is_in_train = False
        ends = [0, *(entry["step"] for entry in best.epochs)]
        losses = [
            entry["train"]["loss"] * (end - start)
            for entry, start, end in zip(best.epochs, ends, ends[1:], strict=False)
        ]
        return TrainOutput(last["step"], sum(losses) / last["step"], best.metrics)

    def for_part(
        self,
        student: PreTrainedModel,
        teacher: Any,
        args: TrainingArguments,
        course: Course | None,
        **changes: Any,
    ) -> "DistillationTrainer":
        """A trainer of a part: all that the user gave this one, but for the `changes`, settings of the
        method among them.

        Keyword arguments that a subclass takes for itself are given to it again; a subclass whose `__init__`
        takes others by position has to make its own.
        """
        settings: dict[str, Any] = {name: getattr(self, name) for name in _SHARED}
        settings["optimizer_cls_and_kwargs"] = self._optimizer_given
        settings["callbacks"] = users_callbacks(self)
        method: dict[str, Any] = {
            name: changes.pop(name)
            for name in OWN_SETTINGS
            if name in changes and name != "first_stage"
        }
        # Its terms replace the complete method's.
        config = DistillationConfig.like(args, **({"optimisation": self.optimisation} | method))
        make: Any = type(self)
        part: DistillationTrainer = make(
            student, teacher, config, **(self._subclass_takes | settings | changes)
        )
        part._continued = course
        part._run = None if course is None else course.identity
        shown = {type(callback) for callback in self.callback_handler.callbacks}
        for callback in list(part.callback_handler.callbacks):
            unwanted = type(callback) not in shown and type(callback) in _SHOWING
            if unwanted and id(callback) in part.own_callbacks:
                part.remove_callback(callback)
        return part

    def start_or_continue(self, checkpoint: Path | None) -> None:
        """Train from the beginning, or from a checkpoint, to the end and the best epoch's weights.

        A checkpoint of a run's last step is not trained on: only its best epoch is loaded, or, where
        no epoch is scored, the checkpoint itself.
        """
        if checkpoint is None or not checkpoints.is_last(checkpoint):
            self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            if self.args.save_strategy == "best":  # its checkpoints are not from the last step
                self._save_checkpoint(self.model, None)
            return
        self.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        self._load_from_checkpoint(str(checkpoint))
        if self.args.load_best_model_at_end:
            best = checkpoint.with_name(f"checkpoint-{self.state.best_global_step}")
            checkpoints.load_weights(best, self.distiller)

    # ---- checkpoints and the shipped student ----

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the student, and its tokenizer or image processor, by `save_pretrained`.

        Inside a checkpoint: the complete wrapper and the progress.
        """
        # The Trainer also calls it without a folder before a push to the Hub.
        if _internal_call and output_dir is not None:
            self.save_checkpoint(str(output_dir))
            return
        self._write_student(str(output_dir or self.args.output_dir))
        if self.args.push_to_hub and not _internal_call:
            revision = getattr(self.args, "hub_revision", None)
            self.push_to_hub(commit_message="Model save", revision=revision)

    def _write_student(self, folder: str) -> None:
        if not self.args.should_save:
            return
        self.student.save_pretrained(folder)
        processor: Any = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if processor is not None:
            processor.save_pretrained(folder)
        share_weights(Path(folder))

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        # The Trainer would copy a model out of the checkpoint, which holds the wrapper.
        if self.args.hub_strategy != HubStrategy.END:
            self._write_student(str(self.args.output_dir))
        super()._push_from_checkpoint(checkpoint_folder)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        with self.progress.parts.part("saving"):
            super()._save_checkpoint(*args, **kwargs)

    def save_checkpoint(self, folder: str) -> None:
        """The complete wrapper and the progress."""
        stop_if_not_finite(self.progress, self.state.global_step, self.distiller)
        state = self.progress.state() | {"finished": self.control.should_training_stop}
        state |= {
            "run": self._run,
            "passes": self.passes(),
            "terms": objectives.terms_of(self.plan.last),
        }
        if self.args.should_save:
            checkpoints.save(folder, self.distiller, state)

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: nn.Module | None = None
    ) -> None:
        state = checkpoints.load_progress(resume_from_checkpoint)
        objectives.check_terms(state.get("terms"), self.plan.last, resume_from_checkpoint)
        checkpoints.load_weights(resume_from_checkpoint, self.distiller)
        self.progress.restore(state, self.args.device)
        self.restore_passes(state.get("passes"))

    def _load_best_model(self) -> None:
        checkpoints.load_weights(str(self.state.best_model_checkpoint), self.distiller)
