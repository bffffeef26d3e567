"""From a file, a method's name and `key=value` overrides to one checked recipe.

Part of `limbeck.recipe`. Every mistake is found before any work starts, and all are shown together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from limbeck import catalog
from limbeck.data import CorpusSpec
from limbeck.data.loading import has_own_tasks
from limbeck.errors import LimbeckError, Problem, unknown
from limbeck.files import at_home
from limbeck.input_transforms import MixupSpec
from limbeck.lab.augmentation import AugmentSpec
from limbeck.lab.cifar_nets import SHAPES
from limbeck.lab.digits import DIGITS
from limbeck.lab.pocket import RECOMMENDED, TEXT_STUDENT, TEXT_TEACHER
from limbeck.lab.pocket.vocabulary import MAX_LENGTH
from limbeck.mappings import MappingSpec
from limbeck.mappings.mapping_spec import class_of
from limbeck.objectives import OBJECTIVES, UNKNOWN_TERM, CurriculumSpec, plain_terms
from limbeck.objectives import class_of as term_class
from limbeck.paper_settings import QUICK, stated_in
from limbeck.plain import check_plain, read_text, read_yaml
from limbeck.plugins import load_plugins
from limbeck.recipe.fields import FirstStage, ImageSpec, RecipeFields, StudentSpec
from limbeck.recipe.optimizer_settings import optimisation_problems
from limbeck.recipe.stages import stage_problems
from limbeck.recipe.team_checks import team_problems
from limbeck.students import starts_random
from limbeck.tasks import TASK_TYPES, TASKS
from limbeck.teachers import USES


def read_raw(path_or_name: str | Path, overrides: dict[str, Any]) -> dict[str, Any]:
    """The merged, unchecked recipe: the method's shipped file, under the user's, under overrides.

    Args:
        path_or_name: a YAML file, or the name of a shipped method.
        overrides: values by key; dots reach inside (`"student.layers": 3`). None, as null in a
            file, gives a key its default back; `"objectives.soft": None` removes a term.

    Raises:
        LimbeckError: no such file or method, or the file is not a YAML mapping.
    """
    own = _read_file(path_or_name)
    given = {key: check_plain(value, key) for key, value in plain_terms(overrides).items()}
    _refuse_hidden(given)
    _find_plugins(own, given, path_or_name)
    base = _base(str(given.pop("method", None) or own.get("method", "")), own, given)
    raw = _laid_over(base, own, given)
    if _of_other_size(raw):
        base = _without_papers_rates(base)
    raw = _laid_over(merge(base, _stated(raw, own)), own, given)
    raw.pop("stated", None)
    raw["method"] = base["method"]
    raw = {key: value for key, value in raw.items() if value is not None}
    _fill_pocket(raw)
    _fill_images(raw)
    raw.setdefault("objectives", {})
    _name_own_task(raw)
    _drop_removed_terms(raw)
    _drop_removed_terms(raw.get("first_stage"))
    if _is_list_of_names(raw.get("plugins")):
        load_plugins(raw["plugins"])
    return raw


def _find_plugins(own: dict[str, Any], given: dict[str, Any], recipe: str | Path) -> None:
    """Paths of plugins from the root: the file's beside it, then those that are given besides."""
    found: list[str] = []
    for place, keys in ((Path(recipe).parent, own), (Path(), given)):
        named = [keys["plugins"]] if isinstance(keys.get("plugins"), str) else keys.get("plugins")
        if named is None:
            keys.pop("plugins", None)
        elif not _is_list_of_names(named):
            return  # it is refused with everything else
        else:
            found += [str((place / at_home(path)).resolve()) for path in named]
    given.pop("plugins", None)
    if found:
        own["plugins"] = list(dict.fromkeys(found))


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _stated(raw: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """What the chosen settings bring, to lie under whatever the user sets.

    Raises:
        LimbeckError: the method has none of that name.
    """
    chosen = str(raw.get("settings") or QUICK)
    if "stated" not in raw and _is_written_out(own):
        if chosen != own["settings"]:
            raise LimbeckError(
                f"settings: the recipe is written out with settings {own['settings']}, and "
                f"{chosen} cannot take their place",
                f"name the method in place of the file: {raw.get('method')} settings={chosen}",
            )
        return {}
    if chosen == QUICK:
        return {}
    sets = stated_in(raw.get("stated", {}))
    if chosen not in sets:
        raise LimbeckError(unknown(f"settings of {raw.get('method')}:", chosen, [QUICK, *sets]))
    return deepcopy(sets[chosen].settings(raw.get("task"), net=_named_net(raw)))


def _is_written_out(own: dict[str, Any]) -> bool:
    """Whether a file has every training key, as those in run folders do."""
    return all(key in own for key in ("settings", *_PAPER_SETTINGS, "max_length", "select_by"))


def _refuse_hidden(given: dict[str, Any]) -> None:
    """Settings that a later one replaces whole: `student.layers` before `student`."""
    keys = list(given)
    hidden = [
        Problem(f"{key} has no effect: {parent} follows and replaces it", f"give {parent} first")
        for place, key in enumerate(keys)
        for parent in keys[place + 1 :]
        if key.startswith(f"{parent}.")
    ]
    if hidden:
        raise LimbeckError(hidden)


def _drop_removed_terms(stage: Any) -> None:
    """Leave out the terms that were set to null."""
    terms = stage.get("objectives") if isinstance(stage, dict) else None
    if isinstance(terms, dict):
        stage["objectives"] = {name: term for name, term in terms.items() if term is not None}


def _name_own_task(raw: dict[str, Any]) -> None:
    """A user's own data are called as their file or folder is, where no task is named."""
    data = raw.get("data")
    if raw.get("task") is not None or not isinstance(data, str) or not data:
        return
    path = at_home(data)
    own = any(raw.get(key) for key in ("text_columns", "label_column", "kind"))
    if path.is_file() or (own and path.is_dir()):
        name = path.resolve().stem if path.is_file() else path.resolve().name
        raw["task"] = f"own-{name}" if name in TASKS else name


def _fill_pocket(raw: dict[str, Any]) -> None:
    """Pocket data bring training settings known to work on them; whatever the user sets wins."""
    student = raw.get("student")
    from_scratch = isinstance(student, dict) and starts_random(student.get("init"))
    known = pocket_settings(raw.get("task"), kind=raw.get("kind"), from_scratch=from_scratch)
    known["max_length"] = MAX_LENGTH
    if raw.get("data") == "pocket":
        for key, value in known.items():
            raw.setdefault(key, value)


def _fill_images(raw: dict[str, Any]) -> None:
    """Named CNNs bring the settings they are published with; whatever else is set wins."""
    if raw.get("data") == DIGITS:
        raw.setdefault("task", DIGITS)
    if _named_net(raw):
        epochs = {"epochs": _SMALL_SET_EPOCHS} if raw.get("data") == DIGITS else {}
        stepped = {} if "lr_schedule" in raw else {"lr_schedule": "step", "warmup": 0.0}
        for key, value in (_NET_SETTINGS | epochs | stepped).items():
            raw.setdefault(key, value)


# SKDBERT's Appendix B, after CRD.
_NET_SETTINGS: dict[str, Any] = {
    "optimizer": "sgd",
    "lr": 0.05,
    "weight_decay": 5e-4,
    "batch_size": 64,
    "epochs": 240,
    "max_grad_norm": 0.0,
}
_SMALL_SET_EPOCHS = 30


def _laid_over(base: dict[str, Any], own: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The file on top of what it inherits, and single values on top of both."""
    raw = merge(base, own)
    for key, value in given.items():
        _set(raw, key, deepcopy(value))
    return raw


def _of_other_size(raw: dict[str, Any]) -> bool:
    """Whether the models are none that the papers' epochs and rates are right for.

    A pocket model is a hundredth of their width, and a named CNN reads images and learns by SGD.
    """
    return raw.get("data") == "pocket" or _named_net(raw)


def _named_net(raw: dict[str, Any]) -> bool:
    student = raw.get("student")
    init = student.get("init") if isinstance(student, dict) else None
    return isinstance(init, str) and init in SHAPES


def _without_papers_rates(base: dict[str, Any]) -> dict[str, Any]:
    """A shipped recipe without the paper's epochs, rates, batch sizes and optimiser, in both stages."""
    kept = {key: value for key, value in base.items() if key not in _PAPER_SETTINGS}
    if isinstance(kept.get("first_stage"), dict):
        first = kept["first_stage"].items()
        kept["first_stage"] = {key: value for key, value in first if key not in _PAPER_SETTINGS}
    if isinstance(kept.get("team"), dict):  # students that rank are trained as the run's is
        kept["team"] = {k: v for k, v in kept["team"].items() if k != "student_epochs"}
    return kept


# The optimiser and its clipping go with the rate.
_PAPER_SETTINGS = ("epochs", "lr", "batch_size", "optimizer", "max_grad_norm")


def pocket_settings(task: Any, *, from_scratch: bool, kind: Any = None) -> dict[str, Any]:
    """Settings known to work for a pocket task's teacher, or students; empty for other tasks."""
    if not isinstance(task, str) or task not in RECOMMENDED:
        return {}
    recommended = RECOMMENDED[task].teacher if from_scratch else RECOMMENDED[task].student
    if kind == "text":
        recommended = TEXT_TEACHER if from_scratch else TEXT_STUDENT
    return {key: value for key, value in recommended._asdict().items() if value is not None}


def _read_file(path_or_name: str | Path) -> dict[str, Any]:
    path = Path(path_or_name)
    if path.suffix not in (".yaml", ".yml"):
        return {"method": catalog.find(str(path_or_name)).method}
    if not path.is_file():
        raise LimbeckError(f"recipe: no file {path}", "give an existing YAML file or use --method")
    raw = read_yaml(read_text(path), f"recipe {path}")
    if not isinstance(raw, dict):
        raise LimbeckError(f"recipe: {path} holds no keys", "write key: value lines")
    return raw


def _base(method: str, own: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What to inherit: the shipped recipe; nothing for a new name with objectives of its own.

    A file with a whole header, as shipped recipes and those in run folders have, stands alone too:
    what was taken out of it stays out.
    """
    defines = own.get("objectives") or any(key.startswith("objectives") for key in given)
    alone = own.get("objectives") and all(key in own for key in catalog.HEADER)
    if (method not in catalog.names() and defines) or (alone and method == own.get("method")):
        return {"method": method or "own"}
    return catalog.read(method)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, key by key at every depth; lists and scalars replace."""
    merged = deepcopy(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = deepcopy(value)
    return merged


def _set(raw: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    place = raw
    for parent in parents:
        if not isinstance(place.get(parent), dict):
            place[parent] = {}
        place = place[parent]
    place[last] = value


def check(raw: dict[str, Any], model: type[RecipeFields], *, known_tasks: tuple[str, ...]) -> Any:
    """The recipe as `model`, or every mistake in it.

    Raises:
        LimbeckError: unknown keys, values outside their type or choices, an unknown task.
    """
    problems: list[Problem] = []
    recipe = None
    try:
        recipe = model.model_validate(raw)
    except ValidationError as error:
        problems += _problems(error.errors(), model, raw)
    first = raw.get("first_stage")
    for place, prefix in ((raw, ""), (first if isinstance(first, dict) else {}, "first_stage.")):
        task = place.get("task")
        own_columns = any(place.get(key) for key in ("text_columns", "label_column", "kind"))
        kind = place.get("kind")
        if isinstance(kind, str) and kind not in TASK_TYPES:
            problems.append(unknown(f"{prefix}kind", kind, list(TASK_TYPES)))
        own = own_columns or has_own_tasks(str(place.get("data", "hub")))
        if task is not None and not own and task not in known_tasks:
            problems.append(unknown(f"{prefix}task", task, known_tasks))
    if not raw["objectives"]:
        problems.append(Problem("objectives: none are given", "add one, or name a `method`"))
    if recipe is not None:
        problems += stage_problems(recipe) + team_problems(recipe)
        problems += optimisation_problems(recipe)
    if problems:
        raise LimbeckError(problems)
    return recipe


def _problems(details: list[Any], model: type[BaseModel], raw: dict[str, Any]) -> list[Problem]:
    """One problem a mistake, though pydantic reports every branch of a union that did not fit."""
    messages: dict[str, list[str]] = {}
    problems: list[Problem] = []
    for detail in details:
        place = [str(part) for part in detail["loc"]]
        if detail["type"] == "extra_forbidden":
            problems.append(_unknown_key(place, model, raw))
            continue
        if detail["type"] == UNKNOWN_TERM:
            name = detail["input"]["compare"]
            problem = unknown("compare", name, list(OBJECTIVES))
            problems.append(replace(problem, message=f"{_path(place)}: {problem.message}"))
            continue
        message = detail["msg"].removeprefix("Value error, ")
        messages.setdefault(_path(place), []).append(f"{message} (got {_short(detail['input'])})")
    # A branch that fitted further inside says more than one that did not fit at all.
    return problems + [
        Problem(f"{path}: {'; or: '.join(found)}", "fix this value")
        for path, found in messages.items()
        if not any(other.startswith(f"{path}.") for other in messages)
    ]


def _path(place: list[str]) -> str:
    """Where the user wrote it: without the names of union branches, which pydantic puts in."""
    before = place[:1] if place[0] == "first_stage" and len(place) > 1 else []
    place = place[len(before) :]
    if place[0] == "team":  # the second is its `use`
        place = place[:1] + [part for part in place[1:] if part not in USES]
    if place[0] != "objectives":
        inside, name = place[1:], before + place[:1]
    else:
        inside, name = place[2:], before + place[:2]
    return ".".join(name + [part for part in inside if not _BRANCH.fullmatch(part)])


_BRANCH = re.compile(r"(constrained-)?(int|str|float)|Ramp|.*\[.*\]")

_INSIDE: dict[str, type[BaseModel]] = {
    "student": StudentSpec,
    "first_stage": FirstStage,
    "corpus": CorpusSpec,
    "curriculum": CurriculumSpec,
    "mixup": MixupSpec,
    **USES,
    "augment": AugmentSpec,
    "images": ImageSpec,
}


def _unknown_key(place: list[str], model: type[BaseModel], raw: dict[str, Any]) -> Problem:
    *parents, key = place
    if not parents:
        return unknown("key", key, list(model.model_fields))
    first = parents[:2] == ["first_stage", "objectives"]
    inside = parents[1:] if first else parents
    if inside[0] == "objectives" and len(inside) > 1:
        terms = plain_terms((raw["first_stage"] if first else raw)["objectives"])
        home = _class_inside(terms[inside[1]], inside[2:])
    else:
        home = next(_INSIDE[part] for part in reversed(parents) if part in _INSIDE)
    return unknown(f"key in {_path(parents)}:", key, list(home.model_fields))


def _class_inside(term: dict[str, Any], places: list[str]) -> type[BaseModel]:
    """The class of the settings that stand deep in a term's, by the types of its fields."""
    home: type[BaseModel] = term_class(term["compare"])
    for place in places:
        if place in home.model_fields:
            home = next(_classes_in(home.model_fields[place].annotation), home)
    return class_of(term["mapping"]) if home is MappingSpec else home


def _classes_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _classes_in(part)


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
