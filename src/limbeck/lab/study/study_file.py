"""A study's file, or a shipped study, read and checked completely."""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from limbeck.data.own import is_own, own_name
from limbeck.lab.study import study_fields
from limbeck.lab.study.figure_spec import FigureSpec
from limbeck.lab.study.study_checks import study_problems
from limbeck.recipe import Recipe, load, validation
from limbeck.support import files, plain
from limbeck.support.errors import LimbeckError, Problem, check_choice, raise_problems, unknown

# The lists under `names` in a study's file, checked: the values of patterns, and tables of them.


NAMES = "names"
"""The key of a study's file that lists them."""

_FILLED_LATER = ("task", "model")
_KEY = re.compile(r"([A-Za-z][\w-]*)(?:\.([\w-]+))?")


class StudyNames:
    """The values of each name, and the tables that it indexes.

    Attributes:
        values: a name's values: `{"size": [26, 32]}`.
        tables: by name and field, then by value as a text: `{"size.net": {"26": "resnet-8", …}}`. The first
            one's keys are the name's values if nothing else lists them.
        problems: invalid lists, tables that do not fit their lists.
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
        """All that may be in braces."""
        return [*self.values, *self.tables]

    def _take_list(self, name: str, value: Any) -> None:
        """A name's values."""
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
        """The table of a name: a value for each of its values by name, or all in their order."""
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
                self._problem(f"{place}: no value for {', '.join(missing)}", "give each a value")
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


# Entries of a study that are written once for several names: `by {size}: {teachers: ["{size}"]}`.


_IN_BRACES = re.compile(r"\{([A-Za-z][\w-]*)(?:\.([\w-]+))?\}")
_MOST = 1000

Bound = Mapping[str, Any]
"""Name → the value that replaces it."""


def expand_names(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A study's plain values with every pattern written out, and without `names`.

    `names: {size: [26, 32]}` lists the values of `{size}`. A key with `{size}` in it is one entry for each
    of them, an item of a list too, and several names in one are every combination, the first slowest;
    inside an entry `{size}` is the one that it is written for. `{size.net}` is looked up in
    `names: {size.net: {26: …, 32: …}}`. A text that is nothing but `{size}` or `{size.net}` becomes the value
    itself, whatever its type. Where several patterns give one entry, the later is laid over the earlier; an
    entry whose key is written out is laid over them all. Braces around words that are not listed stay in
    values, as `{task}` does.

    Raises:
        LimbeckError: together: invalid lists and tables of names; keys with names that are not listed;
            values with a name that no key around them has; unused names.
    """
    names = StudyNames(raw.get(NAMES))
    if names.problems:  # otherwise they would be reported again wherever the names occur
        raise LimbeckError(names.problems)
    expansion = _Expansion(names)
    found = expansion.mapping({key: value for key, value in raw.items() if key != NAMES}, {}, "")
    problems = list(dict.fromkeys(expansion.problems)) or expansion.unused()
    raise_problems(problems)
    return found


class _Expansion:
    """Writes patterns out, and notes their problems and the names that were read."""

    def __init__(self, names: StudyNames) -> None:
        self.names, self.read = names, set[str]()
        self.problems: list[Problem] = []

    def unused(self) -> list[Problem]:
        """Unused names."""
        return [
            Problem(f"{NAMES}.{key}: {{{key}}} is not used", "use it, or remove it")
            for key in self.names.known()
            if key not in self.read
        ]

    def mapping(self, raw: Mapping[Any, Any], bound: Bound, place: str) -> dict[Any, Any]:
        """A mapping's entries in their order; explicit entries override those from patterns."""
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
                    found = load.merge(found, {name: self._value(value, one, inside)})
        return load.merge(found, written)

    def _value(self, value: Any, bound: Bound, place: str) -> Any:
        """A value with bound names filled in, and with its own patterns written out."""
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
        """The bound values, once for each combination of the text's names that are not yet bound."""
        words = dict.fromkeys(name for name, _ in _IN_BRACES.findall(text))
        free = {
            word: self.names.values[word]
            for word in words
            if word in self.names.values and word not in bound
        }
        if prod(map(len, free.values())) > _MOST:
            self._problem(f"{place}: {text} expands to more than {_MOST} entries", "list fewer")
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
        """The value of braces; the braces themselves if their word is no name."""
        text, name, field = found[0], found[1], found[2]
        if name not in self.names.values or not self._all_listed(text, place):
            return text
        if name not in bound:
            self._problem(
                f"{place}: no key around {text} has {{{name}}}",
                f"write {{{name}}} into the name of the entry, or take it out here",
            )
            return text
        self.read |= {name, text[1:-1]}
        return bound[name] if field is None else self.names.tables[text[1:-1]][str(bound[name])]

    def _all_listed(self, text: str, place: str) -> bool:
        """Whether a text's names are listed; notes names that are not."""
        known = self.names.known()
        keys = [f"{name}.{field}" if field else name for name, field in _IN_BRACES.findall(text)]
        wrong = [key for key in keys if key not in known]
        for key in wrong:
            if known:
                self.problems.append(unknown(f"name in {place}:", key, known))
            else:
                self._problem(
                    f"{place}: the study lists no names, and {{{key}}} is one",
                    f"list its values: {NAMES}: {{{key}: [A, B]}}",
                )
        return not wrong

    def _problem(self, message: str, fix: str) -> None:
        self.problems.append(Problem(message, fix))


# The studies that ship with limbeck, read as plain YAML: listing them loads no torch.


_FOLDER = resources.files("limbeck.lab.study") / "shipped"


@dataclass(frozen=True)
class ShippedStudy:
    """One shipped study: its name, its summary, its scales and its content."""

    name: str
    title: str
    paper: str
    scales: tuple[str, ...]
    raw: dict[str, Any]


def shipped_names() -> tuple[str, ...]:
    """Every shipped study's name."""
    files = sorted(file.name for file in _FOLDER.iterdir())
    return tuple(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def shipped() -> dict[str, ShippedStudy]:
    """Every shipped study by name."""
    return {name: shipped_study(name) for name in shipped_names()}


@cache
def shipped_study(name: str) -> ShippedStudy:
    """The one of `shipped_names` with this name, which is read once and not to be changed."""
    file = _FOLDER / f"{name}.yaml"
    raw = plain.read_yaml(file.read_text(encoding="utf-8"), file.name)
    return ShippedStudy(name, raw["title"], raw["paper"], tuple(raw.get("scales", {})), raw)


def load_study(
    path_or_name: str | Path, *, scale: str | None = None, **given: Any
) -> study_fields.Study:
    """A study's file, or a shipped study by its name, at one of its scales.

    Args:
        path_or_name: a YAML file, or a name that `limbeck study` lists.
        scale: which part of `scales` overrides the rest; may be left out if there are no scales.
        **given: keys of the study that override the file; None is not given.

    Raises:
        LimbeckError: every mistake in it, together.
    """
    name, raw = _read(path_or_name)
    given = {
        key: plain.check_plain(value, key) for key, value in given.items() if value is not None
    }
    scales = raw.pop("scales", None) or {}
    if not isinstance(scales, Mapping) or not all(isinstance(one, dict) for one in scales.values()):
        raise LimbeckError(
            f"study {name}: scales holds no keys for each scale",
            "write scales: {small: {seeds: [1]}}",
        )
    check_choice(f"scale of study {name}:", scale, scales)
    if scales and scale is None:
        raise LimbeckError(
            f"study {name} has several scales: {', '.join(scales)}",
            f"choose one: --scale {list(scales)[-1]}",
        )
    base = {"name": name, "scale": scale, **raw}
    raw = load.merge(base, dict(scales[scale]) if scale else {})
    if "tasks" in given:
        raw = _without_tasks(raw, given["tasks"])
    for key, value in given.items():
        part, _, rest = key.partition(".")
        raw = load.merge(raw, {part: {rest: value} if rest else value})
    raw = _own_rows(raw)
    study = _checked(expand_names(raw))
    study._given = given
    if study_fields.AS_PUBLISHED in scales:
        study._published = _unchecked(
            _own_rows(load.merge(base, dict(scales[study_fields.AS_PUBLISHED])))
        )
    return study


def _own_rows(raw: dict[str, Any]) -> dict[str, Any]:
    """The file with its keys about rows among the settings of all runs, its task called as its own data are."""
    settings = raw.get("settings", {})
    if not isinstance(settings, dict):
        return raw  # the check reports its mistake
    rows = {key: raw[key] for key in study_fields.ROW_KEYS if key in raw}
    raw = {key: value for key, value in raw.items() if key not in rows}
    if rows:
        raw["settings"] = rows | settings
    data = raw.get("data")
    if "tasks" not in raw and isinstance(data, str) and is_own(files.at_home(data)):
        raw["tasks"] = [own_name(files.at_home(data))]
    return raw


def _without_tasks(raw: dict[str, Any], wanted: Any) -> dict[str, Any]:
    """The file without its entries for the tasks that are not wanted."""
    own, listed = raw.get("per_task"), raw.get("tasks")
    if not (isinstance(own, dict) and isinstance(listed, list) and isinstance(wanted, list)):
        return raw  # the check reports its mistake
    dropped = [task for task in listed if task not in wanted]
    return raw | {"per_task": {task: own[task] for task in own if task not in dropped}}


def _read(path_or_name: str | Path) -> tuple[str, dict[str, Any]]:
    path = Path(path_or_name)
    if path.suffix not in (".yaml", ".yml"):
        name, known = str(path_or_name), shipped_names()
        if name not in known:
            raise LimbeckError(unknown("study", name, [*known, "or a file STUDY.yaml"]))
        return name, deepcopy(shipped_study(name).raw)
    if not path.is_file():
        raise LimbeckError(
            f"study: no file {path}",
            "give an existing YAML file, or a name that `limbeck study` lists",
        )
    raw = plain.read_yaml(plain.read_text(path), f"study {path}")
    if not isinstance(raw, dict):
        raise LimbeckError(f"study: {path} holds no keys", "write key: value lines")
    return path.stem, raw


def _unchecked(raw: dict[str, Any]) -> study_fields.Study | None:
    """A study that is only compared with; its problems are reported when it is loaded itself."""
    try:
        return study_fields.Study.model_validate(expand_names(raw))
    except (ValidationError, LimbeckError):
        return None


def _checked(raw: dict[str, Any]) -> study_fields.Study:
    try:
        study = study_fields.Study.model_validate(raw)
    except ValidationError as error:
        raise LimbeckError([_said(one) for one in error.errors()]) from None
    untaught = _untaught(study)
    if untaught and study.model is not None:  # a teacher is fine-tuned from it
        study = study.model_copy(update={"teachers": study_fields.TeacherSpec.model_validate({})})
    problems = study_problems(study)
    if untaught and study.model is None:
        problems.append(
            Problem(
                f"teachers: the study names none, and no model to fine-tune one from; needed by {', '.join(untaught)}",
                "write model: ENCODER, or teachers: {at: FOLDER}",
            )
        )
    raise_problems(problems)
    return study


def _said(error: Any) -> Problem:
    place = ".".join(map(str, error["loc"]))
    home = _home(error["loc"][:-1])
    if error["type"] == "extra_forbidden":
        known = [
            *home.model_fields,
            *([NAMES, "scales", *study_fields.ROW_KEYS] if home is study_fields.Study else []),
        ]
        return unknown(f"key of a study {place}:", error["loc"][-1], known)
    if error["type"] == "missing":
        return Problem(f"{place}: is missing", f"write it into the study: {error['loc'][-1]}: …")
    got = repr(error["input"])
    return Problem(
        f"{place}: {error['msg']} (got {got:.60})", validation.wanted(error, place, home)
    )


def _home(parents: tuple[int | str, ...]) -> type[BaseModel]:
    """The part of a study with its settings below those keys."""
    home: type[BaseModel] = study_fields.Study
    for part in parents:
        home = _PARTS.get(str(part), home)
    return home


_PARTS: dict[str, type[BaseModel]] = {
    "methods": study_fields.MethodSpec,
    "teachers": study_fields.TeacherSpec,
    "select": study_fields.SelectSpec,
    "search": study_fields.SearchSpec,
    "table": study_fields.TableSpec,
    "printed": study_fields.PrintedSpec,
    "figures": FigureSpec,
}


# A study's settings for a student's run, before a grid: the later key wins.


OF_TEACHERS = "teachers."
"""How keys of `per_task` begin that are of the teacher's run alone."""


def shared_settings(study: study_fields.Study, task: str) -> dict[str, Any]:
    """Recipe keys of every run of a task, teachers' included."""
    return {**study.settings, "data": study.data, "task": task}


def student_settings(
    study: study_fields.Study, label: str, task: str, condition: Mapping[str, Any]
) -> dict[str, Any]:
    """Recipe keys of a row's runs on a task, under one condition of `axes`."""
    own = {
        key: value
        for key, value in study.per_task.get(task, {}).items()
        if not key.startswith(OF_TEACHERS)
    }
    found: dict[str, Any] = {}
    spec = study.method_of(label)
    for later in (shared_settings(study, task), study.students, own, condition, spec.settings):
        found = {key: value for key, value in found.items() if not _inside(key, later)} | {**later}
    return found


def _untaught(study: study_fields.Study) -> list[str]:
    """The rows that learn or start from a teacher, if neither the study nor their settings name one."""
    found: list[str] = []
    condition = study_fields.cells_of(study.axes)[:1] or [{}]
    for label in study.methods if study.teachers is None else ():
        spec = study.method_of(label)
        methods = (spec.grid or {}).get(study_fields.METHOD, [spec.method or label])
        settings = student_settings(study, label, study.tasks[0], condition[0])
        try:
            recipes = [Recipe.load(str(method), **settings) for method in methods]
        except LimbeckError:  # the plan reports it
            continue
        if any(
            (one.needs_teacher or one.student.init in _OF_A_TEACHER)
            and not (one.lead or one.outputs)
            for one in recipes
        ):
            found.append(label)
    return found


_OF_A_TEACHER = ("teacher", "fresh", "pretrained")
"""A student's starts that a teacher provides or names."""


def _inside(key: str, later: Mapping[str, Any]) -> bool:
    """Whether a later key replaces the group that this one is in, as `first_stage` does `first_stage.task`."""
    return any(key.startswith(f"{whole}.") for whole in later)
