"""`DistillationTrainer`: `transformers.Trainer` with a teacher.

On the way of a training step: asks, captures, weighs, adds and steps. The loop, logging, mixed
precision and multi-process training are the Trainer's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sized
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler, SequentialSampler
from transformers import PreTrainedModel, TrainerState, TrainingArguments

from limbeck.capture import Trace
from limbeck.data import Collator, EpochSampler
from limbeck.engine import checkpoints
from limbeck.engine.adaptive import LearnWhomToDraw
from limbeck.engine.callbacks import EpochEntries, stop_if_not_finite
from limbeck.engine.counting import Counts
from limbeck.engine.distiller import Distiller
from limbeck.engine.head import train_head_alone
from limbeck.engine.optimisation import Optimisation
from limbeck.engine.progress import Progress
from limbeck.engine.resuming import Resumes
from limbeck.engine.segments import warn_of_lost_segments
from limbeck.engine.terms import index_bound, objectives_for
from limbeck.engine.words import WordsInUse, words_of
from limbeck.errors import LimbeckError
from limbeck.kinds import kind_of
from limbeck.mixup import Mixture, MixupSpec, draw
from limbeck.moment import Moment
from limbeck.objectives import CurriculumSpec, Objectives, TeamObjectives, TermSpec
from limbeck.recipe import Recipe
from limbeck.teachers import Teacher
from limbeck.teams import Bandit, Drawn, Team, members_of


class DistillationTrainer(Counts, Resumes):
    """A drop-in for `transformers.Trainer` that also takes a teacher and a method.

    Args:
        model: the student, any `PreTrainedModel` with a head of one of `limbeck.kinds`.
        teacher: the model to learn from, several of them as a `limbeck.teams.Team`, or None for
            plain fine-tuning.
        method: a shipped method's name, a recipe file, or a `Recipe`; only its top-level
            objectives, curriculum and mixup are read.
        objectives: the terms themselves, instead of a method.
        curriculum: with `objectives`: when each layer learns.
        mixup: with `objectives`: mix the inputs of both models.
        holdout: rows on which a team that learns whom to draw sees its progress.
        group_by_length: batch examples of similar length; text needs an `input_ids` column.
        compile: run training passes of student and teacher as compiled graphs.
        compact: hand `compute_metrics` and `predict` what the kind's scores need in place of the
            logits, which are as large as a vocabulary for some kinds.
        optimisation: optimiser and schedule where the Trainer's own arguments do not reach.
        **kwargs: as for `Trainer`.

    `trainer.student` is the student; `save_model` writes it by `save_pretrained`. Checkpoints also
    hold the learned parts of the objectives.

    Raises:
        LimbeckError: the method does not fit the models.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        args: TrainingArguments | None = None,
        *,
        teacher: PreTrainedModel | Teacher | Team | None = None,
        method: str | Path | Recipe = "kd",
        objectives: dict[str, TermSpec] | None = None,
        curriculum: CurriculumSpec | None = None,
        mixup: MixupSpec | None = None,
        holdout: Dataset | None = None,
        group_by_length: bool = False,
        compile: bool = False,
        compact: bool = False,
        optimisation: Optimisation | None = None,
        **kwargs: Any,
    ) -> None:
        self.student = model
        self.progress = Progress()
        self._order: EpochSampler | None = None
        self._words: WordsInUse | None = None
        self.group_by_length = group_by_length
        self.teacher = Teacher(teacher) if isinstance(teacher, PreTrainedModel) else teacher
        if objectives is None:
            recipe = _recipe(method)
            objectives, curriculum, mixup = recipe.objectives, recipe.curriculum, recipe.mixup
        self.mixup = mixup
        self.kind = kind_of(model)
        # Their learned maps start from the run's seed, whatever drew numbers before.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(args.seed if args is not None else 42)
            self.objectives = self._objectives(
                objectives, curriculum, index_bound(kwargs.get("train_dataset"))
            )
        distiller = Distiller(
            model,
            self.objectives,
            kind=self.kind,
            compact=compact,
            compiled=compile,
            bandit=self.bandit,
        )
        if self.teacher is not None and compile:
            self.teacher.compile()
        self.optimisation = optimisation or Optimisation()
        if args is not None and "optimizer_cls_and_kwargs" not in kwargs:
            kwargs["optimizer_cls_and_kwargs"] = self.optimisation.optimizer(args.learning_rate)
        super().__init__(distiller, args, **kwargs)
        # The objectives average over a batch themselves; a model that takes `num_items_in_batch`
        # would switch off the division by the accumulation factor.
        self.model_accepts_loss_kwargs = False
        self.label_names = list(self.kind.label_names)
        # A NaN must end the run, not be averaged away.
        self.args.logging_nan_inf_filter = False
        self.add_callback(EpochEntries(self))
        if self.bandit is not None:
            self.add_callback(LearnWhomToDraw(self, self.bandit, holdout))
        if self.teacher is not None:
            self.teacher.to(self.args.device)
            warn_of_lost_segments(self.teacher.members, self.train_dataset)
        self.begin_counting()

    def _objectives(
        self, specs: dict[str, TermSpec], curriculum: CurriculumSpec | None, rows: int
    ) -> Objectives | TeamObjectives:
        if self.teacher is None and any(spec.compare != "hard_label" for spec in specs.values()):
            raise LimbeckError(
                "this method learns from a teacher, and none is given",
                "pass teacher=, or use method finetune",
            )
        return objectives_for(
            self.student, self.teacher, specs, curriculum, kind=self.kind, rows=rows
        )

    @property
    def drawn(self) -> Drawn | None:
        """The team whose members take turns, if that is who teaches."""
        return self.teacher if isinstance(self.teacher, Drawn) else None

    @property
    def bandit(self) -> Bandit | None:
        """What learns whom to draw, if anything does."""
        chances = None if self.drawn is None else self.drawn.chances
        return chances if isinstance(chances, Bandit) else None

    # ---- where the run stands ----

    def moment_of(self, step: int) -> Moment:
        """The moment of an optimisation step, counted from 0: a function of the step alone."""
        steps = max(self.state.max_steps, 1)
        per_epoch = self._steps_per_epoch()
        return Moment(
            seed=self.args.seed,
            epoch=step // per_epoch,
            step=step,
            progress=min(step / steps, 1.0),
            passes=step / per_epoch,
            length=steps / per_epoch,
            teacher=0 if self.drawn is None else self.drawn.pick(self.args.seed, step),
        )

    def _steps_per_epoch(self) -> int:
        batches = len(cast(Sized, self.callback_handler.train_dataloader))
        accumulation = self.args.gradient_accumulation_steps
        return max(-(-batches // accumulation), 1)

    def start_epoch(self, epoch: int) -> None:
        """Put an epoch, counted from 0, and its examples in their places.

        The Trainer tells the sampler too, but does not reach it behind the wrappers of a run that
        is continued in several processes.
        """
        if self._order is not None:
            self._order.set_epoch(epoch)

    # ---- the step ----

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """In training: the weighted terms. In evaluation: the labels' loss alone."""
        if not model.training:
            outputs = model(**inputs)
            return (outputs["loss"], outputs) if return_outputs else outputs["loss"]
        moment = self.moment_of(self.state.global_step)
        # A collator of limbeck's hides other words, or shows other views, in every epoch.
        if isinstance(self.data_collator, Collator):
            inputs = self.data_collator.for_epoch(inputs, seed=moment.seed, epoch=moment.epoch)
        mixture = self._mixture(inputs, moment)
        teacher = self._look_at_teacher(inputs, moment, mixture)
        outputs = model(moment=moment, teacher=teacher, mixture=mixture, **inputs)
        terms = outputs["terms"]
        if self.drawn is not None:  # also by whose they are
            terms = terms | {f"loss ({self.drawn.names[moment.teacher]})": outputs["loss"]}
        self.progress.add(terms, outputs["loss"])
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """As the Trainer's; where a curriculum trains the head alone, no other weight is moved."""
        loss = super().training_step(*args, **kwargs)
        if (curriculum := self.objectives.curriculum) is not None:
            train_head_alone(self.student, curriculum, self.moment_of(self.state.global_step))
        return loss

    def _mixture(self, inputs: Mapping[str, Tensor], moment: Moment) -> Mixture | None:
        if self.mixup is None:
            return None
        examples = len(next(iter(inputs.values())))
        return draw(self.mixup, examples, moment, self.args.device)

    def _look_at_teacher(
        self, inputs: Mapping[str, Tensor], moment: Moment, mixture: Mixture | None
    ) -> Trace | None:
        request = self.objectives.request("teacher", moment)
        if self.teacher is None or not (request.items or request.logits):
            return None
        measured = self.progress.stopwatch.measure("teacher", self.args.device)
        with measured, self.accelerator.autocast():
            return self.teacher.at(moment)(inputs, request, mixture)

    # ---- logging ----

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the mean of every named term since the last log to the Trainer's own entries."""
        if "loss" in logs and "learning_rate" in logs:
            stop_if_not_finite(self)
            means = self.progress.since_log.means()
            # The Trainer's own sum forgets, when a run is continued, what came after the last log.
            logs["loss"] = means.pop("loss", logs["loss"])
            logs.update({f"term/{name}": value for name, value in means.items()})
            self.progress.since_log.clear()
        super().log(logs, start_time)

    # ---- data ----

    def _set_signature_columns_if_needed(self) -> None:
        if self._signature_columns is None:
            accepted = {*inspect.signature(self.student.forward).parameters}
            for member in members_of(self.teacher):
                accepted |= member.columns
            columns = [
                *sorted(accepted),
                "label",
                "label_ids",
                "labels",
                "index",
                *self.kind.extra_columns,
            ]
            self._signature_columns = columns  # type: ignore[assignment]

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler | None:
        dataset: Any = train_dataset if train_dataset is not None else self.train_dataset
        self._order = EpochSampler(
            dataset,
            self.args.seed,
            lengths=self.kind.reads.lengths(dataset) if self.group_by_length else None,
            batch_size=self.args.train_batch_size
            * self.args.gradient_accumulation_steps
            * self.args.world_size,
        )
        return self._order

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler | None:
        rows = cast(Sized, eval_dataset)
        return SequentialSampler(rows) if self.args.world_size <= 1 else None

    # ---- the optimiser ----

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Which weights decay: under SGD all of them, otherwise no bias and no normalisation."""
        if self.optimisation.decays_all:
            return [name for name, _ in model.named_parameters()]
        return super().get_decay_parameter_names(model)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> Any:
        """The Trainer's own, or one that falls in steps."""
        if self.lr_scheduler is None and self.optimisation.milestones:
            self.lr_scheduler = self.optimisation.schedule(
                optimizer or self.optimizer,
                warmup=self.args.get_warmup_steps(num_training_steps),
                steps=num_training_steps,
            )
        return super().create_scheduler(num_training_steps, optimizer)

    # ---- checkpoints and the shipped student ----

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; words that no row holds take no part in its steps."""
        self._words = words_of(self, self.student, self._words)
        engaged = self._words.engaged() if self._words is not None else nullcontext()
        with self.progress.parts.part("training"), engaged:
            return super().train(*args, **kwargs)

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

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the student, and its tokenizer or image processor, by `save_pretrained`.

        Inside a checkpoint: the whole wrapper and the progress.
        """
        folder = str(output_dir or self.args.output_dir)
        if _internal_call:
            stop_if_not_finite(self, weights=True)
            state = self.progress.state() | {
                "finished": self.control.should_training_stop,
                "passes": self.passes(),
            }
            if self.args.should_save:
                checkpoints.save(folder, self.distiller, state)
            return
        if not self.args.should_save:
            return
        self.student.save_pretrained(folder)
        if self.processing_class is not None:
            self.processing_class.save_pretrained(folder)

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: nn.Module | None = None
    ) -> None:
        checkpoints.load_weights(resume_from_checkpoint, self.distiller)
        state = checkpoints.load_progress(resume_from_checkpoint)
        self.progress.restore(state, self.args.device)
        self.restore_passes(state.get("passes"))

    def _load_best_model(self) -> None:
        checkpoints.load_weights(str(self.state.best_model_checkpoint), self.distiller)


def _recipe(method: str | Path | Recipe) -> Recipe:
    return method if isinstance(method, Recipe) else Recipe.load(method)
