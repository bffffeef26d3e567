"""Entries of a study that are written once for several names: `by {size}: {teachers: ["{size}"]}`.

Works on the plain values of a study's file, before its keys are read, and so in every part of it alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

from limbeck.lab.study.study_names import NAMES, StudyNames
from limbeck.recipe.load import merge
from limbeck.support.errors import LimbeckError, Problem, unknown

_IN_BRACES = re.compile(r"\{([A-Za-z][\w-]*)(?:\.([\w-]+))?\}")
_MOST = 1000

Bound = Mapping[str, Any]
"""Name → which of its values stands for it."""


def expand_names(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A study's plain values with every pattern written out, and without `names`.

    `names: {size: [26, 32]}` lists what stands for `{size}`. A key with `{size}` in it is one entry for each
    of them, an item of a list likewise, and several names in one are every combination, the first slowest;
    inside an entry `{size}` is the one that it is written for. `{size.net}` is looked up in
    `names: {size.net: {26: …, 32: …}}`. A text that is nothing but `{size}` or `{size.net}` becomes the value
    itself, whatever its type. Where several patterns give one entry, the later is laid over the earlier; an
    entry whose key is written out is laid over them all. Braces around words that are not listed stay in
    values, as `{task}` does.

    Raises:
        LimbeckError: together: lists and tables of names that are none; keys with names that are not listed;
            values with a name that no key around them has; names that stand nowhere.
    """
    names = StudyNames(raw.get(NAMES))
    if names.problems:  # they would be said again wherever the names stand
        raise LimbeckError(names.problems)
    expansion = _Expansion(names)
    found = expansion.mapping({key: value for key, value in raw.items() if key != NAMES}, {}, "")
    problems = list(dict.fromkeys(expansion.problems)) or expansion.unused()
    if problems:
        raise LimbeckError(problems)
    return found


class _Expansion:
    """Writes patterns out, and notes what is wrong with them and which names were read."""

    def __init__(self, names: StudyNames) -> None:
        self.names, self.read = names, set[str]()
        self.problems: list[Problem] = []

    def unused(self) -> list[Problem]:
        """Names that stand nowhere."""
        return [
            Problem(f"{NAMES}.{key}: {{{key}}} stands nowhere", "use it, or take it out")
            for key in self.names.known()
            if key not in self.read
        ]

    def mapping(self, raw: Mapping[Any, Any], bound: Bound, place: str) -> dict[Any, Any]:
        """A mapping's entries in their order; what is written out is laid over what patterns give."""
        found: dict[Any, Any] = {}
        written: dict[Any, Any] = {}
        for key, value in raw.items():
            inside = f"{place}.{key}" if place else str(key)
            if not isinstance(key, str) or not _IN_BRACES.search(key):
                found.setdefault(key, None)
                written[key] = self._value(value, bound, inside)
            elif self._all_listed(key, inside):
                for one in self._bindings(key, bound, inside):
                    name = str(self._text(key, one, inside))
                    found = merge(found, {name: self._value(value, one, inside)})
        return merge(found, written)

    def _value(self, value: Any, bound: Bound, place: str) -> Any:
        """A value with what is bound filled in, and with its own patterns written out."""
        if isinstance(value, dict):
            name = next(iter(value), None)
            if value == {name: None} and name in self.names.values:
                # This is how YAML reads braces without quotes.
                self._problem(f"{place}: {{{name}}} is no text", f'write "{{{name}}}" in quotes')
            return self.mapping(value, bound, place)
        if isinstance(value, list):
            return [
                self._value(item, one, place)
                for item in value
                for one in self._bindings(item if isinstance(item, str) else "", bound, place)
            ]
        return self._text(value, bound, place) if isinstance(value, str) else value

    def _bindings(self, text: str, bound: Bound, place: str) -> Iterator[Bound]:
        """What is bound, once for each combination of the text's names that are not yet."""
        words = dict.fromkeys(name for name, _ in _IN_BRACES.findall(text))
        free = {
            word: self.names.values[word]
            for word in words
            if word in self.names.values and word not in bound
        }
        if prod(map(len, free.values())) > _MOST:
            self._problem(f"{place}: {text} stands for more than {_MOST} entries", "list fewer")
            return
        for one in product(*free.values()):
            yield {**bound, **dict(zip(free, one, strict=True))}

    def _text(self, text: str, bound: Bound, place: str) -> Any:
        """A text with its names filled in; where it is nothing but a name, that name's value."""
        alone = _IN_BRACES.fullmatch(text)
        if alone is not None:
            return self._filled(alone, bound, place)
        return _IN_BRACES.sub(lambda found: str(self._filled(found, bound, place)), text)

    def _filled(self, found: re.Match[str], bound: Bound, place: str) -> Any:
        """What stands for braces; themselves where their word is no name."""
        text, name, field = found[0], found[1], found[2]
        if name not in self.names.values or not self._all_listed(text, place):
            return text
        if name not in bound:
            self._problem(
                f"{place}: {text} stands where no key around it has {{{name}}}",
                f"write {{{name}}} into the name of the entry, or take it out here",
            )
            return text
        self.read |= {name, text[1:-1]}
        return bound[name] if field is None else self.names.tables[text[1:-1]][str(bound[name])]

    def _all_listed(self, text: str, place: str) -> bool:
        """Whether a text's names are listed; notes those that are not."""
        known = self.names.known()
        keys = [f"{name}.{field}" if field else name for name, field in _IN_BRACES.findall(text)]
        wrong = [key for key in keys if key not in known]
        for key in wrong:
            if known:
                self.problems.append(unknown(f"name in {place}:", key, known))
            else:
                self._problem(
                    f"{place}: the study lists no names, and {{{key}}} is one",
                    f"list what it stands for: {NAMES}: {{{key}: [A, B]}}",
                )
        return not wrong

    def _problem(self, message: str, fix: str) -> None:
        self.problems.append(Problem(message, fix))
