"""What a language model is asked about a row: the settings of a prompt, and the YAML file they are read from."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from limbeck.support.errors import LimbeckError, Problem, unknown
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


# Templates that name values and do nothing else: no attribute, index, conversion or format is
# looked at.


@dataclass(frozen=True)
class PromptTemplate:
    """A template taken apart once. Values are put in as they are: braces in a text stay braces.

    Attributes:
        parts: text, and the name behind it or None.
    """

    parts: tuple[tuple[str, str | None], ...]

    @property
    def names(self) -> set[str]:
        """The values that it asks for."""
        return {name for _, name in self.parts if name is not None}

    @property
    def counts(self) -> Counter[str]:
        """How often it asks for each of them."""
        return Counter(name for _, name in self.parts if name is not None)

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with each name's value in its place."""
        return "".join(
            text + (values[name] if name is not None else "") for text, name in self.parts
        )


def parse_template(
    setting: str, template: str, names: Sequence[str]
) -> tuple[PromptTemplate | None, list[Problem]]:
    """The template, or None and everything that is wrong with it.

    Args:
        setting: where it was written, for messages.
        names: what may stand in braces.
    """
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        problem = Problem(f"{setting}: {error}", "write {{ or }} for a brace that names no value")
        return None, [problem]
    problems = []
    for _, name, form, conversion in parsed:
        if name is None:
            continue
        if form or conversion:
            written = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            problems.append(
                Problem(f"{setting}: {{{written}}} formats a value", f"write {{{name}}} alone")
            )
        elif name not in names:
            problems.append(unknown(f"name in {setting}", name, names))
    if problems:
        return None, problems
    return PromptTemplate(tuple((text, name) for text, name, _, _ in parsed)), []


# Few-shot examples sampled from labelled rows.


Row = Mapping[str, str]
CLASS = "class"
"""The key of an example's class beside its columns."""


def sample_examples(
    rows: Sequence[Row],
    labels: Sequence[int],
    classes: Sequence[str],
    *,
    each: int,
    seed: int,
    excluded: Collection[tuple[str, ...]] = (),
) -> list[dict[str, str]]:
    """So many examples of each class, in an order of their own.

    Args:
        rows: the labelled training rows, by column.
        labels: their class ids; -1 for a row without a label.
        excluded: the texts of rows that must not be taken, such as those of the dev split.

    Raises:
        LimbeckError: a class has too few rows; all such classes are named.
    """
    generator = np.random.default_rng(seed)
    taken: list[int] = []
    problems = []
    known = set(excluded)
    ids = np.asarray(labels)
    for number, name in enumerate(classes):
        # A text that stands twice makes one example.
        texts: dict[tuple[str, ...], int] = {}
        for place in np.flatnonzero(ids == number).tolist():
            text = tuple(rows[place].values())
            if text not in known:
                texts.setdefault(text, place)
        places = list(texts.values())
        if len(places) < each:
            problems.append(
                Problem(
                    f"examples_per_class: {each}, but class {name!r} has {len(places)} labelled training rows "
                    "that are in no other split",
                    f"set it to {len(places)}, or write examples of your own",
                )
            )
            continue
        taken += generator.choice(places, each, replace=False).tolist()
    if problems:
        raise LimbeckError(problems)
    # Classes in blocks teach a model that the last class is what comes next (Zhao et al. 2021, §3).
    order = generator.permutation(len(taken))
    return [dict(rows[taken[at]]) | {CLASS: classes[ids[taken[at]]]} for at in order]
