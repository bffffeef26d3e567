"""Settings of augmentation in a recipe, and how the code that augments is found. Part of `limbeck.recipe`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from limbeck.support.errors import LimbeckError
from limbeck.support.registry import Registry
from limbeck.support.settings import Number, Seed, Settings

_Few = Annotated[int, Field(gt=0, le=10**4)]

FROM_TEACHER = "teacher"
"""As `model`: the teacher, the first of several."""


class AugmentSpec(Settings):
    """How the training rows are multiplied."""

    model: str | None = Field(
        None,
        description="masked language model that proposes words: a run folder, a checkpoint's "
        "folder or a Hub name; with replace_by=nearest any encoder, of which word vectors are all that is read, "
        "`teacher` the run's own",
    )
    replace_by: Literal["masked", "nearest"] = Field(
        "masked",
        description="masked: replace one-token words by predictions of the masked language model; "
        "nearest: replace all words by words with the nearest vectors, without a language model",
    )
    examples: _Few = Field(20, description="augmented examples of each training row")
    probability: Number = Field(0.4, gt=0, le=1, description="probability that a word is replaced")
    candidates: _Few = Field(15, description="words from which a replacement is sampled")
    words: Literal["content", "all"] = Field(
        "content", description="which words may change: all, or all but English function words"
    )
    context: Literal["original", "edited"] = Field(
        "original",
        description="text that the model reads around a word: the original row, with predictions made once per word, "
        "or the augmented example as edited so far (the paper's Algorithm 1)",
    )
    embeddings: str | None = Field(
        None,
        description="text file of word vectors (GloVe's format) for words of several tokens, with "
        "replace_by=nearest for all; left out, the model's own vectors of the words of the training rows, with "
        "replace_by=nearest of all words that it knows as one token",
    )
    seed: Seed = Field(0, description="seed of the sampling")


AUGMENTATION: Registry[Any] = Registry("augmentation")
"""What carries the settings out: `limbeck.lab.augmentation`, where the lab is installed. Its class has

`problems(recipe)`, settings of a recipe that do not go together; `load(recipe, task, rows)`, an object that augments
training rows; and `extend(prepared, show=…)`, a prepared run with augmented examples behind its training rows.
"""


def augmentation() -> Any:
    """What carries out `augment:` of a recipe.

    Raises:
        LimbeckError: nothing is installed that does.
    """
    for name in AUGMENTATION:
        return AUGMENTATION.get(name)()
    raise LimbeckError(
        "augment: augmentation is part of limbeck.lab, which is not installed",
        "install all of limbeck, or leave augment out: augment=null",
    )
