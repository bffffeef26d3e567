"""From a file, a method's name and `key=value` overrides to one merged recipe, not checked yet.

Part of `limbeck.recipe`.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from limbeck.data import files
from limbeck.data.own import is_own, own_name
from limbeck.objectives.registration import plain_terms
from limbeck.recipe import catalog, paper_settings, quick, teacher_text
from limbeck.students import names_cnn
from limbeck.support import plain
from limbeck.support.errors import LimbeckError, Problem, check_choice, raise_problems
from limbeck.support.files import at_home
from limbeck.support.given import PREFIX
from limbeck.support.registry import Registry, load_plugins
from limbeck.tasks import TASK_TYPES


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
    given = {key: plain.check_plain(value, key) for key, value in plain_terms(overrides).items()}
    _find_plugins(own, given, path_or_name or Path())
    own |= teacher_text.what_teacher_says({**own, **given})
    base = _base(str(given.pop("method", None) or own.get("method", "")), own, given)
    raw = _laid_over(base, own, given)
    brought = _brought_by_data(raw)
    if named_net(raw) or (brought is not None and brought.toy is not None):
        base = _without_papers_rates(base)
        if brought is not None and brought.toy and base.get("student") == {"init": "pretrained"}:
            base |= {"student": {"init": brought.toy}}
    raw = _laid_over(merge(base, _stated(raw, own)), own, given)
    raw.pop("stated", None)
    raw["method"] = base["method"]
    raw = {key: value for key, value in raw.items() if value is not None}
    if brought is not None:
        raw = {**brought.settings(raw), **raw}
    if named_net(raw):
        stepped = {} if "lr_schedule" in raw else {"lr_schedule": "step", "warmup": 0.0}
        raw = {**_NET_SETTINGS, **stepped, **raw}
    if raw.get("settings", paper_settings.QUICK) != paper_settings.QUICK:
        # Settings that a paper leaves open do not depend on the rows, and its students have their first layers.
        raw = {**quick.USUAL._asdict(), **raw}
        if isinstance(raw.get("student"), dict):
            raw["student"].setdefault("pick", "first")
    _refuse_idle_pick(raw.get("student"), given.get("student.pick"))
    raw.setdefault("objectives", {})
    _name_own_task(raw)
    _drop_removed_terms(raw)
    _drop_removed_terms(raw.get("first_stage"))
    if _is_list_of_names(raw.get("plugins")):
        load_plugins(raw["plugins"])
    put_terms_of_kind(raw, given)
    return raw


def _refuse_idle_pick(student: Any, pick: str | None) -> None:
    """Raise an error for a rule that was given for listed layers; a method's own rule gives way to a list."""
    layers = student.get("layers") if isinstance(student, dict) else None
    stacks = layers.values() if isinstance(layers, dict) else [layers]
    if pick and all(isinstance(one, list) for one in stacks):
        raise LimbeckError(
            f"student.pick: {pick} has no effect, because student.layers lists the layers",
            "leave student.pick out, or give student.layers the number of layers",
        )


def _find_plugins(own: dict[str, Any], given: dict[str, Any], recipe: str | Path) -> None:
    """Resolve the paths of plugins: the file's, relative to it, then the given ones."""
    found: list[str] = []
    for place, keys in ((Path(recipe).parent, own), (Path(), given)):
        named = [keys["plugins"]] if isinstance(keys.get("plugins"), str) else keys.get("plugins")
        if named is None:
            keys.pop("plugins", None)
        elif not _is_list_of_names(named):
            return  # validation reports it with every other mistake
        else:
            found += [str((place / at_home(path)).resolve()) for path in named]
    given.pop("plugins", None)
    if found:
        own["plugins"] = list(dict.fromkeys(found))


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _stated(raw: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The settings that `settings` selects; the user's own override them.

    Raises:
        LimbeckError: the method has no settings of that name.
    """
    chosen = str(raw.get("settings") or paper_settings.QUICK)
    if "stated" not in raw and _is_written_out(own):
        if chosen != own["settings"]:
            raise LimbeckError(
                f"settings: the recipe is written out with settings {own['settings']}, and "
                f"{chosen} cannot take their place",
                f"name the method instead of the file: {raw.get('method')} settings={chosen}",
            )
        return {}
    if chosen == paper_settings.QUICK:
        return {}
    sets = paper_settings.stated_in(raw.get("stated", {}))
    choices = [paper_settings.QUICK, *sets]
    check_choice(f"settings of {raw.get('method')}:", chosen, choices)
    return deepcopy(sets[chosen].settings(raw.get("task"), net=named_net(raw)))


def _is_written_out(own: dict[str, Any]) -> bool:
    """Whether a file has every training key, as those in run folders do."""
    return all(key in own for key in ("settings", *PAPER_SETTINGS, "max_length", "select_by"))


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
    """Merge the file over its parent, and single values over both: the values of a group after the group."""
    raw = merge(base, own)
    for key in sorted(given, key=lambda key: key.count(".")):
        *parents, last = key.split(".")
        place = raw
        for parent in parents:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}
            place = place[parent]
        place[last] = deepcopy(given[key])
    return raw


def _read_file(path_or_name: str | Path) -> dict[str, Any]:
    path = Path(path_or_name)
    if path.suffix not in (".yaml", ".yml"):
        return {"method": catalog.find(str(path_or_name)).method}
    if not path.is_file():
        raise LimbeckError(f"recipe: no file {path}", "give an existing YAML file or use --method")
    raw = plain.read_yaml(plain.read_text(path), f"recipe {path}")
    if not isinstance(raw, dict):
        raise LimbeckError(f"recipe: {path} holds no keys", "write key: value lines")
    return raw


def _base(method: str, own: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What to inherit: the shipped recipe; nothing for a new name with objectives of its own.

    A file with a complete header, as shipped recipes and recipes in run folders have, inherits nothing:
    keys removed from it stay removed.
    """
    defines = own.get("objectives") or any(key.startswith("objectives") for key in given)
    alone = own.get("objectives") and all(key in own for key in catalog.HEADER)
    if (method not in catalog.names() and defines) or (alone and method == own.get("method")):
        return {"method": method or "own"}
    return catalog.read(method)


_GONE = ("max_rows", "tensorboard", "lr_milestones", "lr_decay")
"""Keys of earlier versions that decide nothing about a finished run's rows."""


def as_written_then(raw: dict[str, Any]) -> dict[str, Any]:
    """A run's recipe, also of an earlier version, which had other keys (`_GONE`), and no test share.

    Its single file of the user's own had no test rows; of other sources of data that makes no difference.
    """
    raw = {key: value for key, value in raw.items() if key not in _GONE}
    data, named = raw.get("data"), ("text_columns", "label_column", "kind")
    if "test_share" in raw or raw.get("dev") is not None or not isinstance(data, str):
        return raw
    path = Path(data)
    is_file = files.form_of(path) is not None or data.startswith(PREFIX)
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


# Training settings that data and students bring, under whatever the user sets.


@dataclass(frozen=True)
class DataSettings:
    """Settings that are known to work on the data of one source.

    Attributes:
        settings: from a recipe that is not checked yet to values for the keys that it leaves open.
        toy: for data that no pretrained weights exist for, the `student.init` of random weights. The epochs and rates
            of papers are not right for such models.
    """

    settings: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    toy: str | None = None


DATA_SETTINGS: Registry[DataSettings] = Registry("settings for data")
"""By the name of the source."""

# Settings that named CNNs are published with: SKDBERT's Appendix B, after CRD.
_NET_SETTINGS: dict[str, Any] = {
    "optimizer": "sgd",
    "lr": 0.05,
    "weight_decay": 5e-4,
    "batch_size": 64,
    "epochs": 240,
    "max_grad_norm": 0.0,
}
PAPER_SETTINGS = ("epochs", "lr", "batch_size", "optimizer", "max_grad_norm")
"""The settings for models of a paper's size only; the optimizer and its clipping follow the rate."""


def _brought_by_data(raw: Mapping[str, Any]) -> DataSettings | None:
    """The settings of a data source; None for most sources, which have no settings."""
    data = raw.get("data")
    known = isinstance(data, str) and data in tuple(DATA_SETTINGS)
    return DATA_SETTINGS.get(str(data)) if known else None


def named_net(raw: Mapping[str, Any]) -> bool:
    """Whether the student is a CNN named by its shape."""
    student = raw.get("student")
    return names_cnn(student.get("init") if isinstance(student, dict) else None)


def _without_papers_rates(base: dict[str, Any]) -> dict[str, Any]:
    """A shipped recipe without the paper's epochs, rates, batch sizes and optimizer, in both stages.

    A pocket model is a hundredth of the papers' width, and a named CNN reads images and learns by SGD.
    """
    kept = {key: value for key, value in base.items() if key not in PAPER_SETTINGS}
    # Students that rank teachers are trained as the run's is.
    for group, left_out in (("first_stage", PAPER_SETTINGS), ("team", ("student_epochs",))):
        if isinstance(kept.get(group), dict):
            kept[group] = {k: value for k, value in kept[group].items() if k not in left_out}
    return kept


# The terms that replace a method's for another task type: a soft label of embeddings is their squared error. A task
# type names the terms that it replaces (`TaskType.becomes`), so that every method for classifiers also works for
# that type, and recipes and records name the terms that are trained.

# The settings that a term keeps when it becomes another.
_KEPT = ("weight",)


def put_terms_of_kind(raw: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Replace terms that mean something different for a task type by the task type's own.

    Args:
        raw: a merged recipe, not checked yet; changed in place.
        given: the user's settings by key, all of which are kept.

    Raises:
        LimbeckError: settings of a term that is no longer there.
    """
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in TASK_TYPES:
        return
    becomes = TASK_TYPES.get(kind).becomes
    problems = []
    for prefix, stage in (("", raw), ("first_stage.", raw.get("first_stage"))):
        if not isinstance(stage, dict) or not isinstance(stage.get("objectives"), dict):
            continue
        terms: dict[str, Any] = stage["objectives"]
        kept = dict(terms)
        for name, term in terms.items():
            compare = str(term.get("compare")) if isinstance(term, dict) else ""
            if compare not in becomes:
                continue
            now = becomes[compare]
            problems += _lost(f"{prefix}objectives.{name}", compare, now, kind, given)
            kept[name] = {"compare": now} | {key: term[key] for key in _KEPT if key in term}
            if now is None:
                del kept[name]
        if kept == terms:
            continue
        stage["objectives"] = kept
        if not prefix:  # the formula is of the loss that the run ends with
            raw["formula"] = "L = " + " + ".join(
                _in_formula(term) for term in kept.values() if isinstance(term, dict)
            )
            if raw.get("summary"):
                raw["summary"] = f"as of kind {kind}, of: {raw['summary']}"
        if not kept:
            problems.append(
                Problem(
                    f"{prefix}objectives: method {raw.get('method')} learns from labels alone, and kind {kind} has "
                    "none",
                    "take a method that learns from a teacher: limbeck methods",
                )
            )
    raise_problems(problems)


def _in_formula(term: Mapping[str, Any]) -> str:
    """A term behind its weight."""
    weight = term.get("weight", 1)
    if isinstance(weight, float):
        weight = Fraction(weight).limit_denominator(100)
    factor = weight if isinstance(weight, str | int | Fraction) else "λ(t)"
    return str(term.get("compare")) if factor == 1 else f"{factor} {term.get('compare')}"


def _lost(
    key: str, compare: str, now: str | None, kind: str, given: Mapping[str, Any]
) -> list[Problem]:
    """Settings of a term that the user named and that would have no effect."""
    becomes = f"becomes {now}" if now is not None else "is left out, as there are no labels"
    allowed = {f"{key}.{name}" for name in _KEPT} if now is not None else set()
    return [
        Problem(
            f"{setting}: of kind {kind} the term {compare} {becomes}, and the setting would have no effect",
            "leave it out, or give the term's `compare` yourself",
        )
        for setting in given
        if setting.startswith(f"{key}.") and setting not in allowed
    ]
