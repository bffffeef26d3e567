"""How two representations of a layer are compared: functions, registered by name.

Part of `limbeck.objectives`. A comparison is a function of both sides and the masks; everything around it
(which layers meet, pooling, projections, when each layer learns) is the term's that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeVar

from torch import Tensor

from limbeck.objectives.base import OBJECTIVES
from limbeck.objectives.matched import MappedTerm, Masks
from limbeck.objectives.registration import objective
from limbeck.support.errors import LimbeckError, unknown

Distance = Callable[[Tensor, Tensor, Masks], Tensor]
"""(student, teacher, masks) to a scalar, the mean over the batch."""
Sees = Literal["hidden", "vectors", "tokens", "probabilities", "scores"]

Function = TypeVar("Function", bound=Distance)
Term = TypeVar("Term", bound="type[ComparedTerm]")


@dataclass(frozen=True)
class LayerComparison:
    """A registered function, and what it can be asked for.

    Attributes:
        distance: the function.
        sees: what it compares.
        variants: functions that take its place for a value of the settings (`mean_over: all`).
        takes: settings besides that it may have (`rows`).
    """

    distance: Distance
    sees: Sees
    variants: Mapping[str, Distance] = field(default_factory=dict)
    takes: Collection[str] = ()

    def by(self, value: str) -> Distance:
        """The function for a value of the settings."""
        return self.variants.get(value, self.distance)


class ComparedTerm(MappedTerm):
    """A term over mapped layers that compares as its name says."""

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
    variants: Mapping[str, Distance] | None = None,
    takes: Collection[str] = (),
) -> Callable[[Function], Function]:
    """Make a function known as a value of `compare`: a decorator, `@limbeck.comparison("huber")`.

    The function is given (student, teacher, masks) and returns a scalar. Both sides are hidden states of one
    width, pooled (B, D) or by token (B, N, D); or attention (B, H, Q, K). `masks.tokens` (B) or (B, N) is true
    for positions that count, of attention for queries (B, Q); `masks.keys` (B, K) for keys; `masks.causal`
    says whether a query sees no later key.

    Args:
        name: the value of `compare` in a recipe.
        sees: hidden states, pooled or not (`hidden`), only pooled (`vectors`), only by token (`tokens`);
            attention's `probabilities`, or its `scores` before the softmax.
        variants: functions that take its place for a value of the settings: of `mean_over` for hidden
            states, of `masked` for attention.
        takes: further settings that it may have: of attention `rows`, `keys`.

    Raises:
        LimbeckError: the name is taken, or nothing of that sort is compared.
    """
    if sees not in _TERMS:
        raise LimbeckError(unknown(f"comparison {name!r}: sees", sees, list(_TERMS)))
    term = _TERMS[sees]

    def known(function: Function) -> Function:
        own = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "comparison": LayerComparison(function, sees, dict(variants or {}), tuple(takes)),
        }
        # A term of its own by name: what a registration says of itself is the function's.
        objective(name, settings=term.settings_class)(type(function.__name__, (term,), own))
        return function

    return known


def comparison_of(compare: str, *sees: Sees) -> LayerComparison:
    """The comparison of that name.

    Raises:
        LimbeckError: there is none.
        ValueError: it is not one that sees any of these.
    """
    found = getattr(OBJECTIVES.get(compare, "compare"), "comparison", None)
    if not isinstance(found, LayerComparison) or found.sees not in sees:
        names = names_where(lambda one: one.sees in sees)
        problem = unknown("compare", compare, names)
        raise ValueError(f"{problem.message}; {problem.fix}")
    return found


def names_where(fits: Callable[[LayerComparison], bool]) -> list[str]:
    """The names of the comparisons that something is true of."""
    terms = {name: OBJECTIVES.get(name) for name in OBJECTIVES}
    found = {name: getattr(term, "comparison", None) for name, term in terms.items()}
    return [name for name, one in found.items() if one is not None and fits(one)]
