"""A step of a training: the state of the run, its teacher, the weighted terms, and the log.

Part of `limbeck.training`. Each is a function of the step alone, so that a resumed run continues unchanged.
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cached_property, partial
from typing import Any, cast

import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.trainer_utils import has_length

from limbeck.activations import CompiledCapture, Passes, Request, Trace, capture
from limbeck.data import Collator
from limbeck.data.row_facts import facts_of
from limbeck.input_transforms import InputTransform, StepInputs
from limbeck.objectives import Objectives, TeamObjectives
from limbeck.static import StaticStudent
from limbeck.support.machine import RepeatedExamples, is_first, largest, on_host
from limbeck.support.step_state import StepState
from limbeck.tasks import TaskType
from limbeck.tasks.abstract_type import labelled_rows, no_unlabelled
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import SampledTeam, Team, members_of
from limbeck.training import feeding
from limbeck.training.progress import LabelledTerms, PassesState, Progress, stop_if_not_finite

_NO_TEACHER = Trace()
_NOTHING = Request()
# The step's generator also has other users.
_STREAM = 2


class Distiller(nn.Module):
    """Student and objectives under one `forward`.

    Args:
        student: the model that is trained and shipped.
        objectives: the terms; their projections are trained with the student and never shipped.
        kind: the student's task type.
        compiled: run the student's training passes as compiled graphs, but for inputs that are
            transformed.
        packed: run the student's training passes on batches without padding.
        bandit: learns which teacher of a team to draw; checkpoints contain it.
        compact: in evaluation keep only what scores need (`TaskType.compact_outputs`), not the logits.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        objectives: Objectives | TeamObjectives,
        *,
        kind: TaskType,
        compact: bool = False,
        compiled: bool = False,
        packed: bool = False,
        bandit: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.student = student
        self.objectives = objectives
        self.bandit = bandit
        self.kind = kind
        self.compact = compact
        self.passes = Passes()
        """The student's passes in training."""
        self._capture: Callable[[Mapping[str, Tensor], Request], Trace] = (
            CompiledCapture(student) if compiled else partial(capture, student, packed=packed)
        )

    @property
    def config(self) -> Any:
        """The student's configuration, where the Trainer looks for it."""
        return self.student.config

    @property
    def main_input_name(self) -> str:
        """Which column of a batch the student reads, where the Trainer looks for it."""
        return self.student.main_input_name

    def get_input_embeddings(self) -> nn.Module:
        """The student's, on which the Trainer puts NEFTune's noise."""
        return self.student.get_input_embeddings()

    def activation_checkpointing_enable(self, **kwargs: Any) -> None:
        """Trade time for memory in the student."""
        self.student.activation_checkpointing_enable(**kwargs)

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        """Trade time for memory in the student."""
        self.student.gradient_checkpointing_enable(**kwargs)

    def forward(
        self,
        inputs: StepInputs | None = None,
        *,
        step_state: StepState | None = None,
        teacher: Callable[[StepInputs, Request], Trace] | None = None,
        **batch: Tensor,
    ) -> dict[str, Any]:
        """The loss and its terms for a step's inputs. For a plain batch: the logits, and their loss if labelled.

        Args:
            inputs: of a training step.
            step_state: the state of the run, with `inputs`.
            teacher: the teacher of this step; it runs only if a term needs something of it.
            **batch: in evaluation.
        """
        if inputs is None:
            return self._predict(batch)
        assert step_state is not None
        student, taught = self._both(inputs, step_state, teacher)
        objectives = self.objectives.of(step_state.teacher)
        terms = objectives(student, taught, inputs.batch, step_state)
        return {"loss": objectives.total(terms, step_state), "terms": terms}

    def _both(
        self,
        inputs: StepInputs,
        step_state: StepState,
        teacher: Callable[[StepInputs, Request], Trace] | None,
    ) -> tuple[Trace, Trace]:
        """What student and teacher show: the teacher first, unless its inputs depend on the student."""
        asked = self.objectives.of(step_state.teacher).request("teacher", step_state)

        def of_teacher(inputs: StepInputs) -> Trace:
            if teacher is None or not (asked.items or asked.logits):
                return _NO_TEACHER
            return teacher(inputs, asked)

        first = inputs.sees_first(self.student)
        if not first.items and not first.logits:
            shown_by_teacher = of_teacher(inputs)
            return self._shown(inputs, step_state), shown_by_teacher
        shown = self._shown(inputs, step_state, first)
        return shown, of_teacher(inputs.after(shown))

    def _shown(self, inputs: StepInputs, step_state: StepState, also: Request = _NOTHING) -> Trace:
        objectives = self.objectives.of(step_state.teacher)
        request = objectives.request("student", step_state) | also
        run = self._capture
        if isinstance(self.student, StaticStudent):
            run = partial(_drawing, run, step_state.device_generator(self.student.device, _STREAM))
        plain = inputs.transform is None
        clean = _NOTHING if plain else objectives.request("clean", step_state)
        return inputs.of_student(self.student, request, clean, run, self.passes)

    def _predict(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        logits = capture(self.student, batch, Request.of_logits()).logits
        assert logits is not None  # capture rejects a model without a head
        kept = self.kind.compact_outputs(self.student, batch, logits) if self.compact else logits
        if any(name not in batch for name in self.kind.label_names):
            return {"logits": kept}
        return {"loss": self.kind.hard_label(logits, batch), "logits": kept}


def _drawing(
    run: Callable[[Mapping[str, Any], Request], Trace],
    generator: torch.Generator,
    batch: Mapping[str, Tensor],
    request: Request,
) -> Trace:
    """A pass of a static student, which samples the tokens that it leaves out."""
    return run({**batch, "generator": generator}, request)


# The steps.


class TakesSteps(feeding.FeedsExamples):
    """A Trainer whose loss is the weighted sum of the objectives' terms, and that knows what its work costs."""

    progress: Progress
    student: PreTrainedModel
    teacher: Teacher | Team | None
    objectives: Objectives | TeamObjectives
    transform: InputTransform | None
    padded_width: int | None
    parts: Sequence[Any] = ()
    """The parts that have been trained before (`limbeck.training.parts.FinishedPart`)."""
    own_callbacks: set[int]
    """The trainer's own callbacks, by id."""
    _batches: tuple[Sized, int] | None = None
    """A loader, and how many batches it has in an epoch."""

    @property
    def distiller(self) -> Distiller:
        """Student and objectives, out of whatever the Trainer wrapped around them."""
        found: Distiller = self.accelerator.unwrap_model(self.model)
        return found

    @property
    def sampled_team(self) -> SampledTeam | None:
        """The team whose members take turns, if that is who teaches."""
        return self.teacher if isinstance(self.teacher, SampledTeam) else None

    # ---- passes of the models ----

    @property
    def _counted(self) -> list[Distiller | Teacher]:
        return [self.distiller, *members_of(self.teacher)]

    def begin_counting(self) -> None:
        """Forget passes of other trainings."""
        for one in self._counted:
            one.passes = Passes()

    def passes(self) -> PassesState:
        """What student and teachers have been run on so far. Every process has to call it."""
        own = [one.passes.state() for one in self._counted]
        every: list[list[Any]] = gather_object([own])
        student, *teachers = [Passes.of(*states).state() for states in zip(*every, strict=True)]
        return {"student": student, "teachers": teachers}

    def restore_passes(self, state: PassesState | None) -> None:
        """Continue from a checkpoint's passes, which cover all processes: the first one takes them."""
        self.begin_counting()
        if state is None or not is_first():
            return
        self.distiller.passes = Passes.of(state["student"])
        for teacher, own in zip(members_of(self.teacher), state["teachers"], strict=True):
            teacher.passes = Passes.of(own)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As the Trainer's; its time is counted apart."""
        with self.progress.parts.part("evaluation"):
            return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; its time is counted apart."""
        with self.progress.parts.part("evaluation"):
            return super().predict(*args, **kwargs)

    # ---- the state of the run ----

    def step_state_at(self, step: int) -> StepState:
        """The moment of an optimization step, counted from 0: a function of the step alone."""
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
            sharing=self.sharing,
        )

    def _steps_per_epoch(self) -> int:
        loader = cast(Sized, self.callback_handler.train_dataloader)
        if not has_length(loader):  # a stream is one long epoch
            return max(self.state.max_steps, 1)
        if self._batches is None or self._batches[0] is not loader:
            self._batches = loader, len(loader)
        return max(-(-self._batches[1] // self.args.gradient_accumulation_steps), 1)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; where there are no labels, no loss of theirs is among the metrics."""
        found = super().evaluation_loop(*args, **kwargs)
        if not self.kind.has_label_loss and found.metrics is not None:
            found.metrics.pop(f"{kwargs.get('metric_key_prefix', 'eval')}_loss", None)
        return found

    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, *args: Any, **kwargs: Any
    ) -> Any:
        """As the Trainer's; the loss covers the process's own rows, without the rows that fill up its last batch."""
        loss, *found = super().prediction_step(model, inputs, prediction_loss_only, *args, **kwargs)
        rows = getattr(self.callback_handler.eval_dataloader, "dataset", None)
        if loss is not None and has_length(rows):
            own = self._not_repeated(inputs, len(rows), self.args.eval_batch_size)
            if 0 < own < feeding.examples_in(inputs):
                few = feeding.first_examples(inputs, own)
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
        width = self.padded_width
        if self.transform is not None and self.transform.mixes and step_state.sharing > 1:
            width = width or largest(inputs["input_ids"].shape[1])  # of every process's examples
        if width is not None:
            inputs = feeding.padded(inputs, width, self.student.config.pad_token_id or 0)
        step = StepInputs.of(inputs, self.transform, step_state, self.args.device)
        outputs = model(step, step_state=step_state, teacher=self._asked(step_state))
        loss = self._weighed(outputs, inputs, step_state)
        seen = 0 if isinstance(on_host(inputs), RepeatedExamples) else feeding.examples_in(inputs)
        self.progress.add_examples(seen, self.args.device)
        return (loss, outputs) if return_outputs else loss

    def _weighed(
        self, outputs: dict[str, Any], inputs: dict[str, Tensor], step_state: StepState
    ) -> Tensor:
        """A micro-batch's loss, with each term weighted by its share in the step; the terms are logged."""
        terms, loss, counts = outputs["terms"], outputs["loss"], self.counts_of(inputs)
        objectives = self.objectives.of(step_state.teacher)
        of_labelled = objectives.labelled_terms
        weights = self.weights_of(counts)
        weighed = terms
        if not weights.even:
            weighed = weights.weighed(terms, of_labelled)
            loss = objectives.total(weighed, step_state)
        labelled = None
        if self._some_unlabelled and (own := {n: terms[n] for n in terms if n in of_labelled}):
            labelled = LabelledTerms(own, counts.labelled)
        if self.sampled_team is not None:  # also by whose they are
            weighed = weighed | {f"loss ({self.sampled_team.names[step_state.teacher]})": loss}
        self.progress.add(weighed, loss, labelled)
        found: Tensor = loss
        return found

    @cached_property
    def _some_unlabelled(self) -> bool:
        """Whether training examples may have no label; unknown for a stream."""
        if no_unlabelled(self.kind) is not None:
            return False
        labels = facts_of(self.train_dataset).labels
        return labels is None or not labelled_rows(labels).all()

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """As the Trainer's; where a curriculum trains the head alone, no other weight is moved."""
        loss = super().training_step(*args, **kwargs)
        curriculum = self.objectives.of(0).curriculum  # one for all teachers
        if curriculum and curriculum.head_alone(self.step_state_at(self.state.global_step)):
            # An optimiser passes by a weight without a gradient: neither momentum nor decay moves it, and the
            # norm that is clipped is the head's.
            head = {id(weight) for weight in head_of(self.student)}
            for weight in self.student.parameters():
                weight.grad = weight.grad if id(weight) in head else None
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


# The layers after a student's last encoder layer.


def head_of(student: PreTrainedModel) -> list[nn.Parameter]:
    """The weights behind a model's last layer: of its head, and of the pooling before it.

    Excludes weights that the body uses too, such as a tied output embedding; empty if the model does not
    identify its body.
    """
    body = student.base_model
    pooler = getattr(body, "pooler", None)
    pooling = [] if pooler is None else [*pooler.parameters()]
    inside = {id(weight) for weight in body.parameters()} - {id(weight) for weight in pooling}
    return [weight for weight in student.parameters() if id(weight) not in inside]
