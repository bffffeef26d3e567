"""How terms become known by name, and a recipe's text becomes settings. Part of `limbeck.objectives`.

The package registers its own terms as a user's file does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, PlainValidator, SerializeAsAny, ValidationInfo
from pydantic_core import PydanticCustomError

from limbeck.objectives.base import OBJECTIVES, Objective, TermSettings
from limbeck.objectives.given_terms import GivenTerm, plain_terms
from limbeck.support.errors import LimbeckError
from limbeck.support.given import is_reference

Term = TypeVar("Term", bound=type[Objective])

RECORDED = {"recorded": True}
"""The context of pydantic's in which a run's record is read: nothing is loaded to understand it."""
UNKNOWN_TERM = "unknown_objective"
"""The type of pydantic's error for a name that nobody registered."""


def objective(
    name: str, *more: str, settings: type[TermSettings] | None = None
) -> Callable[[Term], Term]:
    """Make a term known by name: a class decorator, `@limbeck.objective("dist")`.

    Args:
        name: the value of `compare` in a recipe.
        more: further names, where one class compares in several ways; `settings.compare` says which.
        settings: what a recipe may say about it, a subclass of `TermSettings`; weight alone if left
            out.

    Raises:
        LimbeckError: what is decorated is no `Objective` that can be built, or a name is taken.
    """

    def known(term: Term) -> Term:
        _check(term, name)
        if settings is not None:
            term.settings_class = settings
            settings.names = tuple(dict.fromkeys((*settings.names, name, *more)))
        for one in (name, *more):
            OBJECTIVES.register(one)(term)
        return term

    return known


def _check(term: Any, name: str) -> None:
    if not (inspect.isclass(term) and issubclass(term, Objective)):
        raise LimbeckError(
            f"objective {name!r}: {getattr(term, '__name__', term)} is no limbeck.Objective",
            "decorate a class that inherits from it and has a forward",
        )
    if inspect.isabstract(term):
        raise LimbeckError(
            f"objective {name!r}: {term.__name__} lacks {', '.join(sorted(term.__abstractmethods__))}",
            "write it: forward(self, student, teacher, batch, step_state) returns a scalar",
        )
    try:
        inspect.signature(term).bind("settings", "shape", "setting")
    except TypeError as error:
        raise LimbeckError(
            f"objective {name!r}: {term.__name__} cannot be built from a recipe: {error}",
            "take (self, settings, shape, setting) and hand them to super().__init__; what a user "
            "may choose belongs into a settings class",
        ) from None


class RecordedTerm(TermSettings):
    """A term of a run's record whose name nobody here has registered: kept as it is, never built."""

    model_config = ConfigDict(extra="allow")

    @property
    def objective(self) -> type[Objective]:
        """Of whose traits nothing is known."""
        return Objective


def read_term(given: Any, info: ValidationInfo) -> TermSettings:
    """The settings of one term, of the class that its `compare` names."""
    if isinstance(given, TermSettings):
        return given
    given = plain_terms(given)
    if not isinstance(given, Mapping):
        raise PydanticCustomError("no_term", "a term is given by its settings")
    name = given.get("compare")
    if name is None:
        raise PydanticCustomError("no_compare", "compare: is missing, which says what it compares")
    if isinstance(name, str) and is_reference(name):
        return GivenTerm.model_validate(given)
    if info.context == RECORDED and name not in [*OBJECTIVES]:
        return RecordedTerm.model_validate(given)
    if not isinstance(name, str) or name not in OBJECTIVES:
        raise PydanticCustomError(UNKNOWN_TERM, "unknown objective")
    return class_of(name).model_validate(given)


def class_of(compare: Any) -> type[TermSettings]:
    """The class of a term's settings, by its name, or of one that is an object."""
    if isinstance(compare, Objective) or is_reference(compare):
        return GivenTerm
    return OBJECTIVES.get(compare).settings_class


TermSpec = Annotated[SerializeAsAny[TermSettings], PlainValidator(read_term)]
"""A term in a recipe, of whatever class."""
