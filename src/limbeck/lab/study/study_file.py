"""A study's file, or a shipped study, read and checked whole."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from limbeck.data.own import is_own, own_name
from limbeck.lab.study.figure_spec import FigureSpec
from limbeck.lab.study.name_patterns import expand_names
from limbeck.lab.study.shipped_studies import shipped_names, shipped_study
from limbeck.lab.study.study_checks import study_problems
from limbeck.lab.study.study_fields import (
    AS_PUBLISHED,
    ROW_KEYS,
    MethodSpec,
    PrintedSpec,
    SearchSpec,
    SelectSpec,
    Study,
    TableSpec,
    TeacherSpec,
)
from limbeck.lab.study.study_names import NAMES
from limbeck.recipe.load import merge
from limbeck.recipe.validation import wanted
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.files import at_home
from limbeck.support.plain import check_plain, read_text, read_yaml


def load_study(path_or_name: str | Path, *, scale: str | None = None, **given: Any) -> Study:
    """A study's file, or a shipped study by its name, at one of its scales.

    Args:
        path_or_name: a YAML file, or a name that `limbeck study` lists.
        scale: which part of `scales` is laid over the rest; may be left out where there are none.
        **given: keys of the study that win over the file; None is not given.

    Raises:
        LimbeckError: every mistake in it, together.
    """
    name, raw = _read(path_or_name)
    given = {key: check_plain(value, key) for key, value in given.items() if value is not None}
    scales = raw.pop("scales", None) or {}
    if not isinstance(scales, Mapping) or not all(isinstance(one, dict) for one in scales.values()):
        raise LimbeckError(
            f"study {name}: scales holds no keys for each scale",
            "write scales: {small: {seeds: [1]}}",
        )
    if scale is not None and scale not in scales:
        raise LimbeckError(unknown(f"scale of study {name}:", scale, list(scales)))
    if scales and scale is None:
        raise LimbeckError(
            f"study {name} has several scales: {', '.join(scales)}",
            f"choose one: --scale {list(scales)[-1]}",
        )
    base = {"name": name, "scale": scale, **raw}
    raw = merge(base, dict(scales[scale]) if scale else {})
    if "tasks" in given:
        raw = _without_tasks(raw, given["tasks"])
    for key, value in given.items():
        part, _, rest = key.partition(".")
        raw = merge(raw, {part: {rest: value} if rest else value})
    raw = _own_rows(raw)
    study = _checked(expand_names(raw))
    study._given = given
    if AS_PUBLISHED in scales:
        study._published = _unchecked(_own_rows(merge(base, dict(scales[AS_PUBLISHED]))))
    return study


def _own_rows(raw: dict[str, Any]) -> dict[str, Any]:
    """The file with its keys about rows among the settings of all runs, its task called as its own data are."""
    settings = raw.get("settings", {})
    if not isinstance(settings, dict):
        return raw  # whose mistake is told by the check
    rows = {key: raw[key] for key in ROW_KEYS if key in raw}
    raw = {key: value for key, value in raw.items() if key not in rows}
    if rows:
        raw["settings"] = rows | settings
    data = raw.get("data")
    if "tasks" not in raw and isinstance(data, str) and is_own(at_home(data)):
        raw["tasks"] = [own_name(at_home(data))]
    return raw


def _without_tasks(raw: dict[str, Any], wanted: Any) -> dict[str, Any]:
    """The file without what it says of those of its tasks that are not wanted."""
    own, listed = raw.get("per_task"), raw.get("tasks")
    if not (isinstance(own, dict) and isinstance(listed, list) and isinstance(wanted, list)):
        return raw  # whose mistake is told by the check
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
    raw = read_yaml(read_text(path), f"study {path}")
    if not isinstance(raw, dict):
        raise LimbeckError(f"study: {path} holds no keys", "write key: value lines")
    return path.stem, raw


def _unchecked(raw: dict[str, Any]) -> Study | None:
    """A study that is only compared with; what is wrong with it is said where it is the one that is loaded."""
    try:
        return Study.model_validate(expand_names(raw))
    except (ValidationError, LimbeckError):
        return None


def _checked(raw: dict[str, Any]) -> Study:
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        raise LimbeckError([_said(one) for one in error.errors()]) from None
    problems = study_problems(study)
    if problems:
        raise LimbeckError(problems)
    return study


def _said(error: Any) -> Problem:
    place = ".".join(map(str, error["loc"]))
    home = _home(error["loc"][:-1])
    if error["type"] == "extra_forbidden":
        known = [*home.model_fields, *([NAMES, "scales", *ROW_KEYS] if home is Study else [])]
        return unknown(f"key of a study {place}:", error["loc"][-1], known)
    if error["type"] == "missing":
        return Problem(f"{place}: is missing", f"write it into the study: {error['loc'][-1]}: …")
    got = repr(error["input"])
    return Problem(f"{place}: {error['msg']} (got {got:.60})", wanted(error, place, home))


def _home(parents: tuple[int | str, ...]) -> type[BaseModel]:
    """The part of a study whose settings stand below those places."""
    home: type[BaseModel] = Study
    for part in parents:
        home = _PARTS.get(str(part), home)
    return home


_PARTS: dict[str, type[BaseModel]] = {
    "methods": MethodSpec,
    "teachers": TeacherSpec,
    "select": SelectSpec,
    "search": SearchSpec,
    "table": TableSpec,
    "printed": PrintedSpec,
    "figures": FigureSpec,
}
