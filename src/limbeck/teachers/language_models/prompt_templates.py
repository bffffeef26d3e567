"""Templates that name values and do nothing else: no attribute, index, conversion or format is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from limbeck.support.errors import Problem, unknown


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
