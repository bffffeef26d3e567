"""From a file, a method's name and `key=value` overrides to one merged recipe, not checked yet.

Part of `limbeck.recipe`.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from limbeck.data.files import form_of
from limbeck.data.own import is_own, own_name
from limbeck.objectives import plain_terms
from limbeck.recipe import catalog
from limbeck.recipe.data_settings import settings_for, toy_of
from limbeck.recipe.kind_terms import put_terms_of_kind
from limbeck.recipe.paper_settings import QUICK, stated_in
from limbeck.recipe.quick import USUAL
from limbeck.recipe.teacher_text import what_teacher_says
from limbeck.students import names_cnn
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.files import at_home
from limbeck.support.given import PREFIX
from limbeck.support.plain import check_plain, read_text, read_yaml
from limbeck.support.registry import load_plugins


def read_raw(path_or_name: str | Path | None, overrides: dict[str, Any]) -> dict[str, Any]:
    """The merged, unchecked recipe: the method's shipped file, under the user's, under overrides.

    Args:
        path_or_name: a YAML file, or the name of a shipped method; None for the method that the teacher suggests.
        overrides: values by key; dots reach inside (`"student.layers": 3`). None, as null in a
            file, gives a key its default back; `"objectives.soft": None` removes a term.

    Raises:
        LimbeckError: no such file or method, or the file is not a YAML mapping.
    """
    own = {} if path_or_name is None else _read_file(path_or_name)
    given = {key: check_plain(value, key) for key, value in plain_terms(overrides).items()}
    _refuse_hidden(given)
    _find_plugins(own, given, path_or_name or Path())
    own |= what_teacher_says({**own, **given})
    base = _base(str(given.pop("method", None) or own.get("method", "")), own, given)
    raw = _laid_over(base, own, given)
    if of_other_size(raw):
        base = with_toy_start(without_papers_rates(base), raw)
    raw = _laid_over(merge(base, _stated(raw, own)), own, given)
    raw.pop("stated", None)
    raw["method"] = base["method"]
    raw = {key: value for key, value in raw.items() if value is not None}
    fill_from_data(raw)
    fill_images(raw)
    fill_papers(raw)
    raw.setdefault("objectives", {})
    _name_own_task(raw)
    _drop_removed_terms(raw)
    _drop_removed_terms(raw.get("first_stage"))
    if _is_list_of_names(raw.get("plugins")):
        load_plugins(raw["plugins"])
    put_terms_of_kind(raw, given)
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
    return deepcopy(sets[chosen].settings(raw.get("task"), net=named_net(raw)))


def _is_written_out(own: dict[str, Any]) -> bool:
    """Whether a file has every training key, as those in run folders do."""
    return all(key in own for key in ("settings", *PAPER_SETTINGS, "max_length", "select_by"))


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
    if is_own(path) or (own and path.is_dir()):
        raw["task"] = own_name(path)


def _laid_over(base: dict[str, Any], own: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The file on top of what it inherits, and single values on top of both."""
    raw = merge(base, own)
    for key, value in given.items():
        _set(raw, key, deepcopy(value))
    return raw


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


def as_divided_then(raw: dict[str, Any]) -> dict[str, Any]:
    """A run's recipe, also of an earlier version, which knew no test share: its file had no test rows.

    Of other sources of data it makes no difference.
    """
    data, named = raw.get("data"), ("text_columns", "label_column", "kind")
    if "test_share" in raw or raw.get("dev") is not None or not isinstance(data, str):
        return raw
    path = Path(data)
    is_file = form_of(path) is not None or data.startswith(PREFIX)
    of_words = data in ("hub", "pocket", "digits") or data.startswith("hub:")
    own = is_file or any(raw.get(key) for key in named)
    return {**raw, "test_share": 0.0} if own and not of_words else raw


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


# Training settings that data and students bring, under whatever the user sets. Pocket data and
# named CNNs have settings known to work; a paper's epochs and rates are left out where the models
# are of another size.


def fill_from_data(raw: dict[str, Any]) -> None:
    """Some data bring settings known to work on them; whatever the user sets wins."""
    known = settings_for(raw.get("data"))
    if known is not None:
        for key, value in known.settings(raw).items():
            raw.setdefault(key, value)


def fill_images(raw: dict[str, Any]) -> None:
    """Named CNNs bring the settings they are published with; whatever else is set wins."""
    if named_net(raw):
        stepped = {} if "lr_schedule" in raw else {"lr_schedule": "step", "warmup": 0.0}
        for key, value in (_NET_SETTINGS | stepped).items():
            raw.setdefault(key, value)


def fill_papers(raw: dict[str, Any]) -> None:
    """What a paper's settings leave open follows no rows, and its students have their first layers."""
    if raw.get("settings", QUICK) == QUICK:
        return
    for key, value in USUAL._asdict().items():
        raw.setdefault(key, value)
    if isinstance(raw.get("student"), dict):
        raw["student"].setdefault("pick", "first")


# SKDBERT's Appendix B, after CRD.
_NET_SETTINGS: dict[str, Any] = {
    "optimizer": "sgd",
    "lr": 0.05,
    "weight_decay": 5e-4,
    "batch_size": 64,
    "epochs": 240,
    "max_grad_norm": 0.0,
}


def of_other_size(raw: dict[str, Any]) -> bool:
    """Whether the models are none that the papers' epochs and rates are right for.

    A pocket model is a hundredth of their width, and a named CNN reads images and learns by SGD.
    """
    return toy_of(raw.get("data")) is not None or named_net(raw)


def named_net(raw: dict[str, Any]) -> bool:
    """Whether the student is a CNN named by its shape."""
    student = raw.get("student")
    init = student.get("init") if isinstance(student, dict) else None
    return names_cnn(init)


def without_papers_rates(base: dict[str, Any]) -> dict[str, Any]:
    """A shipped recipe without the paper's epochs, rates, batch sizes and optimiser, in both stages."""
    kept = {key: value for key, value in base.items() if key not in PAPER_SETTINGS}
    if isinstance(kept.get("first_stage"), dict):
        first = kept["first_stage"].items()
        kept["first_stage"] = {key: value for key, value in first if key not in PAPER_SETTINGS}
    if isinstance(kept.get("team"), dict):  # students that rank are trained as the run's is
        kept["team"] = {k: v for k, v in kept["team"].items() if k != "student_epochs"}
    return kept


def with_toy_start(base: dict[str, Any], raw: dict[str, Any]) -> dict[str, Any]:
    """A shipped recipe that starts from pretrained weights: from a random toy where the data have none."""
    toy = toy_of(raw.get("data"))
    if toy is None or base.get("student") != {"init": "pretrained"}:
        return base
    return base | {"student": {"init": toy}}


# The optimiser and its clipping go with the rate.
PAPER_SETTINGS = ("epochs", "lr", "batch_size", "optimizer", "max_grad_norm")
