"""How much each example counts in the terms that learn from a teacher's logits. Part of `limbeck.objectives`.

The weight depends on the teacher's confidence and the student's uncertainty: most of a teacher's mistakes are
on examples of which it is unsure. Weights have no gradient. A term reads them from the batch (the column
`EXAMPLE_WEIGHTS` of `limbeck.tasks`), and a mean over the batch becomes Σ w·l / B
(`functional.weighted_mean`). Ways of weighing are registered, as objectives are.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BaseModel, BeforeValidator, Field, SerializeAsAny
from torch import Tensor, nn

from limbeck import functional as F
from limbeck.functional.labels import has_label
from limbeck.objectives.base import Shape
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import Registry
from limbeck.support.settings import Number, RefusedValueError, Settings
from limbeck.support.step_state import StepState
from limbeck.tasks.abstract_type import no_unlabelled

COUNTED = "counted"
"""The name, among the logged values, of the share of examples with a weight above 0."""


class WeightingSettings(Settings):
    """A recipe's `example_weights`: the weighting method and its settings."""

    use: str = Field(description="confidence, llkd, or a way that you have registered")

    @classmethod
    def named_by(cls, given: Any) -> type[BaseModel]:
        """The way's own class, by `use`."""
        name = given.get("use") if isinstance(given, Mapping) else given
        known = isinstance(name, str) and name in EXAMPLE_WEIGHTINGS
        return EXAMPLE_WEIGHTINGS.get(str(name)).settings_class if known else cls


class ExampleWeighting(nn.Module, ABC):
    """A method of weighting examples. Its running statistics are buffers, which checkpoints contain.

    Args:
        settings: from the recipe.
        classes: the number of classes.
    """

    settings_class: ClassVar[type[WeightingSettings]]

    def __init__(self, settings: Any, classes: int) -> None:
        super().__init__()
        self.settings = settings
        self.classes = classes

    @abstractmethod
    def forward(self, student: Tensor, teacher: Tensor, step_state: StepState) -> Tensor:
        """Weights (B,), none below 0, of both sides' logits (B, C), float32 and without gradient."""


EXAMPLE_WEIGHTINGS: Registry[type[ExampleWeighting]] = Registry("example weighting")
"""Every way by the value of `example_weights.use` that names it."""


class ConfidenceSettings(WeightingSettings):
    """By the teacher's confidence."""

    use: Literal["confidence"]


@EXAMPLE_WEIGHTINGS.register("confidence")
class ByConfidence(ExampleWeighting):
    """w_i = max_c p_T(c | x_i): the teacher's probability of its likeliest class."""

    settings_class = ConfidenceSettings

    def forward(self, student: Tensor, teacher: Tensor, step_state: StepState) -> Tensor:
        """The teacher's top probability."""
        return F.top_probability(teacher)


class LlkdSettings(WeightingSettings):
    """LLKD: by the teacher's confidence and the student's uncertainty."""

    use: Literal["llkd"]
    momentum: Number = Field(
        0.99, ge=0, lt=1, description="share of the thresholds that a batch leaves as they are"
    )


@EXAMPLE_WEIGHTINGS.register("llkd")
class Llkd(ExampleWeighting):
    """LLKD (Li et al. 2024, "Learning with Less"): weight examples with a sure teacher and an unsure student.

    With p_i the teacher's top probability, c_i its class and u_i the entropy of the student's
    prediction over ln C:

        w_i = p_i · u_i   if p_i ≥ τ_T(c_i) and u_i ≥ τ_S(c_i), otherwise 0

    The thresholds follow the run by exponential means with the momentum λ, from 1/C and 0 at its
    start. The teacher has one for each class, lower for a class of which it is less sure:

        m ← λ·m + (1 − λ)·mean_i p_i
        q(c) ← λ·q(c) + (1 − λ)·mean_i p_T(c | x_i)
        τ_T(c) = m · q(c) / max_c' q(c')

    which are the self-adaptive thresholds of FreeMatch (Wang et al. 2023, Eq. 5–8; they decide as its released code
    does, `benchmarks/beside_freematch.py`). The student's is
    its mean uncertainty of the examples of a class, which batches without the class leave as it is:

        τ_S(c) ← λ·τ_S(c) + (1 − λ)·mean over {i: c_i = c} of u_i

    The paper's part, by summaries of it (its abstract names neither threshold nor weight): the teacher's confidence
    is its top probability and the student's uncertainty the entropy of its prediction; both have thresholds τ_T(y),
    τ_S(y) of their own for each class, which follow the run by moving averages; an example counts where both pass; the
    loss is weighted. Neither its equations nor released code could be read, so that these are ours and may deviate: the
    thresholds' updates (their initial values, their momentum, and whether the student's is scaled between classes as
    the teacher's is: one summary has both follow the complete run and each class), the entropy's division by
    ln C (which changes no comparison with a mean of it), the product p·u as the weight, and a mean over the batch
    rather than over the examples that count. Starting the student's at 0 lets every example through at first.
    Processes that share no forward pass have the thresholds of the first one.
    """

    settings_class = LlkdSettings
    confidence: Tensor
    shares: Tensor
    uncertainty: Tensor

    def __init__(self, settings: LlkdSettings, classes: int) -> None:
        super().__init__(settings, classes)
        self.register_buffer("confidence", torch.tensor(1.0 / classes))
        self.register_buffer("shares", torch.full((classes,), 1.0 / classes))
        self.register_buffer("uncertainty", torch.zeros(classes))

    def forward(self, student: Tensor, teacher: Tensor, step_state: StepState) -> Tensor:
        """Apply the weights of the class docstring; the thresholds are updated with the batch first."""
        sure, unsure = F.top_probability(teacher), F.normalized_entropy(student)
        classes = teacher.argmax(-1)
        self._follow(teacher.float().softmax(-1), sure, unsure, classes)
        enough = F.class_thresholds(self.confidence, self.shares)
        return F.sure_and_unsure(sure, unsure, enough[classes], self.uncertainty[classes])

    def _follow(self, shares: Tensor, sure: Tensor, unsure: Tensor, classes: Tensor) -> None:
        new = 1.0 - float(self.settings.momentum)
        self.confidence.lerp_(sure.mean(), new)
        self.shares.lerp_(shares.mean(0), new)
        self.uncertainty.lerp_(F.class_means(unsure, classes, self.uncertainty), new)


class MinConfidence(nn.Module):
    """w_i = 1 if the teacher's top probability is at least a bound, otherwise 0 (`min_confidence`)."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, student: Tensor, teacher: Tensor, step_state: StepState) -> Tensor:
        """Ones and zeros."""
        return (F.top_probability(teacher) >= self.bound).float()


class ExampleWeights(nn.Module):
    """The weights that a recipe asks for, multiplied.

    Args:
        ways: of weighing by both sides' logits.
        unlabelled: the weight of an example without a label; one with a label has 1.
    """

    def __init__(self, ways: Sequence[nn.Module], unlabelled: float = 1.0) -> None:
        super().__init__()
        self.ways = nn.ModuleList(ways)
        self.unlabelled = unlabelled

    @torch.no_grad()
    def forward(
        self, student: Tensor, teacher: Tensor, step_state: StepState, labels: Tensor | None = None
    ) -> Tensor:
        """Weights (B,) of both sides' logits (B, C); without labels (B,) no example has one."""
        student, teacher = student.detach(), teacher.detach()
        found = [way(student, teacher, step_state) for way in self.ways]
        if self.unlabelled != 1.0:
            ones = torch.ones(len(student), device=student.device)
            known = torch.zeros_like(ones).bool() if labels is None else has_label(labels)
            found.append(ones.masked_fill(~known, self.unlabelled))
        return torch.stack(found).prod(0)


def example_weights(
    shape: Shape,
    spec: WeightingSettings | None,
    min_confidence: float | None,
    unlabelled_weight: float = 1.0,
) -> ExampleWeights | None:
    """What weighs examples, as a recipe has it; None where all count alike.

    Raises:
        LimbeckError: the task has no classes of complete examples, which confidence requires.
    """
    said = {"example_weights": spec, "min_confidence": min_confidence}
    asked = [key for key, value in said.items() if value is not None]
    if not asked and unlabelled_weight == 1.0:
        return None
    if unlabelled_weight != 1.0 and (refused := no_unlabelled(shape.kind)) is not None:
        raise LimbeckError(
            f"unlabelled_weight: task type {shape.kind.name} cannot mix labeled and unlabeled rows: {refused.why}",
            "leave it out",
        )
    if asked and (shape.number or not shape.one_label):
        what = "a regression" if shape.number else f"a task of kind {shape.kind.name}"
        raise LimbeckError(
            f"{', '.join(asked)}: confidence is the probability of an example's class, and {what} has no classes",
            "leave it out",
        )
    ways: list[nn.Module] = []
    if min_confidence is not None:
        if min_confidence <= 1 / shape.student.labels:
            raise LimbeckError(
                f"min_confidence: {min_confidence:g} leaves nothing out: of {shape.student.labels} classes "
                f"the likeliest has at least {1 / shape.student.labels:.2g}",
                "raise it, or leave it out",
            )
        ways.append(MinConfidence(min_confidence))
    if spec is not None:
        way = EXAMPLE_WEIGHTINGS.get(spec.use, "example_weights.use:")
        ways.append(way(spec, shape.student.labels))
    return ExampleWeights(ways, unlabelled_weight)


def _of_its_name(value: Any) -> Any:
    """Choose the settings class by `use`; a name alone selects its defaults."""
    given = {"use": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or not isinstance(given.get("use"), str):
        return value
    try:
        way = EXAMPLE_WEIGHTINGS.get(given["use"], "example_weights.use:")
    except LimbeckError as error:
        raise RefusedValueError(error) from None
    return way.settings_class.model_validate(dict(given))


WeightingSpec = Annotated[SerializeAsAny[WeightingSettings], BeforeValidator(_of_its_name)]
"""Settings of any registered way of weighing, of its own class."""
