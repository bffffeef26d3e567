"""All terms of a run together: one request a side, one forward, named scalars and their weights.

Part of `limbeck.objectives`. The only place that knows which terms are active.
"""

from collections.abc import Mapping as Batch
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from limbeck.activations import Request, Trace
from limbeck.input_transforms import InputTransform, MixupSpec, TransformSettings, chosen
from limbeck.mappings import Mapping, after_step
from limbeck.objectives.base import OBJECTIVES, Objective, Shape, TermSettings, lent_maps
from limbeck.objectives.curriculum import Curriculum, CurriculumSpec
from limbeck.objectives.example_weights import (
    COUNTED,
    ExampleWeights,
    WeightingSettings,
    example_weights,
)
from limbeck.objectives.registration import TermSpec
from limbeck.support.errors import LimbeckError, Problem, collecting, raise_problems
from limbeck.support.machine import SharedPass, largest
from limbeck.support.settings import Ramp
from limbeck.support.step_state import StepState
from limbeck.tasks.rules import EXAMPLE_WEIGHTS

# The name of the weighted sum in logs and records.
_TOTAL = "loss"


@dataclass(frozen=True)
class Loss:
    """The terms and weights of one stage of a recipe, under the recipe's own keys.

    Attributes:
        objectives: the terms by name.
        curriculum: when each layer learns, if not all of them all the time.
        min_confidence: below which of the teacher's probabilities an example does not count in terms that weigh
            examples.
        unlabelled_weight: how much an example without a label counts there.
        example_weights: how much each example counts there.
        mixup: mixes the inputs of both models.
        input_transform: another input transform.
    """

    objectives: dict[str, TermSpec]
    curriculum: CurriculumSpec | None = None
    min_confidence: float | None = None
    unlabelled_weight: float = 1.0
    example_weights: WeightingSettings | None = None
    mixup: MixupSpec | None = None
    input_transform: TransformSettings | None = None

    @property
    def transform(self) -> InputTransform | None:
        """The transform of the inputs of every training step, if any."""
        return chosen(self.mixup, self.input_transform)


class Objectives(nn.Module):
    """The named terms of a loss, built for a pair of models.

    Args:
        loss: the terms, and how layers and examples count in them.
        shape: depth and width of both models.

    Raises:
        LimbeckError: every term that cannot be built for these models, with its reason.
    """

    def __init__(self, loss: Loss, shape: Shape) -> None:
        super().__init__()
        specs = loss.objectives
        self.weights: dict[str, float | Ramp] = {name: s.weight for name, s in specs.items()}
        self.terms = nn.ModuleDict()
        problems: list[Problem] = []
        built: dict[str, Objective] = {}
        # Those with maps of their own come first: others may go through them.
        for name in sorted(specs, key=lambda name: specs[name].lender is not None):
            with collecting(problems):
                built[name] = _build(name, specs[name], shape, built)
        for name, term in built.items():
            problems += _undeclared(f"objectives.{name}", specs[name], term)
        for name in specs:
            try:
                if name in built:
                    self.terms[name] = built[name]
            except KeyError:  # torch rejects dots and the names of its own attributes
                problems.append(_refused_name(name))
        problems += [_refused_name(name) for name in (_TOTAL, COUNTED) if name in specs]
        self.example_weights: ExampleWeights | None = None
        with collecting(problems):
            self.example_weights = example_weights(
                shape, loss.example_weights, loss.min_confidence, loss.unlabelled_weight
            )
        if self.example_weights is not None and not any(s.weighs_examples for s in specs.values()):
            problems.append(_nothing_to_weigh(specs))
        raise_problems(problems)
        self.curriculum = None if loss.curriculum is None else self._order(loss.curriculum)

    def _order(self, spec: CurriculumSpec) -> Curriculum:
        layers: set[int] = set()
        problems: list[Problem] = []
        terms = dict(self.terms.items())
        for name in (name for name in spec.terms if name in terms):
            if (own := self[name].student_layers) is not None:
                layers |= set(own)
                problems += self[name].turn_problems(name)
            else:
                problems.append(
                    Problem(
                        f"curriculum.terms: {name} has no mapped layers to go through",
                        "put it under `wait`, or leave it out",
                    )
                )
        raise_problems(problems)
        return Curriculum(spec, tuple(sorted(layers)), tuple(self.terms))

    def __getitem__(self, name: str) -> Objective:
        """The term of that name."""
        term = self.terms[name]
        assert isinstance(term, Objective)
        return term

    @property
    def labelled_terms(self) -> frozenset[str]:
        """Names of the terms that are means over the labeled examples of a batch alone."""
        return frozenset(name for name in self.terms if self[name].means_over_labelled)

    def active(self, step_state: StepState) -> dict[str, StepState]:
        """The terms at work, each with the moment as it sees it."""
        if self.curriculum is None:
            return dict.fromkeys(self.terms, step_state)
        seen = {name: self.curriculum.at(name, step_state) for name in self.terms}
        return {n: at for n, at in seen.items() if at is not None and self._has_layers(n, at)}

    def _has_layers(self, name: str, step_state: StepState) -> bool:
        """Whether any of a term's layers learns at a moment, as it sees it."""
        own = self[name].student_layers
        if step_state.layers is None or own is None:
            return True
        return any(layer in step_state.layers for layer in own)

    def weight(self, name: str, step_state: StepState) -> float:
        """The weight of a term at `step_state`."""
        own = self.weights[name]
        return own.at(step_state) if isinstance(own, Ramp) else own

    def request(self, side: str, step_state: StepState) -> Request:
        """What all terms together need of one side: `student`, `teacher`, or, where inputs are
        mixed, the student on `clean` input."""
        active = self.active(step_state).items()
        return reduce(or_, (self[name].request(side, at) for name, at in active), Request())

    def ever(self, side: str) -> Request:
        """What all terms together may need of one side at any moment of a run."""
        return reduce(or_, (self[name].ever(side) for name in self.terms), Request())

    @property
    def sees_padding(self) -> list[str]:
        """The terms for which padding positions count."""
        return [name for name in self.terms if self[name].sees_padding]

    def remarks(self) -> list[Problem]:
        """Warnings about the terms that a user should know before training."""
        return [remark for name in self.terms for remark in self[name].remarks()]

    def weights_by_class(self) -> dict[str, dict[str, float]]:
        """The class weights of each term that does not weight all classes equally."""
        found = {name: self[name].weights_by_class() for name in self.terms}
        return {name: weights for name, weights in found.items() if weights is not None}

    def differences(self, side: str) -> Request:
        """What terms that look at small differences may need of one side."""
        found = (self[name].ever(side) for name in self.terms if self[name].sees_differences)
        return reduce(or_, found, Request())

    def active_layers(self, step_state: StepState) -> dict[str, list[list[int]]]:
        """[student layer, teacher layer] pairs of every active term that has layers."""
        active = self.active(step_state).items()
        pairs = {name: self[name].active_layers(at) for name, at in active}
        return {name: found for name, found in pairs.items() if found is not None}

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> dict[str, Tensor]:
        """The unweighted active terms by name, in float32 whatever the autocast type.

        With example weights also `counted`, the share of examples with a weight above 0.
        """
        device_type = next(iter(batch.values())).device.type
        if teacher.aligned:
            student = replace(student, masks=student.masks | teacher.masks)
        with torch.autocast(device_type, enabled=False):
            weighed, counted = self._weighed(student, teacher, batch, step_state)
            found = {}
            for name, at in self.active(step_state).items():
                term = self[name]
                given = student, teacher, weighed if term.weighs_examples else batch
                if term.compares_examples and at.sharing > 1:
                    given = _of_pass(*given, at.sharing)
                found[name] = term(*given, at)
            return found | counted

    def _weighed(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> tuple[Batch[str, Tensor], dict[str, Tensor]]:
        """The batch with the weights of its examples, and the share of them that counts."""
        weigh = self.example_weights
        if weigh is None or not weigh.training or student.logits is None or teacher.logits is None:
            return batch, {}
        sides, labels = (student.logits, teacher.logits), batch.get("labels")
        if step_state.sharing > 1:
            everywhere = SharedPass(batch, step_state.sharing)
            sides = everywhere(sides[0].detach()), everywhere(sides[1])
            labels = None if labels is None else everywhere(labels)
        weights = weigh(*sides, step_state, labels)
        if step_state.sharing > 1:  # 0 for examples that repeat others
            count = len(student.logits)
            weights = F.pad(weights[everywhere.own], (0, count))[:count]
        return {**batch, EXAMPLE_WEIGHTS: weights}, {COUNTED: (weights > 0).float().mean()}

    def total(self, terms: dict[str, Tensor], step_state: StepState) -> Tensor:
        """The weighted sum: the only place where terms are weighted and added."""
        return torch.stack(
            [self.weight(name, step_state) * terms[name] for name in terms if name != COUNTED]
        ).sum()

    def of(self, teacher: int) -> "Objectives":
        """The terms for one of the teachers: these for all (`TeamObjectives`)."""
        return self

    def after_step(self) -> None:
        """After an optimization step: what terms learn without gradients."""
        after_step(part for part in self.modules() if isinstance(part, Mapping))


def _of_pass(
    student: Trace, teacher: Trace, batch: Batch[str, Tensor], sharing: int
) -> tuple[Trace, Trace, Batch[str, Tensor]]:
    """Logits, numbers and token ids of all examples of a forward pass that processes share."""
    everywhere, rows = SharedPass(batch, sharing), len(next(iter(batch.values())))
    found = {name: everywhere(one) for name, one in sorted(batch.items()) if one.shape == (rows,)}
    if (tokens := batch.get("input_ids")) is not None:
        # Equal texts have equal rows, whatever the width of each process's batch.
        wide = largest(tokens.shape[1])
        padding = batch["attention_mask"] == 0
        first = padding.int().argsort(dim=1, stable=True)  # padding may be on the left
        tokens = tokens.masked_fill(padding, -1).gather(1, first)
        found["input_ids"] = everywhere(F.pad(tokens, (0, wide - tokens.shape[1]), value=-1))
    logits = [None if one.logits is None else everywhere(one.logits) for one in (student, teacher)]
    return replace(student, logits=logits[0]), replace(teacher, logits=logits[1]), found


def _nothing_to_weigh(specs: dict[str, TermSpec]) -> Problem:
    can = [name for name in OBJECTIVES if OBJECTIVES.get(name).weighs_examples]
    return Problem(
        f"example_weights, min_confidence, unlabelled_weight: none of the terms weighs examples "
        f"({', '.join(spec.compare for spec in specs.values())})",
        f"add one that does: {', '.join(can)}; or leave it out",
    )


def _refused_name(name: str) -> Problem:
    return Problem(f"objectives.{name}: a term cannot have this name", "choose another")


def _undeclared(setting: str, spec: TermSettings, term: Objective) -> list[Problem]:
    """The activations that a term requests, and its traits: they decide which models and rows it supports."""
    asked = {side: term.ever(side) for side in ("student", "teacher")}
    found = {
        "needs_teacher": (not spec.needs_teacher, asked["teacher"] != Request()),
        "reads_logits": (not spec.reads_logits, any(one.logits for one in asked.values())),
        "needs_layers": (not spec.needs_layers, any(one.items for one in asked.values())),
    }
    return [
        Problem(
            f"{setting}: its request contradicts {trait} = False of {type(term).__name__}",
            f"set {trait} = True in the class, or request less",
        )
        for trait, (denied, does) in found.items()
        if denied and does
    ]


def _need_layers(setting: str, shape: Shape) -> None:
    """Raise LimbeckError for a term that looks inside a network whose inside cannot be looked at."""
    without = [side for side in ("student", "teacher") if getattr(shape, side).layers == 0]
    if without:
        raise LimbeckError(
            f"{setting}: it compares layers, and the {' and the '.join(without)} "
            f"{'has' if len(without) == 1 else 'have'} no layers over tokens, as a static student or a "
            "convolutional network has none",
            "compare outputs (method kd, kd-soft or logit-mse; embedding-mse for embeddings), or take models such as "
            "BERT or ViT",
        )


def _build(name: str, spec: TermSpec, shape: Shape, others: dict[str, Objective]) -> Objective:
    setting = f"objectives.{name}"
    maps = None if spec.lender is None else lent_maps(setting, spec.lender, others)
    if spec.needs_layers:
        _need_layers(setting, shape)
    return spec.build(shape, setting, maps)
