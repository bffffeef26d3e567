"""What all groups of settings have in common: nothing is guessed from a value of another type.

Below everything that has settings of its own in a recipe.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from limbeck.errors import LimbeckError

MAX_ROWS = 5_000_000
"""Rows of one file that are read unasked."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""NumPy takes no others."""
Count = Annotated[int, Field(gt=0, le=10**9)]
"""Of rows, steps, examples, words."""
Depth = Annotated[int, Field(gt=0, le=10**4)]
"""A number of layers, or of one among them."""
LayerNumber = Annotated[int, Field(ge=0, le=10**4)]
"""Of a layer, the lowest being 1; 0 is the embeddings."""
Batch = Annotated[int, Field(gt=0, le=10**6)]
"""Of examples in a forward pass, or of such passes in a step."""
Tokens = Annotated[int, Field(gt=2, le=10**6)]
"""In one input, its marks included."""
Width = Annotated[int, Field(gt=0, le=10**6)]
"""Or a number of heads."""
Passes = Annotated[float, Field(gt=0, le=10**6)]
"""Over the training rows."""

ThresholdSetting = Literal["one", "by_class"] | Annotated[float, Field(gt=0, lt=1)]
"""How probable a class has to be: tuned, one for all or one for each, or a number."""


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_listed)]
"""Some names; one may stand alone."""


def _as_names(value: object) -> object:
    if not isinstance(value, list | tuple):
        return value
    return [str(one) if type(one) is int else one for one in value]


ClassNames = Annotated[list[str], BeforeValidator(_as_names)]
"""Of classes, in an order; a whole number is a name too."""


class RefusedValueError(ValueError):
    """What is wrong with a value in a group of settings, as the recipe's own problems say it."""

    def __init__(self, error: LimbeckError) -> None:
        super().__init__(str(error))
        self.problems = error.problems


class Settings(BaseModel):
    """A group of settings: unknown keys are refused, a truth value is no number and text is neither.

    Numbers are finite. Instances cannot be changed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def named_by(cls, given: Any) -> type[BaseModel]:
        """The class whose settings `given` holds: this one, unless a value in it names another."""
        return cls
