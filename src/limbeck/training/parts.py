"""A training of several parts: what comes before a trainer's own stage, and how it goes on after a stop.

Part of `limbeck.training`.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

from torch import Tensor
from transformers import (
    PreTrainedModel,
    PrinterCallback,
    ProgressCallback,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import TrainOutput, enable_full_determinism

from limbeck.training import checkpoints
from limbeck.training.callbacks import users_callbacks
from limbeck.training.config import BESIDE, OWN_SETTINGS, DistillationConfig, MethodSettings
from limbeck.training.course import Course, Part
from limbeck.training.objectives import check_trainable
from limbeck.training.optimizer import Optimises
from limbeck.training.publishing import PublishesStudents
from limbeck.training.resume import Resumes
from limbeck.training.several_teachers import MethodPlan
from limbeck.training.step import TakesSteps
from limbeck.training.teacher_cache import answering_once
from limbeck.training.word_embeddings import WordsInUse, words_of

_TERMS = ("method", "objectives", *BESIDE, "first_stage")

# What a user may take off a trainer, and then wants to see nowhere.
_SHOWING = (PrinterCallback, ProgressCallback)


class TrainsParts(TakesSteps, Optimises, Resumes, PublishesStudents):
    """A Trainer whose `train` trains all parts of a `MethodPlan`, its own stage the last of them."""

    plan: MethodPlan
    own: MethodSettings
    parts: list[Part]

    _course: Course | None = None
    _continued: Course | None = None
    _run: str | None = None
    _words: WordsInUse | None = None
    _at_start: dict[str, Tensor] | None = None
    _made_optimizer: bool
    _optimizer_given: Any
    own_callbacks: set[int]
    _given: dict[str, Any]
    """Every keyword argument that the trainer was made with."""
    _subclass_takes: dict[str, Any]
    """Those of them that a subclass's `__init__` takes for itself."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keep what the user gave, before a subclass takes its share."""
        made = super().__new__(cls)
        made._given = kwargs
        return made

    @property
    def embeddings_trained(self) -> int | None:
        """How many word embeddings were trained, where those of no training row were left out."""
        return None if self._words is None else len(self._words.used)

    @property
    def folder(self) -> Path:
        """Where checkpoints and parts lie: `output_dir`, or a trial's below it."""
        return Path(str(self._get_output_dir(getattr(self, "_trial", None))))

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Train the whole method, as the Trainer's `train`.

        Args:
            resume_from_checkpoint: as for the Trainer; of a method of several parts True finds the
                part in which a training was stopped, and a checkpoint may be a part's.
            trial: of a search for hyperparameters.
            ignore_keys_for_eval: as for the Trainer.
        """
        self.plan.refuse_labels_alone(self.kind)
        checkpoint: Any = resume_from_checkpoint or None
        self.parts, self._at_start = [], None
        if self.plan.staged:
            folder = Path(str(self.args.output_dir))
            if self._continued is not None:
                self._course = self._continued.inside(checkpoint)
            elif checkpoint is not None:
                self._course, checkpoint = Course.resume(folder, checkpoint)
            else:
                keep = self.args.save_strategy != "no"
                self._course = Course.begin(folder, write=self.args.should_save, keep=keep)
            checkpoint = None if checkpoint is None else str(checkpoint)
        with self.progress.parts.part("training"):
            return super().train(checkpoint, trial, ignore_keys_for_eval)

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """As the Trainer's, after everything that comes before it; unused words take no part."""
        check_trainable(self.student)
        if kwargs.get("resume_from_checkpoint") is None:
            self.progress.restart()
        course, self._course = self._course, None
        if course is not None:  # once, also where a batch is too large and another one is tried
            if self.plan.best_of:
                return self._best_of(course)
            self.parts = self.plan.before(self, course)
            # What comes next draws alike, whether the parts were trained just now or earlier.
            (enable_full_determinism if self.args.full_determinism else set_seed)(self.args.seed)
            self._run = course.identity
            if kwargs.get("resume_from_checkpoint") is None:
                self.begin_counting()  # the teachers have worked for the parts as well
        if self.args.auto_find_batch_size:
            self._start_over()
        self.teacher = answering_once(self, self.own.cache_teacher_outputs)
        if self.own.skip_unused_embeddings:
            self._words = words_of(self, self.student, self._words)
        with self._words.engaged() if self._words is not None else nullcontext():
            return super()._inner_training_loop(*args, **kwargs)

    def _start_over(self) -> None:
        """Where a batch was too large, a smaller one starts from the same weights."""
        if self._at_start is None:
            state = self.distiller.state_dict()
            self._at_start = {name: value.cpu().clone() for name, value in state.items()}
            return
        self.distiller.load_state_dict(self._at_start)
        if self._made_optimizer:
            self.optimizer = self.lr_scheduler = None

    def _best_of(self, course: Course) -> TrainOutput:
        best, self.parts = self.plan.best(self, course)
        self.progress.epochs = list(best.epochs)
        self.state = TrainerState(log_history=list(best.log_history))
        ended = next(entry for entry in reversed(best.log_history) if "train_loss" in entry)
        self.state.global_step, self.state.epoch = ended["step"], ended.get("epoch")
        self.state.max_steps = self.state.global_step
        self.is_in_train = False
        return TrainOutput(self.state.global_step, ended["train_loss"], best.metrics)

    def for_part(
        self,
        student: PreTrainedModel,
        teacher: Any,
        args: TrainingArguments,
        course: Course | None,
        **changes: Any,
    ) -> TrainsParts:
        """A trainer of a part: all that the user gave this one, but for the `changes`, settings of the
        method among them.

        Keyword arguments that a subclass takes for itself are given to it again; a subclass whose `__init__`
        takes others by position has to make its own.
        """
        settings: dict[str, Any] = {
            "train_dataset": self.train_dataset,
            "eval_dataset": self.eval_dataset,
            "data_collator": self.data_collator,
            "processing_class": self.processing_class,
            "compute_metrics": self.compute_metrics,
            "preprocess_logits_for_metrics": self.preprocess_logits_for_metrics,
            "optimizer_cls_and_kwargs": self._optimizer_given,
            "callbacks": users_callbacks(self),
        }
        method: dict[str, Any] = {
            name: changes.pop(name)
            for name in OWN_SETTINGS
            if name in changes and name != "first_stage"
        }
        # Its terms take the place of the whole method's.
        method = dict.fromkeys(_TERMS) | {"optimisation": self.optimisation} | method
        config = DistillationConfig.like(args, **method)
        make: Any = type(self)
        part: TrainsParts = make(
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
        if checkpoint is None or not checkpoints.load_progress(checkpoint)["finished"]:
            self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            return
        self.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        self._load_from_checkpoint(str(checkpoint))
        if self.args.load_best_model_at_end:
            best = checkpoint.with_name(f"checkpoint-{self.state.best_global_step}")
            checkpoints.load_weights(best, self.distiller)
