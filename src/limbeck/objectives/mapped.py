"""The common part of terms over mapped layers: requests, activations, and mixed targets.

Part of `limbeck.objectives`. A subclass defines how it compares states, by default hidden ones,
with targets; the mapping decides which layers are compared and how several teacher layers become one target.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Mapping as Batch
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeVar, cast

import torch
from pydantic import Field, SerializeAsAny, model_validator
from torch import Tensor, nn

from limbeck.activations import ActivationKey, Request, Trace
from limbeck.activations.request import StackName
from limbeck.mappings import Mapping, MappingSpec, build_mapping, rounding_note
from limbeck.mappings.maps import Projections, ProjectSpec, concatenation, pairs, weighted_sum
from limbeck.objectives.base import OBJECTIVES, Objective, Shape, TermSettings
from limbeck.objectives.registration import objective
from limbeck.support.errors import LimbeckError, Problem, check_choice, problem_list
from limbeck.support.machine import SharedPass
from limbeck.support.settings import Pool
from limbeck.support.step_state import StepState


class MappedSpec(TermSettings):
    """The common settings of comparisons of mapped layers."""

    has_features: ClassVar[bool] = False
    """Whether it compares vectors, which `combine: concat` can concatenate."""

    mapping: SerializeAsAny[MappingSpec] = Field(
        description="which teacher layers each student layer learns from"
    )
    pairs: Literal["sum", "mean"] = Field("sum", description="how the layers' distances add up")
    stack: Literal["main", "encoder", "decoder", "cross"] = Field(
        "main", description="of an encoder–decoder: whose layers, or `cross` for cross-attention"
    )

    @model_validator(mode="after")
    def _maps_what_it_can(self) -> "MappedSpec":
        reads = self.mapping.reads_representations
        vectors, pool = self.mapping.sentence_vectors, getattr(self, "pool", None)
        if reads and vectors is None and pool is None:
            raise ValueError(
                f"kind: {self.mapping.kind} weighs layers by sentence vectors; set one: "
                "mapping.read: cls, mean or last (a term with `pool` reads those it compares)"
            )
        if reads and vectors and pool:
            raise ValueError(
                f"kind: {self.mapping.kind} reads the sentence vectors that `pool` makes; leave mapping.read out"
            )
        if self.mapping.combine == "concat" and not self.has_features:
            raise ValueError(
                "combine: concat puts hidden states side by side; maps of attention and relations "
                "have no features to do so: use sum or costs"
            )
        return self

    @property
    def reads_decoder(self) -> bool:
        """By the stack."""
        return self.stack in ("decoder", "cross")


class Mapped(Objective):
    """Layers of both sides that a mapping brings together.

    Raises:
        LimbeckError: the mapping or the stack does not fit the models.
    """

    reads_logits = False
    needs_layers = True
    settings: MappedSpec
    # The lowest layer that has the term's activation; 0 is the embedding output.
    lowest_layer = 0

    def __init__(
        self, settings: MappedSpec, shape: Shape, setting: str, maps: Projections | None = None
    ) -> None:
        super().__init__(settings, shape, setting, maps)
        self.stack = settings.stack
        self.student_shape = shape.student.stack(self.stack, setting, "student")
        self.teacher_shape = shape.teacher.stack(self.stack, setting, "teacher")
        self.mapping: Mapping = build_mapping(
            settings.mapping,
            teacher_depth=self.teacher_shape.layers,
            student_depth=self.student_shape.layers,
            setting=f"{setting}.mapping",
        )
        if min(*self.mapping.student_layers, *self.mapping.candidates) < self.lowest_layer:
            raise LimbeckError(
                f"{setting}.mapping: layer 0 is the embedding output, and has no attention",
                "map layers from 1 on",
            )
        self.reader = None
        vectors = settings.mapping.sentence_vectors
        if vectors is not None:
            self.reader = Reader(
                vectors,
                "decoder" if self.stack == "cross" else self.stack,
                self.student_shape.width,
                self.teacher_shape.width,
            )

    # ---- which a subclass may override ----

    def seen(self, layer: int) -> ActivationKey:
        """The activation of a layer that is compared, on both sides: hidden states, pooled if the settings do so."""
        return ActivationKey("hidden", layer, getattr(self.settings, "pool", None), self.stack)

    def takes(self, layer: int) -> tuple[ActivationKey, ...]:
        """All activations of a layer that `read` takes: the compared one, unless a term reads several."""
        return (self.seen(layer),)

    def read(self, trace: Trace, layer: int) -> Tensor:
        """The representation that is mixed into targets."""
        return trace[self.seen(layer)]

    @property
    def together(self) -> bool:
        """Whether all its layers meet at once, so that none can learn before another."""
        return False

    # ---- common to all ----

    @property
    def student_layers(self) -> tuple[int, ...]:
        """Those that are mapped."""
        return self.mapping.student_layers

    @problem_list
    def turn_problems(self, name: str) -> Iterator[Problem]:
        """Where they meet at once, or the mapping needs them all."""
        if self.together:
            yield Problem(
                f"curriculum.terms: {name} compares all its layers at once, so none can learn before another",
                "put it under `wait`, or leave it out",
            )
        try:
            self.mapping.only(self.mapping.student_layers)
        except LimbeckError as error:
            yield from error.problems

    def remarks(self) -> list[Problem]:
        """A warning where a uniform map had to round L/M."""
        note = rounding_note(
            self.settings.mapping,
            teacher_depth=self.teacher_shape.layers,
            student_depth=self.student_shape.layers,
        )
        if note is None:
            return []
        fix = f"name the layers: {self.setting}.mapping.kind=explicit"
        return [Problem(f"{self.setting}: {note}", fix, "warning")]

    def _mapping_at(self, step_state: StepState) -> Mapping:
        return self.mapping if step_state.layers is None else self.mapping.only(step_state.layers)

    def request(self, side: str, step_state: StepState) -> Request:
        """The mapped layers' activations for the term, and the input of an attention mapping."""
        mapping = self._mapping_at(step_state)
        return self._asked(side, mapping.student_layers, mapping.active(step_state))

    def ever(self, side: str) -> Request:
        """Every layer that a draw or a curriculum may come to."""
        return self._asked(side, self.mapping.student_layers, self.mapping.candidates)

    def _asked(self, side: str, student: tuple[int, ...], teacher: tuple[int, ...]) -> Request:
        layers = {"student": student, "teacher": teacher}.get(side, ())
        asked = Request(frozenset(seen for layer in layers for seen in self.takes(layer)))
        return asked if self.reader is None else asked | self.reader.request(layers)

    def active_layers(self, step_state: StepState) -> list[list[int]]:
        """[student layer, teacher layer] pairs that may meet at `step_state`."""
        mapping = self._mapping_at(step_state)
        rows = mapping.rows(step_state)
        return [[j, k] for j, row in zip(mapping.student_layers, rows, strict=True) for k in row]

    def _weights(
        self,
        mapping: Mapping,
        states: dict[int, Tensor],
        layers: dict[int, Tensor],
        traces: tuple[Trace, Trace],
        step_state: StepState,
    ) -> tuple[dict[int, float], ...] | Tensor:
        """What teacher layers count for each student layer."""
        if self.reader is None:
            return mapping.weights(step_state, list(states.values()), layers)
        student = [self.reader.read("student", traces[0], j) for j in mapping.student_layers]
        teacher = {k: self.reader.read("teacher", traces[1], k) for k in layers}
        return mapping.weights(step_state, student, teacher)

    def _targets(
        self,
        mapping: Mapping,
        states: dict[int, Tensor],
        layers: dict[int, Tensor],
        traces: tuple[Trace, Trace],
        step_state: StepState,
    ) -> dict[int, Tensor]:
        """By student layer what its teacher layers come to."""
        weights = self._weights(mapping, states, layers, traces, step_state)
        if self.settings.mapping.combine == "concat":
            # One weight for all examples, or `combine` is sum.
            assert not isinstance(weights, Tensor)
            mixed = concatenation(weights, layers)
        else:
            mixed = weighted_sum(weights, layers)
        return dict(zip(mapping.student_layers, mixed, strict=True))


# The input of an attention mapping's layer weights, if the term itself compares another activation.
# Attention maps or relations of several teacher layers can be mixed, but do not show which
# layer suits an example; its sentence vectors do (ALP-KD).


# RAIL-KD §4.2; for ALP-KD's dot product across widths limbeck's own choice.
_PROJECT = {"to": 128, "share": "all", "when": "widths-differ"}


class Reader(nn.Module):
    """Sentence vectors of both sides in one space: unchanged if widths are equal, otherwise mapped.

    Args:
        pool: which vector of a layer.
        stack: whose hidden states.
        student_width, teacher_width: of both sides.
    """

    def __init__(
        self, pool: Pool, stack: StackName, student_width: int, teacher_width: int
    ) -> None:
        super().__init__()
        self.pool = pool
        self.stack = stack
        self.projections = Projections(
            ProjectSpec.model_validate(_PROJECT),
            [student_width],
            [teacher_width],
            student_width=student_width,
            teacher_width=teacher_width,
        )

    def request(self, layers: Iterable[int]) -> Request:
        """The sentence vectors of these layers."""
        return Request.hidden(layers, pool=self.pool, stack=self.stack)

    def read(self, side: str, trace: Trace, layer: int) -> Tensor:
        """A layer's sentence vectors (B, u)."""
        hidden = trace[ActivationKey("hidden", layer, self.pool, self.stack)]
        maps = self.projections.student if side == "student" else self.projections.teacher
        found: Tensor = maps(hidden, 0)
        return found


# Mapped layers compared pair by pair: one distance each, weighted by the mapping, and summed. A
# subclass defines which activation of a layer it reads and how two of them are compared.


class Masks(NamedTuple):
    """Which positions count, (B, N) true for real tokens: of the queries, and of the keys.

    `causal`: a query sees no later key.
    """

    tokens: Tensor
    keys: Tensor
    causal: bool = False


class MappedTerm(Mapped):
    """Layers of both sides that a mapping brings together and a distance compares."""

    @abstractmethod
    def distance(self, state: Tensor, target: Tensor, masks: Masks) -> Tensor:
        """Two representations compared, a scalar."""

    def compare(
        self, states: dict[int, Tensor], targets: dict[int, Tensor], masks: Masks
    ) -> Tensor:
        """By student layer its state and its target; the distances, (S)."""
        found = [self.distance(states[layer], targets[layer], masks) for layer in states]
        return torch.stack(found)

    def shared_map(self, side: str, hidden: Tensor) -> Tensor:
        """A map that serves all layers of a side, applied before they are mixed; none here."""
        return hidden

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """The sum, or mean, of the mapped layers' distances."""
        mapping = self._mapping_at(step_state)
        masks = self.masks(student)
        states, layers = self._read(mapping, student, teacher, step_state)
        if self.settings.mapping.reads_costs:
            costs = self._pair_costs(states, layers, masks)
            everyone = costs.detach()
            if step_state.sharing > 1:
                everyone = SharedPass(batch, step_state.sharing).mean(everyone)
            distances = (mapping.flow(everyone) * costs).sum(1)
        elif self.settings.mapping.combine == "costs":
            distances = self._costs(mapping, states, layers, masks, step_state)
        else:
            targets = self._targets(mapping, states, layers, (student, teacher), step_state)
            distances = self.compare(states, targets, masks)
        return distances.mean() if self.settings.pairs == "mean" else distances.sum()

    def layer_weights(
        self, student: Trace, teacher: Trace, step_state: StepState
    ) -> tuple[dict[int, float], ...] | Tensor:
        """What `forward` weighs the teacher layers by: as `Mapping.weights` gives it."""
        mapping = self._mapping_at(step_state)
        states, layers = self._read(mapping, student, teacher, step_state)
        return self._weights(mapping, states, layers, (student, teacher), step_state)

    def _read(
        self, mapping: Mapping, student: Trace, teacher: Trace, step_state: StepState
    ) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """The compared activations of each student layer, and of each active teacher layer."""
        states = {
            j: self.shared_map("student", self.read(student, j)) for j in mapping.student_layers
        }
        layers = {
            k: self.shared_map("teacher", self.read(teacher, k)) for k in mapping.active(step_state)
        }
        return states, layers

    def masks(self, student: Trace) -> Masks:
        """Which queries and which keys count."""
        if self.stack == "cross":
            return Masks(student.mask("decoder"), student.mask("cross"))
        return Masks(student.mask(self.stack), student.mask(self.stack))

    def _costs(
        self,
        mapping: Mapping,
        states: dict[int, Tensor],
        layers: dict[int, Tensor],
        masks: Masks,
        step_state: StepState,
    ) -> Tensor:
        """Per student layer Σ_k w_jk · distance(h_S^j, h_T^k): comparisons are weighted, not layers."""
        weights = mapping.weights(step_state, list(states.values()), layers)
        assert not isinstance(weights, Tensor)  # one weight for all examples, or `combine` is sum
        totals: dict[int, list[Tensor]] = {j: [] for j in mapping.student_layers}
        for number, layer, weight in pairs(weights):
            student_layer = mapping.student_layers[number]
            cost = self.compare(
                {student_layer: states[student_layer]}, {student_layer: layers[layer]}, masks
            )
            totals[student_layer].append(weight * cost.squeeze(0))
        return torch.stack([torch.stack(row).sum() for row in totals.values()])

    def _pair_costs(
        self, states: dict[int, Tensor], layers: dict[int, Tensor], masks: Masks
    ) -> Tensor:
        """(S, T): distance(h_S^j, h_T^k) for every student layer j and teacher layer k."""
        return torch.stack(
            [
                torch.stack([self.distance(state, target, masks) for target in layers.values()])
                for state in states.values()
            ]
        )


# How two representations of a layer are compared: functions, registered by name. A comparison is a
# function of both sides and the masks; everything around it (which layers meet, pooling, projections,
# when each layer learns) is the term's that it belongs to.


Distance = Callable[[Tensor, Tensor, Masks], Tensor]
"""(student, teacher, masks) to a scalar, the mean over the batch."""
Sees = Literal["hidden", "vectors", "tokens", "probabilities", "scores"]

Function = TypeVar("Function", bound=Distance)
Term = TypeVar("Term", bound="type[ComparedTerm]")


@dataclass(frozen=True)
class LayerComparison:
    """A registered distance function, and its options.

    Attributes:
        distance: the function.
        sees: the activation that it compares.
        variants: functions that replace it for a value of the settings (`mean_over: all`).
        takes: further settings that it supports (`rows`).
    """

    distance: Distance
    sees: Sees
    variants: dict[str, Distance] = field(default_factory=dict)
    takes: Collection[str] = ()

    def by(self, value: str) -> Distance:
        """The function for a value of the settings."""
        return self.variants.get(value, self.distance)


class ComparedTerm(MappedTerm):
    """A term over mapped layers whose name selects the distance function."""

    comparison: ClassVar[LayerComparison]


_TERMS: dict[str, type[ComparedTerm]] = {}


def takes_comparisons(*sees: Sees) -> Callable[[Term], Term]:
    """A class decorator: comparisons that see this belong to the term."""

    def known(term: Term) -> Term:
        _TERMS.update(dict.fromkeys(sees, term))
        return term

    return known


def comparison(
    name: str,
    *,
    sees: Sees = "hidden",
    variants: dict[str, Distance] | None = None,
    takes: Collection[str] = (),
) -> Callable[[Function], Function]:
    """Make a function known as a value of `compare`: a decorator, `@limbeck.comparison("huber")`.

    The function is given (student, teacher, masks) and returns a scalar. Both sides are hidden states of one
    width, pooled (B, D) or by token (B, N, D); or attention (B, H, Q, K). `masks.tokens` (B) or (B, N) is true
    for positions that count, of attention for queries (B, Q); `masks.keys` (B, K) for keys; `masks.causal`
    is whether a query sees no later key.

    Args:
        name: the value of `compare` in a recipe.
        sees: hidden states, pooled or not (`hidden`), only pooled (`vectors`), only by token (`tokens`);
            attention's `probabilities`, or its `scores` before the softmax.
        variants: functions that take its place for a value of the settings: of `mean_over` for hidden
            states, of `masked` for attention.
        takes: further settings that it may have: of attention `rows`, `keys`.

    Example:
        ```python
        @limbeck.comparison("huber")
        def huber(student, teacher, masks):
            return F.huber_loss(student, teacher)
        ```

    Raises:
        LimbeckError: the name is taken, or nothing of that sort is compared.
    """
    check_choice(f"comparison {name!r}: sees", sees, _TERMS)
    term = _TERMS[sees]

    def known(function: Function) -> Function:
        own = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "comparison": LayerComparison(function, sees, variants or {}, tuple(takes)),
        }
        # One class per name: the function provides its name, module and docstring.
        objective(name, settings=term.settings_class)(type(function.__name__, (term,), own))
        return function

    return known


def comparison_of(compare: str) -> LayerComparison:
    """The comparison of that name, which is registered as one."""
    return cast(type[ComparedTerm], OBJECTIVES.get(compare)).comparison


def names_where(fits: Callable[[LayerComparison], bool]) -> list[str]:
    """The names of the comparisons that something is true of."""
    terms = {name: OBJECTIVES.get(name) for name in OBJECTIVES}
    found = {name: getattr(term, "comparison", None) for name, term in terms.items()}
    return [name for name, one in found.items() if one is not None and fits(one)]
