"""A step of a training: which state the run is in, who teaches, the weighted terms, and what is logged.

Part of `limbeck.training`. Each is a function of the step alone, so that a continued run goes on as it would have.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import cached_property
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.trainer_utils import has_length

from limbeck.activations import Request, Trace
from limbeck.data import Collator
from limbeck.data.row_facts import facts_of
from limbeck.input_transforms import InputTransform, StepInputs
from limbeck.objectives import Objectives, TeamObjectives
from limbeck.objectives.curriculum import Curriculum
from limbeck.support.machine import on_host
from limbeck.support.step_state import StepState
from limbeck.tasks.abstract_type import labelled_rows, no_unlabelled
from limbeck.teachers import SampledTeam
from limbeck.training.callbacks import stop_if_not_finite
from limbeck.training.feeding import FeedsExamples, padded
from limbeck.training.progress import Counts, LabelledTerms
from limbeck.training.step_weights import RepeatedExamples, examples_in, first_examples


class TakesSteps(Counts, FeedsExamples):
    """A Trainer whose loss is the weighted sum of the objectives' terms."""

    student: PreTrainedModel
    objectives: Objectives | TeamObjectives
    transform: InputTransform | None
    padded_width: int | None

    @property
    def sampled_team(self) -> SampledTeam | None:
        """The team whose members take turns, if that is who teaches."""
        return self.teacher if isinstance(self.teacher, SampledTeam) else None

    # ---- where the run stands ----

    def step_state_at(self, step: int) -> StepState:
        """The moment of an optimisation step, counted from 0: a function of the step alone."""
        steps = max(self.state.max_steps, 1)
        per_epoch = self._steps_per_epoch()
        return StepState(
            seed=self.args.seed,
            epoch=step // per_epoch,
            step=step,
            progress=min(step / steps, 1.0),
            passes=step / per_epoch,
            length=steps / per_epoch,
            teacher=0
            if self.sampled_team is None
            else self.sampled_team.pick(self.args.seed, step),
        )

    def _steps_per_epoch(self) -> int:
        loader = cast(Sized, self.callback_handler.train_dataloader)
        if not has_length(loader):  # a stream is one long epoch
            return max(self.state.max_steps, 1)
        batches = len(loader)
        accumulation = self.args.gradient_accumulation_steps
        return max(-(-batches // accumulation), 1)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; where there are no labels, no loss of theirs is among the metrics."""
        found = super().evaluation_loop(*args, **kwargs)
        if not self.kind.has_label_loss and found.metrics is not None:
            found.metrics.pop(f"{kwargs.get('metric_key_prefix', 'eval')}_loss", None)
        return found

    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, *args: Any, **kwargs: Any
    ) -> Any:
        """As the Trainer's; the loss is that of the process's own rows, without those that fill up its last batch."""
        loss, *found = super().prediction_step(model, inputs, prediction_loss_only, *args, **kwargs)
        rows = getattr(self.callback_handler.eval_dataloader, "dataset", None)
        if loss is not None and has_length(rows):
            own = self._not_repeated(inputs, len(rows), self.args.eval_batch_size)
            if 0 < own < examples_in(inputs):
                few = first_examples(inputs, own)
                loss, *_ = super().prediction_step(model, few, True, *args, **kwargs)
        return (loss, *found)

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
        step_state = self.step_state_at(self.state.global_step)
        # A collator of limbeck's masks other tokens, or shows other views, in every epoch.
        if isinstance(self.data_collator, Collator):
            inputs = self.data_collator.for_epoch(
                inputs, seed=step_state.seed, epoch=step_state.epoch
            )
        if self.padded_width is not None:
            inputs = padded(inputs, self.padded_width, self.student.config.pad_token_id or 0)
        step = StepInputs.of(inputs, self.transform, step_state, self.args.device)
        outputs = model(step, step_state=step_state, teacher=self._asked(step_state))
        loss = self._weighed(outputs, inputs, step_state)
        seen = 0 if isinstance(on_host(inputs), RepeatedExamples) else examples_in(inputs)
        self.progress.add_examples(seen, self.args.device)
        return (loss, outputs) if return_outputs else loss

    def _weighed(
        self, outputs: dict[str, Any], inputs: dict[str, Tensor], step_state: StepState
    ) -> Tensor:
        """A micro-batch's loss, each term as much as it weighs in the step; the log is told of the terms."""
        terms, loss, counts = outputs["terms"], outputs["loss"], self.counts_of(inputs)
        of_labelled = self.objectives.of(step_state.teacher).labelled_terms
        weights = self.weights_of(counts)
        weighed = terms
        if not weights.even:
            weighed = weights.weighed(terms, of_labelled)
            loss = self.objectives.total(weighed, step_state)
        labelled = None
        if self._some_unlabelled and (own := {n: terms[n] for n in terms if n in of_labelled}):
            labelled = LabelledTerms(own, counts.labelled)
        if self.sampled_team is not None:  # also by whose they are
            weighed = weighed | {f"loss ({self.sampled_team.names[step_state.teacher]})": loss}
        self.progress.add(weighed, loss, labelled)
        return loss

    @cached_property
    def _some_unlabelled(self) -> bool:
        """Whether training examples may have no label; of a stream nobody knows."""
        if no_unlabelled(self.kind) is not None:
            return False
        labels = facts_of(self.train_dataset).labels
        return labels is None or not labelled_rows(labels).all()

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """As the Trainer's; where a curriculum trains the head alone, no other weight is moved."""
        loss = super().training_step(*args, **kwargs)
        if (curriculum := self.objectives.curriculum) is not None:
            train_head_alone(self.student, curriculum, self.step_state_at(self.state.global_step))
        return loss

    def _asked(self, step_state: StepState) -> Callable[[StepInputs, Request], Trace] | None:
        """The teacher of a step, with the time it takes."""
        if self.teacher is None:
            return None
        answering = self.teacher.at(step_state)

        def answer(inputs: StepInputs, request: Request) -> Trace:
            measured = self.progress.stopwatch.measure("teacher", self.args.device)
            with measured, self.accelerator.autocast():
                return answering(inputs, request)

        return answer

    # ---- logging ----

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the mean of every named term since the last log to the Trainer's own entries."""
        if "loss" in logs and "learning_rate" in logs:
            stop_if_not_finite(self.progress, self.state.global_step)
            means = self.progress.since_log.means()
            if (labelled := self.progress.since_log.labelled()) is not None:
                logs["labelled"] = labelled
            # The Trainer's own sum forgets, when a run is continued, what came after the last log.
            logs["loss"] = means.pop("loss", logs["loss"])
            logs.update({f"term/{name}": value for name, value in means.items()})
            self.progress.since_log.clear()
        super().log(logs, start_time)


# What stands behind a student's last layer, and training it alone.


def head_of(student: PreTrainedModel) -> list[nn.Parameter]:
    """The weights behind a model's last layer: of its head, and of the pooling before it.

    None that the body uses too, as a tied output embedding; none at all where a model does not say
    what its body is.
    """
    body = student.base_model
    pooler = getattr(body, "pooler", None)
    pooling = [] if pooler is None else [*pooler.parameters()]
    inside = {id(weight) for weight in body.parameters()} - {id(weight) for weight in pooling}
    return [weight for weight in student.parameters() if id(weight) not in inside]


def train_head_alone(
    student: PreTrainedModel, curriculum: Curriculum, step_state: StepState
) -> None:
    """After a backward pass: if a curriculum says so, no other weight of the student is moved.

    An optimiser passes by a weight without a gradient: neither momentum nor decay moves it, and the
    norm that is clipped is the head's.
    """
    if not curriculum.head_alone(step_state):
        return
    head = {id(weight) for weight in head_of(student)}
    for weight in student.parameters():
        if id(weight) not in head:
            weight.grad = None
