"""How terms become known by name, and a recipe's text becomes settings. Part of `limbeck.objectives`.

The package registers its own terms as a user's file does.
"""

import copy
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic_core import PydanticCustomError

from limbeck.mappings.maps import Projections
from limbeck.objectives.base import OBJECTIVES, Objective, Shape, TermSettings
from limbeck.support import plain
from limbeck.support.errors import LimbeckError
from limbeck.support.given import PREFIX, held, hold, is_reference

# Terms given as objects from Python: their placeholder in a recipe, and how a run gets them back.
# A recipe contains text alone, so that a term is `given:CLASS@FINGERPRINT` there, with its
# settings and plain attributes. The object itself goes along with the recipe's own copy of its
# settings as long as the process lives; a later reader of the recipe has to give it again.


class GivenTerm(TermSettings):
    """A term that is an object. Every build trains a copy of it, as each teacher and stage has its own."""

    values: dict[str, Any] = pydantic.Field(
        default_factory=dict, description="its settings, or plain attributes, for the record"
    )
    _term: Objective | None = pydantic.PrivateAttr(None)

    @pydantic.model_validator(mode="after")
    def _finds_its_object(self) -> "GivenTerm":
        found = held(self.compare)
        if isinstance(found, Objective):
            self._term = found
            if not self.values:
                self.values.update(values_of(found))
        return self

    @property
    def objective(self) -> type[Objective]:
        """The object's traits; unknown if the object is missing."""
        return Objective if self._term is None else type(self._term)

    def build(self, shape: Shape, setting: str, maps: Projections | None = None) -> Objective:
        """A copy of the object.

        Raises:
            LimbeckError: it is not there, was built for other models, or cannot be copied.
        """
        if self._term is None:
            raise LimbeckError(
                f"{setting}: {self.compare} refers to an object that was given from Python, which a "
                "recipe cannot contain",
                f"give it again: {setting}=TERM",
            )
        if getattr(self._term, "shape", shape) != shape:
            raise LimbeckError(
                f"{setting}: the object was built for models of another shape",
                "give its settings, or an object that was built without `shape`",
            )
        try:
            built = copy.deepcopy(self._term)
        except Exception as error:  # a user's object: whatever its parts refuse a copy with
            raise LimbeckError(
                f"{setting}: a {type(self._term).__name__} cannot be copied: {error}",
                "keep locks, files and other models out of it; each stage and teacher has a copy",
            ) from error
        built.shape, built.setting = shape, setting
        return built


def plain_term(term: Objective) -> dict[str, Any]:
    """The placeholder of an object in a recipe."""
    own = getattr(term, "settings", None)
    weight = {} if own is None or own.weight == 1.0 else own.model_dump(include={"weight"})
    return {"compare": reference_of(term), **weight}


def plain_terms(settings: Any) -> Any:
    """Recipe settings with the text for every term that is an object, at any depth."""
    if isinstance(settings, Objective):
        return plain_term(settings)
    if isinstance(settings, TermSettings):
        return settings.model_dump(mode="json")
    if not isinstance(settings, Mapping):
        return settings
    plain: dict[Any, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Objective) and str(key).rpartition(".")[2] == "compare":
            plain |= {key: reference_of(value)}
        else:
            plain[key] = plain_terms(value)
    return plain


def reference_of(term: Objective) -> str:
    """`given:CLASS@FINGERPRINT`, which leads back to the object while it lives."""
    kind = type(term)
    place = f"{kind.__module__}.{kind.__qualname__}".replace("<locals>.", "")
    shapes = {name: list(value.shape) for name, value in term.state_dict().items()}
    about = json.dumps([place, _source(kind), values_of(term), shapes], sort_keys=True)
    reference = f"{PREFIX}{place}@{hashlib.blake2b(about.encode(), digest_size=6).hexdigest()}"
    hold(reference, term)
    return reference


def values_of(term: Objective) -> dict[str, Any]:
    """An object's settings; without any its attributes that are numbers, text and lists of them."""
    own = getattr(term, "settings", None)
    if own is not None:
        result: dict[str, Any] = own.model_dump(mode="json", exclude={"compare", "weight"})
        return result
    found = {}
    for name, value in vars(term).items():
        if name.startswith("_") or name in ("training", "setting", "shape"):
            continue
        try:
            found[name] = plain.check_plain(value, name)
        except LimbeckError:  # a module, a function: the source of its class represents it
            continue
    return found


def _source(kind: type) -> str:
    """The source of its class, if there is a file with it."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""


Term = TypeVar("Term", bound=type[Objective])

RECORDED = {"recorded": True}
"""The context of pydantic's in which a run's record is read: nothing is loaded to understand it."""
UNKNOWN_TERM = "unknown_objective"
"""The type of pydantic's error for a name that is not registered."""


def objective(
    name: str, *more: str, settings: type[TermSettings] | None = None
) -> Callable[[Term], Term]:
    """Make a term known by name: a class decorator, `@limbeck.objective("dist")`.

    Args:
        name: the value of `compare` in a recipe.
        more: further names, if one class compares in several ways; `settings.compare` selects one.
        settings: its settings in a recipe, a subclass of `TermSettings`; weight alone if left
            out.

    Example:
        ```python
        @limbeck.objective("two-correlations")
        class TwoCorrelations(limbeck.Objective): ...  # with `forward`: docs/write-your-own-loss.md
        ```

    Raises:
        LimbeckError: the decorated class is no `Objective`, or a name is taken.
    """

    def known(term: Term) -> Term:
        if not (inspect.isclass(term) and issubclass(term, Objective)):
            raise LimbeckError(
                f"objective {name!r}: {getattr(term, '__name__', term)} is no limbeck.Objective",
                "decorate a class that inherits from it and has a forward",
            )
        if settings is not None:
            term.settings_class = settings
            own = vars(settings).get("names", ())  # without the names of the class that it extends
            settings.names = tuple(dict.fromkeys((*own, name, *more)))
        for one in (name, *more):
            OBJECTIVES.register(one)(term)
        return term

    return known


class RecordedTerm(TermSettings):
    """A term of a run's record whose name is not registered here: kept unchanged, never built."""

    model_config = pydantic.ConfigDict(extra="allow")

    @property
    def objective(self) -> type[Objective]:
        """Its traits are unknown."""
        return Objective


def read_term(given: Any, info: pydantic.ValidationInfo) -> TermSettings:
    """The settings of one term, of the class that its `compare` names."""
    if isinstance(given, TermSettings):
        return given
    given = plain_terms(given)
    if not isinstance(given, Mapping):
        raise PydanticCustomError("no_term", "a term is given by its settings")
    name = given.get("compare")
    if name is None:
        raise PydanticCustomError("no_compare", "compare: is missing: the name of the comparison")
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


TermSpec = Annotated[pydantic.SerializeAsAny[TermSettings], pydantic.PlainValidator(read_term)]
"""A term in a recipe, of whatever class."""
