"""What a language model is asked about a row: the settings of a prompt, and the YAML file they are read from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home
from limbeck.support.plain import read_text, read_yaml
from limbeck.support.settings import Seed, Settings

TEMPLATE = "{classes}\n\n{examples}{text}\nAnswer:"
EXAMPLE = "{text}\nAnswer: {answer}\n\n"
CONTENT_FREE = ["", "N/A", "[MASK]"]
"""The inputs without content of Zhao et al. 2021, §5."""

Filled = Annotated[str, Field(min_length=1)]


class Prompt(Settings):
    """A prompt of a task; every field may be left out.

    Attributes:
        template: what the model reads, its answer left open at the end. It may name `{classes}` (the list of
            answers), `{examples}`, `{text}` (the row as `text` writes it) and the row's columns by name; `{{` is a
            brace.
        text: how the texts of a row are written, out of the row's columns; None: a line for each column.
        system: a message that goes before; with a chat template in the system's name.
        verbalizations: class → the words that stand for it; None: the class's own name, `_` read as a space.
        descriptions: class → what it means, said in `{classes}`.
        answers: whether the model is to answer with a verbalization, or with the letter of one in the list.
        examples: rows with their class under `class`.
        examples_per_class: so many more for each class, sampled with `seed` from the labelled training rows.
        example: how an example is written, out of `{text}`, the columns and `{answer}`.
        chat: whether the prompt is put into the tokenizer's chat template; None: where it has one.
        calibrate: divide by the probabilities that the classes have for inputs without content (contextual
            calibration, Zhao et al. 2021); None: wherever there are probabilities to divide.
        content_free: these inputs.
        normalize_length: score a verbalization by its mean log-probability per token, not the sum.
    """

    template: Filled = TEMPLATE
    text: Filled | None = None
    system: Filled | None = None
    verbalizations: dict[str, str] | None = None
    descriptions: dict[str, Filled] = Field(default_factory=dict)
    answers: Literal["verbalizations", "letters"] = "verbalizations"
    examples: list[dict[str, str]] = Field(default_factory=list)
    examples_per_class: Annotated[int, Field(ge=0, le=1000)] = 0
    seed: Seed = 0
    example: Filled = EXAMPLE
    chat: bool | None = None
    calibrate: bool | None = None
    content_free: Annotated[list[str], Field(min_length=1)] = Field(
        default_factory=CONTENT_FREE.copy
    )
    normalize_length: bool = True


def read_prompt(path: str | Path) -> Prompt:
    """The prompt in a YAML file.

    Raises:
        LimbeckError: there is no such file, it is not YAML, or settings in it are unknown or of the wrong type,
            all of them named.
    """
    place = at_home(path)
    value = read_yaml(read_text(place), str(path))
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise LimbeckError(f"{path} holds no settings", "write setting: value, as template: …")
    try:
        return Prompt.model_validate(value)
    except ValidationError as error:
        raise LimbeckError([_problem(str(path), one) for one in error.errors()]) from None


def prompt_digest(prompt: Prompt) -> str:
    """Of all its settings; labels follow from them."""
    content = json.dumps(prompt.model_dump(mode="json"), sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _problem(path: str, error: Mapping[str, Any]) -> Problem:
    place = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return Problem(
            f"{path}: unknown setting {place!r}", f"choices: {', '.join(Prompt.model_fields)}"
        )
    given = f" (it is {error['input']!r:.60})"
    return Problem(f"{path}: {place}: {error['msg'].lower()}{given}", "change it")
