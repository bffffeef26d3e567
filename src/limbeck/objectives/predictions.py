"""The prediction-layer term of a teacher: its soft label. Part of `limbeck.objectives`.

The task type determines the positions of a batch over which it runs (`limbeck.tasks`).
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from collections.abc import Mapping as Batch
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import Request, Trace
from limbeck.functional import labelled_positions
from limbeck.functional.partial_logits import KeptTokens, PartialLogits, partial_soft_label
from limbeck.objectives.base import NOTHING, Objective, Shape, TermSettings
from limbeck.objectives.registration import objective
from limbeck.support.errors import LimbeckError, Problem, problem_list, unknown
from limbeck.support.machine import on_host
from limbeck.support.settings import Number, Temperature
from limbeck.support.step_state import StepState
from limbeck.support.words import listed
from limbeck.tasks import SoftRule
from limbeck.tasks.rules import EXAMPLE_WEIGHTS, AtTemperature, HardRule, need_labels


class DistributionSpec(TermSettings):
    """What comparisons of both sides' distributions have in common."""

    unsaid: ClassVar[tuple[str, ...]] = ("tokens",)

    temperature: Temperature = Field(1.0, description="divides both sides' logits")
    scale_by_t2: bool = Field(False, description="multiply by the squared temperature")
    tokens: str | None = Field(
        None,
        description="compared and stored part of logits over a vocabulary: topK, the K most likely tokens and all "
        "others as one more outcome, or sampleN, N sampled ones; default: all",
    )

    @field_validator("tokens")
    @classmethod
    def _is_known(cls, word: str | None) -> str | None:
        if word is not None and "@" in word:
            raise ValueError(f"{word!r}: the temperature is the term's own")
        try:
            _ = word and KeptTokens.parse(word)
        except LimbeckError as error:
            raise ValueError(f"{word!r}; {error.problems[0].fix}") from None
        return word

    @property
    def kept(self) -> KeptTokens | None:
        """The tokens of a vocabulary that are compared; None for all."""
        return None if self.tokens is None else KeptTokens.parse(self.tokens, self.temperature)


class SoftSpec(DistributionSpec):
    """The teacher's output distribution; squared error of the outputs for regression."""

    unsaid = ("standardize", "tokens")

    mean_over: Literal["batch", "batch_and_classes"] = Field(
        "batch",
        description="also divide by the number of classes, as some releases do, unless that is done "
        "already (several labels per row)",
    )
    regression: Literal["teacher", "tempered", "labels"] = Field(
        "teacher",
        description="target of a number: the teacher's; tempered: both sides' divided by "
        "the temperature (CR-ILD's release); labels: only the labels (TinyBERT's release)",
    )

    standardize: bool = Field(
        False,
        description="z-scores of both sides' logits first, by example, over a vocabulary by token (Sun et al. 2024)",
    )

    @property
    def reads_numbers(self) -> bool:
        """Where a release learns from the labels of a regression."""
        return self.regression == "labels"


class OfDistributions(Objective):
    """A comparison of both sides' distributions, over a vocabulary of all tokens or of some.

    Raises:
        LimbeckError: there is no vocabulary of which `tokens` could be some.
    """

    settings: DistributionSpec

    def __init__(self, settings: DistributionSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        self.kept = settings.kept
        if self.kept is not None and shape.outcomes != math.inf:
            raise LimbeckError(
                f"{setting}.tokens: {settings.tokens} keeps tokens of a vocabulary, and the logits of task type "
                f"{shape.kind.name} are not over one",
                "leave it out",
            )

    def request(self, side: str, step_state: StepState) -> Request:
        """Both sides' logits, of the teacher's the kept tokens."""
        asked = super().request(side, step_state)
        if side == "teacher" and self.kept is not None and asked.logits:
            return Request(asked.items, asked.logits, self.kept)
        return asked

    def part(self, teacher: Trace, batch: Batch[str, Tensor]) -> PartialLogits | None:
        """The kept tokens of the teacher's logits; None where all are compared."""
        if self.kept is None or teacher.partial is not None:
            return teacher.partial
        # A live teacher's, or another term looks at all of them.
        return self.kept.of(present(teacher.logits), _numbers(batch))


@objective("soft_cross_entropy", "soft_kl", settings=SoftSpec)
class SoftLabel(OfDistributions):
    """The teacher's outputs as targets (Hinton et al.): soft cross-entropy or KL.

    Squared error of the outputs for regression, unless the recipe's `regression` selects another.
    """

    weighs_examples = True
    counts_labelled = True  # where the labels of a regression are the target
    settings: SoftSpec

    def __init__(self, settings: SoftSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        self.rule = SoftRule(
            settings.compare,
            settings.temperature,
            settings.scale_by_t2,
            settings.regression == "tempered",
        )
        if settings.standardize and not shape.outcomes:
            raise LimbeckError(
                f"{setting}.standardize: z-scores need classes that exclude each other, and there are no such classes",
                "leave it out",
            )
        self.of_labels = shape.number and settings.reads_numbers
        if self.kept is not None and settings.standardize:
            raise LimbeckError(
                f"{setting}.tokens: z-scores (standardize) need the full vocabulary",
                "leave one of them out",
            )

    @property
    def means_over_labelled(self) -> bool:
        """Where the labels of a regression are the target."""
        return self.of_labels

    def request(self, side: str, step_state: StepState) -> Request:
        """Both sides' logits, or the student's alone where the labels are the target."""
        if self.of_labels and side == "teacher":
            return NOTHING
        return super().request(side, step_state)

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, …) of both sides, or of the student and the batch's labels."""
        logits, kind = present(student.logits), self.shape.kind
        if self.of_labels:
            return kind.hard_label(logits, batch)
        if (part := self.part(teacher, batch)) is not None:
            distance = kind.soft_label_of_tokens(logits, part, batch, self.rule)
        else:
            targets = present(teacher.logits)
            if self.settings.standardize:
                logits, targets = F.standardize(logits), F.standardize(targets)
            distance = kind.soft_label(logits, targets, batch, self.rule)
        if self.settings.mean_over == "batch_and_classes":
            return kind.over_classes(distance, logits.shape[-1])
        return distance

    @problem_list
    def remarks(self) -> Iterator[Problem]:
        """A warning if z-scores carry no information beyond the ranking."""
        if not self.settings.standardize or self.shape.outcomes != 2:
            return
        yield Problem(
            f"{self.setting}.standardize: z-scores of two classes are 1 and −1, whatever the logits",
            "leave it out for two classes",
            "warning",
        )


def _numbers(batch: Batch[str, Tensor]) -> list[int]:
    """The unit by which tokens are sampled: examples, or positions."""
    host = on_host(batch)
    if "index" in host:
        return [int(number) for number in host["index"].tolist()]
    return list(range(len(next(iter(host.values())))))


def present(logits: Tensor | None) -> Tensor:
    """Requested logits; raises LimbeckError if there are no logits."""
    if logits is None:
        raise LimbeckError("the model gave no logits", "use a model with a task head")
    return logits


# The labels' own loss: plain, with weights for classes, and focal.
#
# The task type determines the meaning of a label, and the positions of a batch over which the term runs
# (`limbeck.tasks`).


BALANCED = "balanced"
_SHOWN = 8


class HardSpec(TermSettings):
    """Cross-entropy with the labels; squared error for regression."""

    unsaid = ("class_weights",)

    class_weights: Literal["balanced"] | dict[str, float] | None = Field(
        None,
        description="factor of each class's loss: balanced (all classes count alike, by the "
        "training rows), or numbers by name, 1 for a class that is not named; with several labels per row, "
        "factor of the rows that are of the class",
    )

    @field_validator("class_weights", mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        # YAML reads the names 0 and 1 as numbers.
        return (
            {str(name): value for name, value in given.items()}
            if isinstance(given, dict)
            else given
        )

    @field_validator("class_weights")
    @classmethod
    def _are_weights(cls, given: Any) -> Any:
        if isinstance(given, dict):
            wrong = [name for name, value in given.items() if not 0 <= value < math.inf]
            if wrong:
                raise ValueError(f"{wrong[0]}: {given[wrong[0]]}, and a weight is 0 or more")
        return given

    @property
    def counts_classes(self) -> bool:
        """Where all are to count alike."""
        return self.class_weights == BALANCED

    @property
    def focus(self) -> float:
        """The focal loss's γ; 0 for none."""
        return 0.0


@objective("hard_label", settings=HardSpec)
class HardLabel(Objective):
    """Cross-entropy with the labels, or squared error for regression (in every paper, L_CE)."""

    needs_teacher = False
    reads_labels = True
    counts_labelled = True
    mixes_labels = True
    settings: HardSpec
    class_weights: Tensor | None

    def __init__(self, settings: HardSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        weights = None
        if settings.class_weights is not None or settings.focus:
            _need_weighed_classes(shape, setting, settings)
        if settings.class_weights is not None:
            weights = _weights(settings.class_weights, shape, f"{setting}.class_weights")
        # Checkpoints need not contain values that follow from the rows and the recipe.
        self.register_buffer("class_weights", weights, persistent=False)

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, …) against the batch's labels.

        For mixed input against both examples' labels, by their shares: λ·CE(z, y_i) + (1 − λ)·CE(z, y_j)
        (Zhang et al. 2018, mixup).
        """
        logits, mixed = present(student.logits), student.mixed
        own = self._loss(logits, batch)
        if mixed is None:
            return own
        names = self.shape.kind.label_names
        theirs = {name: mixed.pair(mixed.batch[name])[1] for name in names if name in batch}
        partners = self._loss(logits, {**batch, **theirs})
        return mixed.share * own + (1 - mixed.share) * partners

    def _loss(self, logits: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        kind, gamma = self.shape.kind, self.settings.focus
        if self.class_weights is None and not gamma:
            return kind.hard_label(logits, batch)
        return kind.hard_label(logits, batch, HardRule(self.class_weights, gamma))

    def weights_by_class(self) -> dict[str, float] | None:
        """As they are set, or as the rows came to."""
        if self.class_weights is None:
            return None
        return dict(zip(self.shape.classes, self.class_weights.tolist(), strict=True))

    def remarks(self) -> list[Problem]:
        """A note of the weights that the rows came to."""
        found = self.weights_by_class()
        if not self.settings.counts_classes or found is None:
            return []
        said = listed([f"{name} {weight:.3g}" for name, weight in found.items()], _SHOWN)
        fix = f"{self.setting}.class_weights={{NAME: WEIGHT}} sets others"
        return [Problem(f"{self.setting}.class_weights: balanced: {said}", fix, "note")]


class FocalSpec(HardSpec):
    """Cross-entropy with the labels in which an example counts less the surer the student is of it."""

    gamma: Number = Field(2.0, ge=0, description="(1 − p)^gamma for the label's probability p")

    @property
    def focus(self) -> float:
        """γ as it is set."""
        return self.gamma


@objective("focal", settings=FocalSpec)
class FocalLabel(HardLabel):
    """The focal loss of the labels (Lin et al. 2017), over softmax's classes or over each class separately."""


def _need_weighed_classes(shape: Shape, setting: str, settings: HardSpec) -> None:
    """Raise LimbeckError where there are no classes to weigh, or nothing to be sure of."""
    if shape.kind.weighs(shape.student.labels):
        return
    what = "focal" if settings.focus else "class_weights"
    found = "a regression" if shape.number else f"task type {shape.kind.name}"
    raise LimbeckError(
        f"{setting}: {what} is for classes, and this is {found}",
        f"use compare: hard_label{' without class_weights' if what == 'class_weights' else ''}",
    )


def _weights(given: str | dict[str, float], shape: Shape, setting: str) -> Tensor:
    """The weights of the student's classes, in id order (C,).

    Raises:
        LimbeckError: a class that does not exist, or unknown rows.
    """
    if isinstance(given, str):
        if shape.balanced is None:
            raise LimbeckError(
                f"{setting}: balanced counts the classes of the training rows, and they cannot be counted",
                f"give rows that hold labels, or numbers: {setting}={{NAME: WEIGHT}}",
            )
        return shape.balanced
    strange = [
        unknown("class", name, list(shape.classes)) for name in given if name not in shape.classes
    ]
    if strange:
        raise LimbeckError(Problem(f"{setting}: {one.message}", one.fix) for one in strange)
    weights = [given.get(name, 1.0) for name in shape.classes]
    if not any(weights):
        raise LimbeckError(f"{setting}: every class weighs 0", "give at least one class a weight")
    return torch.tensor(weights)


# Class logits compared otherwise than as one distribution: DIST, decoupled KD, squared error, pseudo-
# labels. All compare classes, so that a regression or a task type without one label an example is
# refused.


class OfLogits(Objective):
    """A comparison of both sides' logits, which are embeddings of an embedding model."""

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """What `compare` makes of the logits (B, …) of both sides."""
        ours = present(student.logits)
        return self.compare(ours, present(teacher.logits) if self.needs_teacher else ours, batch)

    @abstractmethod
    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """The term's value; a term without a teacher is given the student's as both."""


class OfClasses(OfLogits):
    """A comparison of logits (B, C).

    Raises:
        LimbeckError: the task has no classes, or one output.
    """

    with_two = ""
    """What two classes leave of it, in words."""
    exclusive = True
    """Whether the classes have to exclude each other."""
    vocabulary = False
    """Whether the classes may be the tokens of a vocabulary, by token."""

    def __init__(self, settings: TermSettings, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        if self.vocabulary and shape.kind.over_vocabulary:
            return
        several = shape.kind.outcomes(shape.student.labels, exclusive=False)
        if self.exclusive or not 0 < several < math.inf:
            need_classes(shape, setting, settings.compare)

    @problem_list
    def remarks(self) -> Iterator[Problem]:
        """A warning where two classes leave little."""
        if self.shape.student.labels != 2 or not self.with_two:
            return
        yield Problem(
            f"{self.setting}: the task has two classes, and {self.with_two}",
            "use soft_kl (method kd) for two classes, or accept it",
            "warning",
        )


class DistSpec(TermSettings):
    """Correlations with the teacher's predictions: among an example's classes, and among a class's examples."""

    temperature: Temperature = Field(1.0, description="divides both sides' logits")
    beta: Number = Field(2.0, ge=0, description="weight of the inter-class correlation, by example")
    gamma: Number = Field(2.0, ge=0, description="weight of the intra-class correlation, by class")


@objective("dist", settings=DistSpec)
class Dist(OfClasses):
    """Pearson's correlations of softened predictions (DIST, Huang et al. 2022)."""

    compares_examples = True
    settings: DistSpec
    with_two = "the inter-class correlation of two numbers that add up to 1 is 1 or −1"

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Logits (B, C) of both sides."""
        own = self.settings
        return F.dist(ours, theirs, beta=own.beta, gamma=own.gamma, temperature=own.temperature)


class DkdSpec(TermSettings):
    """The teacher's belief in the label, and its distribution over the other classes, weighed apart."""

    temperature: Temperature = Field(4.0, description="divides both sides' logits")
    alpha: Number = Field(1.0, ge=0, description="weight of the target class's part")
    beta: Number = Field(8.0, ge=0, description="weight of the other classes' part")
    standardize: bool = Field(False, description="z-scores of both sides' logits (Sun et al. 2024)")


@objective("dkd", settings=DkdSpec)
class DecoupledKD(OfClasses):
    """Target-class and non-target-class KD (Zhao et al. 2022)."""

    reads_labels = True
    weighs_examples = True
    counts_labelled = True
    settings: DkdSpec
    with_two = "there is one other class, over which there is nothing to learn: its part is 0"

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Logits (B, C) of both sides, and the batch's labels (B)."""
        need_labels(batch, ("labels",))
        own = self.settings
        if own.standardize:
            ours, theirs = F.standardize(ours), F.standardize(theirs)
        return F.dkd(
            ours,
            theirs,
            batch["labels"],
            alpha=own.alpha,
            beta=own.beta,
            temperature=own.temperature,
            weights=batch.get(EXAMPLE_WEIGHTS),
        )


class LogitMseSpec(TermSettings):
    """Squared error of the logits, mean over batch and classes; over a vocabulary of each token that counts."""

    unsaid = ("centered",)

    centered: bool = Field(
        False,
        description="subtract each side's mean over the classes first, mean_c ((z_S[c] − z̄_S) − (z_T[c] − z̄_T))²: "
        "KD at a high temperature (Hinton et al. 2015, Eq. 4); also learns from probabilities",
    )

    @property
    def shifts_matter(self) -> bool:
        """Unless the mean is taken out."""
        return not self.centered


@objective("logit_mse", settings=LogitMseSpec)
class LogitMse(OfClasses):
    """Logits regressed on the teacher's (Ba and Caruana 2014).

    Raises:
        LimbeckError: the logits are to be centered, and the classes do not exclude each other.
    """

    weighs_examples = True
    exclusive = False
    vocabulary = True
    settings: LogitMseSpec

    def __init__(self, settings: LogitMseSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        if settings.centered and not shape.outcomes:
            raise LimbeckError(
                f"{setting}.centered: a sigmoid's logits are not known but for a constant: it would be lost",
                "leave it out where a row may have several classes",
            )

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Logits (B, C), or (B, N, C) at the places that count, of both sides."""
        if self.settings.centered:
            theirs = theirs + (ours - theirs).mean(-1, keepdim=True)
        places = self.shape.kind.places(batch)
        if places is not None:
            return F.hidden_mse(ours, theirs, places)
        return F.mse(ours, theirs, weights=batch.get(EXAMPLE_WEIGHTS))


class Between(OfDistributions):
    """Both distributions and their mixture, of classes or over a vocabulary.

    Raises:
        LimbeckError: there is no such distribution, or of sampled tokens no probabilities.
    """

    def __init__(self, settings: DistributionSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        if shape.number or not shape.outcomes:
            found = "a regression" if shape.number else f"task type {shape.kind.name}"
            raise LimbeckError(
                f"{setting}: {settings.compare} compares distributions over classes or a vocabulary, and this is "
                f"{found}",
                "use soft_kl",
            )
        if self.kept is not None and self.kept.how == "sample":
            raise LimbeckError(
                f"{setting}.tokens: {settings.compare} needs the teacher's probability of each sampled token, and "
                "only counts are kept",
                f"keep the likeliest tokens ({setting}.tokens=top{self.kept.count}), or use compare: soft_kl",
            )

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, C), or (B, N, C) at the places that count, of both sides."""
        ours, own = present(student.logits), self.settings
        places, part = self.shape.kind.places(batch), self.part(teacher, batch)
        at = AtTemperature(temperature=own.temperature, scale_by_t2=own.scale_by_t2)
        if part is not None and places is not None:
            return partial_soft_label(ours, part, places, distance=self.distance(), **at)
        theirs = present(teacher.logits)
        if places is None:
            ours, theirs = ours.unsqueeze(1), theirs.unsqueeze(1)
            places = torch.ones(ours.shape[:2], dtype=torch.bool, device=ours.device)
        return labelled_positions.of_tokens(self.distance(), ours, theirs, places, **at)

    @abstractmethod
    def distance(self) -> labelled_positions.Distance:
        """Of rows of both sides' logits."""


class GeneralizedJsdSpec(DistributionSpec):
    """The generalized Jensen-Shannon divergence of both sides' distributions, from KL to reverse KL."""

    beta: Number = Field(
        0.5,
        ge=0,
        le=1,
        description="the teacher's share in the mixture that both are compared with; 0: KL(teacher ‖ student), "
        "1: the reverse, KL(student ‖ teacher)",
    )


@objective("generalized_jsd", settings=GeneralizedJsdSpec)
class GeneralizedJsd(Between):
    """Both distributions against their mixture (GKD, Agarwal et al. 2024)."""

    settings: GeneralizedJsdSpec

    def distance(self) -> labelled_positions.Distance:
        """GKD's Eq. 1."""
        return partial(labelled_positions.jensen_shannon, beta=self.settings.beta)


class SkewedKlSpec(DistributionSpec):
    """The KL divergence of the teacher's distribution from a mixture with the student's, or the reverse."""

    skew: Number = Field(
        0.1,
        ge=0,
        lt=1,
        description="the first distribution's own share in the mixture; 0: the plain KL divergence",
    )
    reverse: bool = Field(
        False, description="the student's distribution from the mixture instead of the teacher's"
    )


@objective("skewed_kl", settings=SkewedKlSpec)
class SkewedKl(Between):
    """One distribution against its mixture with the other (DistiLLM, Ko et al. 2024)."""

    settings: SkewedKlSpec

    def distance(self) -> labelled_positions.Distance:
        """DistiLLM's divergences."""
        own = self.settings
        return partial(labelled_positions.skewed, skew=own.skew, reverse=own.reverse)


class PseudoLabelSpec(TermSettings):
    """Cross-entropy with the teacher's likeliest class."""


@objective("pseudo_label", settings=PseudoLabelSpec)
class PseudoLabel(OfClasses):
    """The teacher's class as a hard label (self-training; Lee 2013)."""

    weighs_examples = True
    settings: PseudoLabelSpec

    def compare(self, ours: Tensor, theirs: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        """Logits (B, C) of both sides."""
        return F.pseudo_label(ours, theirs, weights=batch.get(EXAMPLE_WEIGHTS))


def need_classes(shape: Shape, setting: str, what: str) -> None:
    """Raise LimbeckError for a task without classes of complete examples."""
    if not shape.one_label:
        raise LimbeckError(
            f"{setting}: {what} compares mutually exclusive classes of examples, and task type "
            f"{shape.kind.name} has no such classes",
            "use soft_cross_entropy or soft_kl",
        )
    if shape.number:
        raise LimbeckError(
            f"{setting}: {what} compares classes, and a regression has one number",
            "use soft_kl, which is squared error there (method kd)",
        )
