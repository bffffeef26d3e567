"""What all groups of settings have in common: nothing is guessed from a value of another type.

Below everything that has settings of its own in a recipe.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from limbeck.support.errors import LimbeckError, Problem, raise_problems, unknown
from limbeck.support.step_state import StepState

Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""NumPy takes no others."""
Count = Annotated[int, Field(gt=0, le=10**9)]
"""A number of rows, steps, examples or words."""
Depth = Annotated[int, Field(gt=0, le=10**4)]
"""A number of layers, or of one among them."""
LayerNumber = Annotated[int, Field(ge=0, le=10**4)]
"""The number of a layer, the lowest being 1; 0 is the embeddings."""
Pool = Literal["cls", "mean", "last"]
"""How hidden states of a sequence become one vector; `limbeck.functional.hidden.pool` is their equation."""
DeviceMap = Literal["auto", "balanced", "balanced_low_0", "sequential"]
"""How accelerate places a model's parts on several devices."""
DEVICE_MAPS = "auto (fill the GPUs, then the CPU), balanced, balanced_low_0 or sequential"
"""Its choices, for descriptions of settings."""
Batch = Annotated[int, Field(gt=0, le=10**6)]
"""A number of examples in a forward pass, or of forward passes in a step."""
Tokens = Annotated[int, Field(gt=2, le=10**6)]
"""In one input, its marks included."""
Width = Annotated[int, Field(gt=0, le=10**6)]
"""Or a number of heads."""
Vocabulary = Annotated[int, Field(ge=100, le=10**6)]
"""Tokens that a tokenizer knows."""
_SIZE = re.compile(r"corpus|\d+|\d+(\.\d+)?MB|(?!0+(\.0+)?%)(100|\d{1,2}(\.\d+)?)%")


def _vocabulary_size(value: object) -> str:
    text = re.sub("mb$", "MB", str(value).replace(" ", ""), flags=re.IGNORECASE)
    if not _SIZE.fullmatch(text):
        raise ValueError(
            "no size of a vocabulary; write a number of tokens (8000), megabytes of embeddings (12MB), a share of the "
            "text's tokens (95%) or corpus"
        )
    return text


VocabularySize = Annotated[str, BeforeValidator(_vocabulary_size)]
"""Size of a smaller vocabulary: `8000` tokens, `12MB` of embeddings, `95%` of a text's tokens, `corpus` for all."""
Passes = Annotated[float, Field(gt=0, le=10**6)]
"""Over the training rows."""

Part = Annotated[float, Field(ge=0, lt=1)]
"""A fraction, from 0 to below 1."""
Between = Annotated[float, Field(gt=0, lt=1)]
"""A fraction above 0 and below 1."""
ThresholdSetting = Literal["one", "by_class"] | Between
"""How probable a class has to be: tuned, one for all or one for each, or a number."""


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_listed)]
"""Some names; a single one needs no list."""


def as_words(value: object) -> object:
    """A list, or one name, as a tuple."""
    found = _listed(value)
    return tuple(found) if isinstance(found, list) else found


Words = Annotated[tuple[str, ...], BeforeValidator(as_words)]
"""The same for Python callers, in any sequence."""
Place = Annotated[str, BeforeValidator(lambda one: str(one) if isinstance(one, Path) else one)]
"""A path or a URL."""


def _as_names(value: object) -> object:
    if not isinstance(value, list | tuple):
        return value
    return [str(one) if type(one) is int else one for one in value]


ClassNames = Annotated[list[str], BeforeValidator(_as_names)]
"""Class names, in an order; an integer is a name too."""


class RefusedValueError(ValueError):
    """The error for a value in a group of settings, worded as the recipe's own problems."""

    def __init__(self, error: LimbeckError) -> None:
        super().__init__(str(error))
        self.problems = error.problems


class Settings(BaseModel):
    """A group of settings: unknown keys are errors, a truth value is not a number and text is neither.

    Numbers are finite. Instances cannot be changed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def named_by(cls, given: Any) -> type[BaseModel]:
        """The class whose settings `given` holds: this one, unless a value in it names another."""
        return cls

    @classmethod
    def checked(cls, given: Mapping[str, Any], where: str = "") -> Self:
        """Check the given settings, whose source is `where` (` in FILE`).

        Raises:
            LimbeckError: unknown settings and wrong values, all of them.
        """
        known = {name: given[name] for name in given if name in cls.model_fields}
        names = [*cls.model_fields]
        problems = [
            unknown(f"setting{where}", str(one), names) for one in given if one not in known
        ]
        try:
            made = cls.model_validate(known)
        except ValidationError as error:
            found: dict[str, Any] = {}
            for one in error.errors():
                # A union's branches (`list[int]`) are reported one by one. The first one of the value's type is enough.
                named = (
                    part
                    for part in one["loc"]
                    if isinstance(part, str) and part.isidentifier() and part not in _PLAIN_TYPES
                )
                name = ".".join(named) + where
                first = found.setdefault(name, one)
                if first["type"].endswith("_type") and not one["type"].endswith("_type"):
                    found[name] = one
            for name, one in found.items():
                if one["type"] == "missing":
                    problems.append(Problem(f"{name} is missing", "give it"))
                elif one["type"] == "literal_error":
                    expected = re.split(", | or ", one["ctx"]["expected"])
                    choices = [choice.strip("'") for choice in expected]
                    problems.append(unknown(name, str(one["input"]), choices))
                else:
                    why, _, fix = _plain(one["msg"]).partition("; ")
                    said = f"{name} is {one['input']!r:.60}: {why}"
                    problems.append(Problem(said, fix or "change it"))
        raise_problems(problems)
        return made


_PLAIN_TYPES = ("str", "int", "float", "bool")


def _plain(message: str) -> str:
    """Pydantic's message as the rest of a sentence."""
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


# Schedules: the weight of a term as a pure function of progress.


_FRACTION = re.compile(r"[-+]?[0-9]{1,15}/0*[1-9][0-9]{0,15}")
# YAML 1.1 reads 1e-4 as a word, because it has no dot; recipes in Python may have it as text.
_DECIMAL = re.compile(
    r"[-+]?((0|[1-9][0-9]{0,29})(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?"
)


def _number(value: object) -> object:
    """`1/3` in a recipe means the fraction, not its rounded decimal."""
    text = value.replace(" ", "") if isinstance(value, str) else ""
    if _FRACTION.fullmatch(text):
        return float(Fraction(text))
    return float(text) if _DECIMAL.fullmatch(text) else value


Number = Annotated[float, BeforeValidator(_number)]
MOST = 10.0**6
"""Weight of a term: a larger one leaves the other terms nothing in single precision."""
Rate = Annotated[Number, Field(ge=1e-12, le=10)]
"""Learning rate: a smaller one moves no weight in single precision, a larger one throws them away."""
Share = Annotated[Number, Field(gt=0, le=1)]
"""A fraction of a total, above 0 and at most 1."""
Temperature = Annotated[Number, Field(ge=1e-3, le=1e3)]
"""Temperature: a lower one overflows the quotient; above the highest all outputs are alike."""


class Ramp(Settings):
    """A weight moving linearly from `start` to `end` over the run's first `over`, then staying."""

    start: Number = Field(0.0, ge=0, le=MOST, description="weight at the first step")
    end: Number = Field(ge=0, le=MOST, description="weight after the ramp")
    over: Number = Field(gt=0, le=1, description="share of all optimization steps the ramp takes")
    by: Literal["step", "epoch"] = Field(
        "step", description="move every step, or at the start of an epoch"
    )

    def at(self, step_state: StepState) -> float:
        """The weight at `step_state`."""
        progress = step_state.progress
        if self.by == "epoch" and step_state.passes > 0:
            progress *= step_state.epoch / step_state.passes
        return self.start + (self.end - self.start) * min(1.0, progress / self.over)


Weight = Annotated[Number, Field(ge=0, le=MOST)] | Ramp
