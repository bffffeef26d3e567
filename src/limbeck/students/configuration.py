"""A model's configuration with fewer layers, other settings, or a task's labels.

Everything works on a copy made from the configuration's
own dictionary, so that its class checks the result and no model shares it. Entries that hold one
value per layer (`layer_types`, the global and sliding pattern of ModernBERT, Qwen3, Gemma)
follow the picked layers.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from limbeck.support.errors import LimbeckError, Problem, first_line, raise_problems, unknown
from limbeck.tasks.rules import THRESHOLDS

# Configuration entries that count the layers of a stack, first match wins.
_COUNTS = {
    "main": ("num_hidden_layers",),
    "encoder": ("encoder_layers", "num_hidden_layers"),
    "decoder": ("num_decoder_layers", "decoder_layers"),
}
# Names of lists that hold one entry per layer. A list is taken only if its length also fits, and
# the name guards against others that happen to have that length (image sizes, special tokens).
_PER_LAYER = re.compile(r"layer|block|rope|types|pattern")
# What ties a model to a vocabulary; a fresh model of another family must keep it.
_VOCABULARY = (
    "vocab_size",
    *(f"{token}_token_id" for token in ("pad", "bos", "eos", "cls", "sep", "unk")),
)


def stacks_of(config: PretrainedConfig) -> tuple[str, ...]:
    """`("encoder", "decoder")` for an encoder-decoder, otherwise `("main",)`."""
    return ("encoder", "decoder") if config.is_encoder_decoder else ("main",)


def count_entry(config: PretrainedConfig, stack: str = "main") -> str:
    """The configuration's own name for the number of layers of a stack (DistilBERT: `n_layers`).

    Raises LimbeckError for a configuration that names it in no known way.
    """
    for name in _COUNTS[stack]:
        own = config.attribute_map.get(name, name)
        if isinstance(getattr(config, own, None), int):
            return own
    raise LimbeckError(
        f"{type(config).__name__} does not state the number of layers of its {stack} stack "
        f"(looked for {', '.join(_COUNTS[stack])})",
        "use the complete model: leave student.layers out",
    )


def layer_count(config: PretrainedConfig, stack: str = "main") -> int:
    """Number of layers that a configuration gives a stack."""
    count: int = getattr(config, count_entry(config, stack))
    return count


def with_layers(config: PretrainedConfig, picked: Mapping[str, Sequence[int]]) -> PretrainedConfig:
    """A copy whose stacks hold only the picked layers (1-based, per stack)."""
    if getattr(config, "is_heterogeneous", False):
        raise LimbeckError(
            f"{type(config).__name__} sets single layers through per_layer_config, which layers cannot be picked from",
            "use the complete model: leave student.layers out",
        )
    data = config.to_dict()
    for stack, layers in picked.items():
        total = layer_count(config, stack)
        for name, value in data.items():
            if isinstance(value, list) and len(value) == total and _PER_LAYER.search(name):
                data[name] = [value[layer - 1] for layer in layers]
        data[count_entry(config, stack)] = len(layers)
        if stack != "decoder" and "num_hidden_layers" in data:
            data["num_hidden_layers"] = len(layers)
    return _rebuild(config, data)


def with_labels(
    config: PretrainedConfig,
    labels: Sequence[str],
    regression: bool,
    *,
    problem_type: str | None = None,
) -> PretrainedConfig:
    """A copy with the task's labels: one output for regression, otherwise one per class name.

    `problem_type`: the head's training objective, None if its outputs belong to a token. Thresholds of other labels are
    left out.
    """
    names = ["LABEL_0"] if regression else list(labels)
    data = config.to_dict()
    data.pop("num_labels", None)
    data["id2label"] = dict(enumerate(names))
    data["label2id"] = {name: number for number, name in enumerate(names)}
    data["problem_type"] = problem_type
    data.pop(THRESHOLDS, None)
    labelled = _rebuild(config, data)
    # transformers saves only the differences to its base defaults, two unnamed labels among them,
    # and reads back the defaults of the model's class (BART: three).
    if type(config).from_dict(labelled.to_diff_dict()).num_labels != len(names):
        raise LimbeckError(
            f"labels {', '.join(names)} would be lost when a {config.model_type} model is saved",
            "name the classes of the task",
        )
    return labelled


def with_settings(
    config: PretrainedConfig, settings: Mapping[str, Any], *, fresh: bool
) -> PretrainedConfig:
    """A copy with single entries replaced (`student.config` of a recipe).

    Only a fresh model may change the number of layers here; its per-layer lists are then made again
    by the configuration's class unless they are given too. `model_type` gives a fresh model of
    another family that keeps the vocabulary.

    Raises LimbeckError for entries the configuration does not have or does not accept.
    """
    settings = dict(settings)
    family = settings.pop("model_type", config.model_type)
    if family != config.model_type:
        return _other_family(config, family, settings, fresh)
    data = config.to_dict()
    known = {*data, *config.attribute_map} - {"model_type", "transformers_version"}
    problems = [
        unknown("student.config entry", key, sorted(known)) for key in settings.keys() - known
    ]
    own = {config.attribute_map.get(key, key): value for key, value in settings.items()}
    counts = {count_entry(config, stack) for stack in stacks_of(config)} & own.keys()
    if counts and not fresh:
        problems.append(
            Problem(
                f"student.config sets {', '.join(sorted(counts))} of a student that copies layers",
                "set student.layers instead, or init: fresh",
            )
        )
    raise_problems(problems)
    if counts:
        totals = {layer_count(config, stack) for stack in stacks_of(config)}
        for name, value in list(data.items()):
            if isinstance(value, list) and len(value) in totals and _PER_LAYER.search(name):
                del data[name]
    return _rebuild(config, data | own)


def _other_family(
    config: PretrainedConfig, family: str, settings: dict[str, Any], fresh: bool
) -> PretrainedConfig:
    """A configuration of another model type with this one's vocabulary."""
    if not fresh:
        raise LimbeckError(
            f"student.config: model_type {family!r} cannot take weights of {config.model_type!r}",
            "set init: fresh, or init to a checkpoint of that family",
        )
    data = config.to_dict()
    kept = {key: data[key] for key in _VOCABULARY if key in data}
    try:
        return AutoConfig.for_model(family, **(kept | settings))
    except Exception as error:  # a dataclass validator of transformers: its class is not public
        raise LimbeckError(
            f"student.config: {first_line(error)}", "see that model's configuration class"
        ) from error


def _rebuild(config: PretrainedConfig, data: dict[str, Any]) -> PretrainedConfig:
    """Build the configuration again from its dictionary, with its class's own checks."""
    try:
        return type(config).from_dict(data)
    except Exception as error:  # a dataclass validator of transformers: its class is not public
        raise LimbeckError(
            f"student.config: {type(config).__name__} rejects it: {first_line(error)}",
            "see that model's configuration class",
        ) from error


# Names of classes on two sides, a model's or its outputs' and the data's, and which of them mean
# the same. One rule for live and stored teachers: a name counts by its meaning, not by its
# spelling.


def labels_of(config: PretrainedConfig) -> tuple[str, ...]:
    """A configuration's class names in id order."""
    return tuple(str(name) for _, name in sorted((config.id2label or {}).items()))


def generic_labels(labels: Sequence[str]) -> bool:
    """Whether the names are generic (`LABEL_0`, `LABEL_1`, …)."""
    return all(re.fullmatch(r"(?i)label_\d+", label) for label in labels)


def plain_label(label: str) -> str:
    """A class name for comparison: case, surrounding space and the kind of dash do not count."""
    return re.sub(r"[\s_-]+", "_", label.strip()).casefold()


def spelling(*sides: Sequence[str]) -> Callable[[str], str]:
    """How class names of several sides are compared: as `plain_label` has them, or as they are written where that
    would make one class of two ("US" and "us").
    """
    apart = all(len({*map(plain_label, side)}) == len(side) for side in sides)
    return plain_label if apart else str


def places_by_name(own: Sequence[str], wanted: Sequence[str]) -> list[int] | None:
    """The index of each wanted class among one's own; None if they are not the same classes.

    By the names as they are written, otherwise as `plain_label` has them, if these still distinguish the classes.
    """
    for spelled in (str, plain_label):
        mine, theirs = [*map(spelled, own)], [*map(spelled, wanted)]
        if len(set(mine)) == len(own) and sorted(mine) == sorted(theirs):
            return [mine.index(name) for name in theirs]
    return None


def numbered_places(own: Sequence[str]) -> list[int]:
    """The classes' indices by their numbers if they have only generic names (`LABEL_1`), otherwise as they are."""
    order = [*range(len(own))]
    if not generic_labels(own):
        return order
    return sorted(order, key=lambda place: int(own[place].rpartition("_")[2]))


def class_places(own: Sequence[str], wanted: Sequence[str]) -> list[int] | None:
    """As `places_by_name`; generic names of the same number are assumed to be in the wanted order."""
    found = places_by_name(own, wanted)
    if found is None and len(own) == len(wanted) and generic_labels(own):
        return numbered_places(own)
    return found


def labels_agree(config: PretrainedConfig, labels: Sequence[str], regression: bool) -> bool:
    """Whether a head trained under `config` can serve the task's labels unchanged.

    Regression: one output. Classification: the same names in the same order, or the same number of
    generic names (`LABEL_0`), which then are assumed to be in the task's order.
    """
    own = labels_of(config)
    if regression:
        return len(own) == 1
    return class_places(own, labels) == [*range(len(labels))]
