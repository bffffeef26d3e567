"""What a study's file lists under `names`, checked: the values that patterns stand for, and tables of them."""

from __future__ import annotations

import re
from typing import Any

from limbeck.support.errors import Problem, unknown

NAMES = "names"
"""The key of a study's file that lists them."""

_FILLED_LATER = ("task", "model")
_KEY = re.compile(r"([A-Za-z][\w-]*)(?:\.([\w-]+))?")


class StudyNames:
    """The values of each name, and what is looked up by them.

    Attributes:
        values: what a name stands for: `{"size": [26, 32]}`.
        tables: by name and field, then by value as a text: `{"size.net": {"26": "resnet-8", …}}`. The first
            one's keys are the name's values where nothing else lists them.
        problems: lists that are none, tables that do not fit their lists.
    """

    def __init__(self, raw: Any) -> None:
        self.values: dict[str, list[Any]] = {}
        self.tables: dict[str, dict[str, Any]] = {}
        self.problems: list[Problem] = []
        raw = {} if raw is None else raw
        if not isinstance(raw, dict):
            self._problem(
                f"{NAMES}: {raw!r:.60} are no lists", f"write {NAMES}: {{size: [26, 32]}}"
            )
            return
        # A scale takes a name away by null, as a recipe does.
        listed = {str(key): value for key, value in raw.items() if value is not None}
        for key, value in listed.items():
            if "." not in key:
                self._take_list(key, value)
        for key, value in listed.items():
            if "." in key:
                self._take_table(key, value)

    def known(self) -> list[str]:
        """All that may stand in braces."""
        return [*self.values, *self.tables]

    def _take_list(self, name: str, value: Any) -> None:
        """What a name stands for."""
        if not self._may_be_called(name):
            return
        if not isinstance(value, list) or not value or not all(map(_is_plain, value)):
            self._problem(
                f"{NAMES}.{name}: {value!r:.60} is no list of words and numbers",
                f"write {name}: [26, 32]",
            )
            return
        texts = [*map(str, value)]
        twice = [one for one in dict.fromkeys(texts) if texts.count(one) > 1]
        if twice:
            self._problem(f"{NAMES}.{name}: has {', '.join(twice)} twice", "leave one out")
        self.values[name] = value

    def _take_table(self, key: str, value: Any) -> None:
        """What is looked up by a name: a value for each of its values by name, or all in their order."""
        name, place = key.partition(".")[0], f"{NAMES}.{key}"
        if not self._may_be_called(key):
            return
        if isinstance(value, dict) and value:
            values = [*map(str, self.values.setdefault(name, list(value)))]
            self.tables[key] = {str(one): said for one, said in value.items()}
            for one in self.tables[key]:
                if one not in values:
                    self.problems.append(unknown(f"name in {place}:", one, values))
            missing = [one for one in values if one not in self.tables[key]]
            if missing:
                self._problem(f"{place}: says nothing of {', '.join(missing)}", "give each a value")
        elif isinstance(value, list) and len(value) == len(self.values.get(name, [])):
            self.tables[key] = dict(zip(map(str, self.values[name]), value, strict=True))
        else:
            count = len(self.values.get(name, []))
            self._problem(
                f"{place}: {value!r:.60} is no table, and no list of as many as {name} has ({count})",
                f"write {key}: {{26: 0.5}}, or a list in the order of {NAMES}.{name}",
            )

    def _may_be_called(self, key: str) -> bool:
        found = _KEY.fullmatch(key)
        if found is None:
            self._problem(
                f"{NAMES}.{key}: is no word of letters, digits, _ and -, or two with a point between",
                "call it otherwise",
            )
        elif found[1] in _FILLED_LATER:
            self._problem(
                f"{NAMES}.{key}: {{{found[1]}}} is filled in elsewhere", "call it otherwise"
            )
        return found is not None and found[1] not in _FILLED_LATER

    def _problem(self, message: str, fix: str) -> None:
        self.problems.append(Problem(message, fix))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
