"""The contract of an input transform, and the registry of all of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BaseModel, BeforeValidator, Field, SerializeAsAny
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import Passes, Request, Trace
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.support.registry import Registry
from limbeck.support.settings import RefusedValueError, Settings
from limbeck.support.step_state import StepState

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class ModelPass:
    """The pass to run in a transform: a forward pass of one model on its own form of the batch.

    Attributes:
        model: student or teacher.
        side: which of them it is.
        batch: as this model reads it, on its device.
        request: the requested activations on the transformed batch.
        clean: the student's requested activations on the original batch.
        run: the engine's own capture function (it may be compiled), for an unchanged batch.
        passes: where every pass is to be noted, for the count of FLOPs.
    """

    model: PreTrainedModel
    side: Literal["student", "teacher"]
    batch: Batch
    request: Request
    clean: Request
    run: Callable[[Batch, Request], Trace]
    passes: Passes

    def plain(self) -> Trace:
        """The pass on the batch as it is."""
        trace = self.run(self.batch, self.request)
        gradient = torch.is_grad_enabled()
        self.passes.add(self.model, self.batch, self.request, gradient=gradient)
        return trace


class InputTransform(ABC):
    """A change to the inputs of every training step.

    Evaluation and the shipped student never see it. Instances contain settings only: the differences from step
    to step is sampled.

    Attributes:
        name: its registered name.
        settings: the class of its settings, whose instance `__init__` is given.
        why_live: why teacher outputs that were stored before training cannot serve; None if they can.
        needs_token_ids: whether batches must have `input_ids`.
        mixes: whether it mixes examples of a batch with each other: labels are then from two examples,
            and batches are not of similar length by default.
    """

    name: ClassVar[str]
    settings: ClassVar[type[Settings]]
    why_live: ClassVar[str | None] = None
    needs_token_ids: ClassVar[bool] = False
    mixes: ClassVar[bool] = False

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def draw(self, batch: Batch, step_state: StepState, device: torch.device) -> Any:
        """The random values of a step, the same for all models: a function of batch, seed and step alone."""
        return None

    def sees_first(self, student: PreTrainedModel) -> Request:
        """The student's activations that it needs before the teacher's inputs are known; by default nothing.

        If it is anything, the student runs before the teacher, and `choose` is given its trace.
        """
        return Request()

    def choose(self, batch: Batch, sampled: Any, student: Trace) -> Any:
        """The random values, completed by the student's activations. No gradient may go through it."""
        return sampled

    @abstractmethod
    def capture(self, asked: ModelPass, sampled: Any) -> Trace:
        """The requested pass, on transformed inputs; `asked.plain()` if they stay as they are.

        Raises:
            LimbeckError: a request for activations that transformed inputs cannot provide.
        """

    @problem_list
    def problems(self, batch: Batch, models: Mapping[str, PreTrainedModel]) -> Iterator[Problem]:
        """What pre-flight shows of a few real examples and the models by what messages call them."""
        if self.needs_token_ids and batch.get("input_ids") is None:
            yield Problem(
                f"{self.name}: it reads input_ids, and the batch has no input_ids",
                f"leave {self.name} out for images",
            )

    def check(self, batch: Batch) -> None:
        """Raise LimbeckError for a batch that it cannot transform."""
        wrong = [one for one in self.problems(batch, {}) if one.severity == "error"]
        raise_problems(wrong)


INPUT_TRANSFORMS: Registry[type[InputTransform]] = Registry("input transform")


class TransformSettings(Settings):
    """Settings of a transform that a recipe's `input_transform` names."""

    use: str = Field(description="masked-kd, or a transform that you have registered")

    @classmethod
    def named_by(cls, given: Any) -> type[BaseModel]:
        """The transform's own class, by `use`."""
        name = given.get("use") if isinstance(given, Mapping) else None
        known = isinstance(name, str) and name in INPUT_TRANSFORMS
        settings = INPUT_TRANSFORMS.get(str(name)).settings if known else cls
        return settings if issubclass(settings, TransformSettings) else cls


def _of_its_name(value: Any) -> Any:
    """The settings' own class, by `use`."""
    if not isinstance(value, Mapping) or not isinstance(value.get("use"), str):
        return value
    name, setting = value["use"], "input_transform.use"
    try:
        settings = INPUT_TRANSFORMS.get(name, f"{setting}:").settings
        if not issubclass(settings, TransformSettings):
            raise LimbeckError(
                f"{setting}: {name} has a key of its own", f"write it as {name}: {{…}} instead"
            )
    except LimbeckError as error:
        raise RefusedValueError(error) from None
    return settings.model_validate(dict(value))


TransformSpec = Annotated[SerializeAsAny[TransformSettings], BeforeValidator(_of_its_name)]
"""Settings of any registered transform, of that transform's class."""


def chosen(mixup: Settings | None, spec: TransformSettings | None) -> InputTransform | None:
    """The transform of a recipe's `mixup` or `input_transform`; None for neither."""
    if spec is not None:
        return _made(spec.use, spec)
    return None if mixup is None else _made("mixup", mixup)


def _made(name: str, settings: Settings) -> InputTransform:
    make: Callable[[Settings], InputTransform] = INPUT_TRANSFORMS.get(name)
    return make(settings)


# The inputs of one training step, as student and teachers are given them.


_NOTHING = Request()


@dataclass(frozen=True)
class StepInputs:
    """A batch, and how a model is captured on it.

    Attributes:
        batch: as the collator made it: the student's inputs and the labels.
        transform: the change to it; None for no change.
        sampled: the transform's random values for this step.
    """

    batch: Batch
    transform: InputTransform | None = None
    sampled: Any = None

    @classmethod
    def of(
        cls,
        batch: Mapping[str, Tensor],
        transform: InputTransform | None,
        step_state: StepState,
        device: torch.device,
    ) -> "StepInputs":
        """The inputs of a step; its random values are on `device`.

        Raises:
            LimbeckError: the transform cannot use the batch.
        """
        if transform is None:
            return cls(batch)
        transform.check(batch)
        return cls(batch, transform, transform.draw(batch, step_state, device))

    @property
    def as_stored(self) -> bool:
        """Whether teacher outputs that were stored before training are valid for this step."""
        return self.transform is None or self.transform.why_live is None

    def sees_first(self, student: PreTrainedModel) -> Request:
        """The student's activations that are needed before a teacher runs."""
        return _NOTHING if self.transform is None else self.transform.sees_first(student)

    def after(self, student: Trace) -> "StepInputs":
        """The inputs once the student has been seen."""
        if self.transform is None:
            return self
        sampled = self.transform.choose(self.batch, self.sampled, student)
        return replace(self, sampled=sampled)

    def of_student(
        self,
        model: PreTrainedModel,
        request: Request,
        clean: Request,
        run: Callable[[Batch, Request], Trace],
        passes: Passes,
    ) -> Trace:
        """The student's activations; `clean`: its request on the original batch."""
        asked = ModelPass(model, "student", self.batch, request, clean, run, passes)
        return self._capture(asked)

    def of_teacher(
        self,
        model: PreTrainedModel,
        batch: Batch,
        request: Request,
        run: Callable[[Batch, Request], Trace],
        passes: Passes,
    ) -> Trace:
        """A teacher's activations on the same examples; `batch`: in this teacher's form."""
        return self._capture(ModelPass(model, "teacher", batch, request, _NOTHING, run, passes))

    def _capture(self, asked: ModelPass) -> Trace:
        if self.transform is None:
            return asked.plain()
        return self.transform.capture(asked, self.sampled)


def as_inputs(inputs: StepInputs | Mapping[str, Tensor]) -> StepInputs:
    """A plain batch is the inputs of a step that nothing is done to."""
    return inputs if isinstance(inputs, StepInputs) else StepInputs(inputs)
