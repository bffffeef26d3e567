"""Layer mappings: weights of shape (student layers, teacher layers), fixed, sampled or attended.

Part of `limbeck.mappings`. An objective asks a mapping three things: which student layers learn
(`student_layers`), which teacher layers are needed now (`active`), and how much each of them counts for a
student layer (`weights`). It never knows which kind it was given.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from limbeck import functional
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import summed
from limbeck.support.settings import Settings, Width
from limbeck.support.step_state import StepState


class Mapping(ABC):
    """Which teacher layers each student layer learns from.

    Attributes:
        student_layers: student layers that learn, in order (S of them).
        candidates: every teacher layer this mapping may ever need.
    """

    student_layers: tuple[int, ...]
    candidates: tuple[int, ...]

    @abstractmethod
    def rows(self, step_state: StepState) -> tuple[tuple[int, ...], ...]:
        """For each student layer the teacher layers it may learn from at `step_state`."""

    @abstractmethod
    def only(self, layers: tuple[int, ...]) -> "Mapping":
        """The same mapping seen from some of its student layers alone."""

    def active(self, step_state: StepState) -> tuple[int, ...]:
        """The teacher layers needed at `step_state`, ascending (T of them)."""
        return tuple(sorted({layer for row in self.rows(step_state) for layer in row}))

    def weights(
        self, step_state: StepState, student: Sequence[Tensor], teacher: dict[int, Tensor]
    ) -> tuple[dict[int, float], ...] | Tensor:
        """Per student layer the weight of each of its teacher layers.

        Or (B, S, T), a weight for each example, when the mapping reads the representations.
        """
        return tuple({layer: 1.0 / len(row) for layer in row} for row in self.rows(step_state))

    def flow(self, costs: Tensor) -> Tensor:
        """(S, T) how much each comparison counts, by all of them (S, T): where it reads the costs."""
        raise NotImplementedError(f"{type(self).__name__} reads costs and has no flow")

    @classmethod
    def learn(cls, mappings: Sequence[Any]) -> None:
        """After an optimization step: what all mappings of this class learn without gradients."""
        return


def after_step(mappings: Iterable[Mapping]) -> None:
    """After an optimization step: every class of mapping learns from all of its own together."""
    found = list(mappings)
    for kind in dict.fromkeys(type(mapping) for mapping in found):
        kind.learn([mapping for mapping in found if type(mapping) is kind])


@dataclass(frozen=True)
class FixedMapping(Mapping):
    """The same teacher layers for the entire run: explicit, uniform, skip, first, last, buckets."""

    student_layers: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]

    @property
    def candidates(self) -> tuple[int, ...]:  # type: ignore[override]  # a property instead of an attribute
        """Every teacher layer in the table."""
        return self.active(StepState())

    def only(self, layers: tuple[int, ...]) -> "FixedMapping":
        """The rows of those student layers."""
        rows = zip(self.student_layers, self.table, strict=True)
        kept = {student_layer: row for student_layer, row in rows if student_layer in layers}
        return replace(self, student_layers=tuple(kept), table=tuple(kept.values()))

    def rows(self, step_state: StepState) -> tuple[tuple[int, ...], ...]:
        """The table, whatever the moment."""
        return self.table


@dataclass(frozen=True)
class RandomMapping(Mapping):
    """RAIL-KD §3: each epoch S teacher layers sampled without replacement, sorted, given in order."""

    student_layers: tuple[int, ...]
    candidates: tuple[int, ...]
    sampled_for: tuple[int, ...] = ()

    def only(self, layers: tuple[int, ...]) -> "RandomMapping":
        """The same draw, for all student layers; shown for those student layers."""
        kept = tuple(layer for layer in self.student_layers if layer in layers)
        return RandomMapping(kept, self.candidates, self.sampled_for or self.student_layers)

    def rows(self, step_state: StepState) -> tuple[tuple[int, ...], ...]:
        """The draw of the moment's epoch: a function of the run's seed and the epoch alone."""
        everyone = self.sampled_for or self.student_layers
        sampled = step_state.epoch_generator().choice(self.candidates, len(everyone), replace=False)
        given = dict(zip(everyone, sorted(sampled), strict=True))
        return tuple((int(given[student_layer]),) for student_layer in self.student_layers)


@dataclass(frozen=True)
class AttentionMapping(FixedMapping):
    """ALP-KD Eqs. 5–6: every example weighs teacher layers by their dot product with its student's.

    Softmax, or its sparse relatives: ALP-KD's future work.

    `table` holds the teacher layers each student layer may attend to: all of them, or its bucket (NO, PO).
    Gradients flow through the weights.
    """

    weigh: str = "softmax"

    def allowed(self, device: torch.device) -> Tensor | None:
        """(S, T) true where a student layer may attend; None when every student layer sees every layer."""
        layers = self.candidates
        if all(row == layers for row in self.table):
            return None
        return _members(self.table, layers, device)

    def weights(
        self, step_state: StepState, student: Sequence[Tensor], teacher: dict[int, Tensor]
    ) -> Tensor:
        """(B, S, T) softmax of the dot products; `student` holds S, `teacher` T tensors (B, d)."""
        states = torch.stack(tuple(student), dim=1)
        layers = torch.stack([teacher[k] for k in self.candidates], dim=1)
        allowed = self.allowed(states.device)
        if self.weigh == "softmax":
            return functional.attention_weights(states, layers, allowed)
        return functional.sparse_attention_weights(states, layers, allowed, transform=self.weigh)


@functools.cache
def _members(
    table: tuple[tuple[int, ...], ...], layers: tuple[int, ...], device: torch.device
) -> Tensor:
    """Which of `layers` each row holds; kept, so that it is copied to the device once, not a step."""
    return torch.tensor([[layer in row for layer in layers] for row in table], device=device)


# From weights to targets: how a student layer's teacher layers become what its student is compared
# with. Two ways give one target a student layer (`sum`, `concat`); the third (`costs`) keeps the
# pairs apart.


Constant = tuple[dict[int, float], ...]


def weighted_sum(weights: Constant | Tensor, teacher: dict[int, Tensor]) -> list[Tensor]:
    """Per student layer Σ_k w_jk · h_k. A single layer of weight 1 is returned itself, uncopied."""
    if isinstance(weights, Tensor):
        layers = torch.stack([teacher[k] for k in sorted(teacher)], dim=1)
        mixed = torch.einsum("bst,bt...->sb...", weights, layers.float())
        return list(mixed.unbind(0))
    return [_row_sum(row, teacher) for row in weights]


def _row_sum(row: dict[int, float], teacher: dict[int, Tensor]) -> Tensor:
    if len(row) == 1:
        ((layer, weight),) = row.items()
        return teacher[layer] if weight == 1.0 else teacher[layer].float() * weight
    return torch.stack([teacher[k].float() * w for k, w in row.items()]).sum(0)


def concatenation(weights: Constant, teacher: dict[int, Tensor]) -> list[Tensor]:
    """Per student layer its teacher layers side by side on the feature axis, in ascending order (CKD)."""
    return [torch.cat([teacher[k] for k in sorted(row)], dim=-1) for row in weights]


def pairs(weights: Constant) -> list[tuple[int, int, float]]:
    """(student layer number, teacher layer, weight) of each pair, for a weighted sum of comparisons."""
    return [(j, k, w) for j, row in enumerate(weights) for k, w in row.items()]


# Optimal transport between layers: the flow of least cost, with fixed or learned layer masses.
# Reads the pairwise costs of a batch (EMD-ILD in CR-ILD; BERT-EMD).


class TransportMapping(nn.Module, Mapping):
    """Every student layer may learn from every teacher layer, weighted by the best flow.

    Args:
        student_layers: the student's layers; their masses start equal and sum to 1.
        candidates: the teacher's layers, with masses of the same sum.
        learned: after each step a layer's mass is set to the inverse of its cost in the last flow
            (`cheaper_layers_weigh_more`), as in BERT-EMD. Masses are saved in checkpoints.
    """

    student_mass: Tensor
    teacher_mass: Tensor

    def __init__(
        self, student_layers: tuple[int, ...], candidates: tuple[int, ...], *, learned: bool
    ) -> None:
        super().__init__()
        self.student_layers = student_layers
        self.candidates = candidates
        self.learned = learned
        self.register_buffer(
            "student_mass", torch.full((len(student_layers),), 1 / len(student_layers))
        )
        self.register_buffer("teacher_mass", torch.full((len(candidates),), 1 / len(candidates)))
        self.moved: Tensor | None = None

    def rows(self, step_state: StepState) -> tuple[tuple[int, ...], ...]:
        """Every candidate for every student layer."""
        return (self.candidates,) * len(self.student_layers)

    def only(self, layers: tuple[int, ...]) -> "TransportMapping":
        """Not supported: the weights of one layer depend on all the others.

        Raises:
            LimbeckError: always.
        """
        raise LimbeckError(
            "kind: transport shares the teacher among all student layers at once, so they cannot "
            "learn one after the other",
            "leave `curriculum` out, or use a fixed map",
        )

    def flow(self, costs: Tensor) -> Tensor:
        """(S, T) the flow of least cost for pairwise costs (S, T); a constant without gradient."""
        costs = costs.detach()
        flow = functional.transport_flow(costs, self.student_mass, self.teacher_mass)
        if self.learned and self.training:
            moved = flow * costs
            self.moved = moved if self.moved is None else self.moved + moved
        return flow

    def new_masses(self) -> tuple[Tensor, Tensor] | None:
        """The masses that follow from the costs moved since the last step; None if none were."""
        if self.moved is None:
            return None
        moved, self.moved = summed(self.moved), None  # masses follow shares of cost, not sums
        return (
            functional.cheaper_layers_weigh_more(moved.sum(1), self.student_mass),
            functional.cheaper_layers_weigh_more(moved.sum(0), self.teacher_mass),
        )

    def set_masses(self, student: Tensor, teacher: Tensor) -> None:
        """Weigh the layers again."""
        self.student_mass.copy_(student)
        self.teacher_mass.copy_(teacher)

    @classmethod
    def learn(cls, mappings: "Sequence[TransportMapping]") -> None:
        """Every mapping's masses again, the mean of those alike in layers.

        BERT-EMD averages the weights of its hidden and its attention flow.
        """
        found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[TransportMapping]] = {}
        for mapping in mappings:
            if mapping.learned:
                found.setdefault((mapping.student_layers, mapping.candidates), []).append(mapping)
        for group in found.values():
            masses = [masses for mapping in group if (masses := mapping.new_masses()) is not None]
            if masses:
                student = torch.stack([student for student, _ in masses]).mean(0)
                teacher = torch.stack([teacher for _, teacher in masses]).mean(0)
                for mapping in group:
                    mapping.set_masses(student, teacher)


# Seen how → projected how: learned linear maps that bring both sides to one width.
#
# Projections are learned with the student, saved in checkpoints and never shipped in it.


_BERT_STD = 0.02


class ProjectSpec(Settings):
    """Settings of the maps between a representation and its comparison."""

    to: Width | Literal["student", "teacher"] = Field(
        description="width after the map: a number, or the student's or the teacher's own width"
    )
    sides: Literal["both", "student", "teacher"] = Field("both", description="which side is mapped")
    share: Literal["none", "all"] = Field(
        "none", description="one map for every mapped student layer, or one for all of them"
    )
    start: Literal["random", "identity", "normal"] = Field(
        "random",
        description="identity: square maps begin as no change at all; normal: N(0, .02), as BERT's "
        "own weights do and the maps of some releases",
    )
    bias: bool = Field(False, description="maps add a learned vector (papers do not)")
    when: Literal["always", "widths-differ"] = Field(
        "always", description="always map, or only when teacher and student widths differ"
    )


class Projection(nn.Module):
    """One linear map for each student layer, or one for all (RAIL-KD §3.1: d×u maps, bias-free).

    Args:
        widths: input width of each student layer.
        to: output width u.
        spec: sharing, bias and start.
    """

    def __init__(self, widths: list[int], to: int, spec: ProjectSpec) -> None:
        super().__init__()
        count = 1 if spec.share == "all" else len(widths)
        self.maps = nn.ModuleList(nn.Linear(width, to, bias=spec.bias) for width in widths[:count])
        for linear in self.maps:
            assert isinstance(linear, nn.Linear)
            if spec.start == "identity" and linear.in_features == linear.out_features:
                nn.init.eye_(linear.weight)
            if spec.start == "normal":
                nn.init.normal_(linear.weight, std=_BERT_STD)
            if spec.bias:
                nn.init.zeros_(linear.bias)

    def forward(self, hidden: Tensor, student_layer: int) -> Tensor:
        """(..., d) to (..., u) by the map of `student_layer`, in float32."""
        found: Tensor = self.maps[student_layer if len(self.maps) > 1 else 0](hidden.float())
        return found


class Unprojected(nn.Module):
    """No map: the representation itself."""

    def forward(self, hidden: Tensor, student_layer: int) -> Tensor:
        """The representation, unchanged."""
        return hidden


KEPT = "kept_features"
"""The configuration's entry for the features that stayed when a model was cut out of a wider one."""


def kept_features(config: Any) -> dict[int, Sequence[int]]:
    """The places of a model's hidden features by the width of the model that they are from; {} of any other model."""
    found = getattr(config, KEPT, None)
    return {} if found is None else {found["of"]: found["features"]}


class KeptFeatures(nn.Module):
    """The teacher's features that a student cut from it has (`student.hidden`); nothing is learned.

    Args:
        kept: their places.
        width: the teacher's features; several layers may be concatenated.
    """

    def __init__(self, kept: Sequence[int], width: int) -> None:
        super().__init__()
        self.width = width
        self.kept: Tensor
        self.register_buffer("kept", torch.tensor(kept), persistent=False)

    def forward(self, hidden: Tensor, student_layer: int) -> Tensor:
        """(..., n·d) to (..., n·kept)."""
        layers: Tensor = hidden.unflatten(-1, (-1, self.width))
        return layers[..., self.kept].flatten(-2)


class Projections(nn.Module):
    """The maps of both sides of one objective.

    Args:
        spec: the recipe's `project:`, or None for none.
        student_widths, teacher_widths: width of each student layer's representation before its map.
        student_width, teacher_width: the models' own widths, which decide what `widths-differ`,
            `student` and `teacher` mean.
        kept: the teacher's features that the student has, if it was cut from a model so wide: they are compared where
            maps are only to bring both sides to one width.

    Attributes:
        widths: for each student layer the student's and the teacher's width as they are compared.
        shared: one map serves all student layers of a side.
        of_layers: there is something to map, and it is single layers, not several side by side.
    """

    def __init__(
        self,
        spec: ProjectSpec | None,
        student_widths: list[int],
        teacher_widths: list[int],
        *,
        student_width: int,
        teacher_width: int,
        kept: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.student: nn.Module = Unprojected()
        self.teacher: nn.Module = Unprojected()
        self.widths = list(zip(student_widths, teacher_widths, strict=True))
        self.shared = spec is not None and spec.share == "all"
        sides = ((student_widths, student_width), (teacher_widths, teacher_width))
        whole = all(width == own for widths, own in sides for width in widths)
        self.of_layers = spec is not None and whole
        if spec is None or spec.when == "widths-differ":
            if len(kept) == student_width < teacher_width:
                self.teacher = KeptFeatures(kept, teacher_width)
                self.widths = [(w, t // teacher_width * len(kept)) for w, t in self.widths]
                self.shared, self.of_layers = True, False
                return
            if spec is None or student_width == teacher_width:
                return
        own = {"student": student_width, "teacher": teacher_width}
        to = own[spec.to] if isinstance(spec.to, str) else spec.to
        if spec.sides != "teacher":
            self.student = Projection(student_widths, to, spec)
            self.widths = [(to, teacher) for _, teacher in self.widths]
        if spec.sides != "student":
            self.teacher = Projection(teacher_widths, to, spec)
            self.widths = [(student, to) for student, _ in self.widths]
        if isinstance(self.student, Projection) and isinstance(self.teacher, Projection):
            _start_alike(self.student, self.teacher)

    @property
    def mapped(self) -> bool:
        """Whether a side is mapped."""
        return isinstance(self.student, Projection) or isinstance(self.teacher, Projection)


def _start_alike(student: Projection, teacher: Projection) -> None:
    """Both sides of a student layer start from the same map where their widths agree (limbeck's own choice).

    The papers leave the start open. Two independent random maps make similar layers look unrelated,
    and the quickest way for the student to fix that is to shift its states as one: on a
    pretrained encoder that destroys its knowledge before the maps have met.
    """
    for ours, theirs in zip(student.maps, teacher.maps, strict=True):
        if ours.in_features == theirs.in_features:
            theirs.load_state_dict(ours.state_dict())
