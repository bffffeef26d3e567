"""A student: some layers of the teacher or of a checkpoint, a whole checkpoint, or a fresh model.

The result is an ordinary Hugging Face model that
`save_pretrained` writes and `AutoModelFor….from_pretrained`, with the class of its head, reads
where limbeck is not installed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel

from limbeck.activations.compat import builder_of
from limbeck.embedding import SentenceEmbedder
from limbeck.students.configuration import (
    labels_agree,
    layer_count,
    stacks_of,
    with_labels,
    with_layers,
    with_settings,
)
from limbeck.students.pretrained import (
    Head,
    fresh_model,
    heads_alike,
    load_checkpoint,
    read_config,
    shares_one_layer,
    transplant,
)
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.tasks import (
    SENTENCE,
    TASK_TYPES,
    TaskType,
    get_task_type,
    kind_of_config,
    task_type_of,
)
from limbeck.tasks.rules import Labelled

log = logging.getLogger(__name__)

Layers = int | Sequence[int] | Mapping[str, int | Sequence[int]] | None
_OF_TEACHER = ("teacher", "fresh")


def build_student(
    init: str | Path | PretrainedConfig | PreTrainedModel,
    *,
    task: Labelled | None = None,
    layers: Layers = None,
    pick: str | None = None,
    config: Mapping[str, Any] | None = None,
    teacher: PreTrainedModel | None = None,
    seed: int = 0,
    kind: TaskType | str | None = None,
    auto: Any = None,
    attn_implementation: str | None = None,
) -> PreTrainedModel:
    """Build a student, `build_student(teacher, layers=3)`: float32, eval mode, on the CPU.

    `init`: `"teacher"` (copied from `teacher`), a folder or Hub name, a model, `"fresh"` (random
    weights, the teacher's configuration) or a configuration (random weights).
    `layers`: how many `pick` keeps, or the layers themselves (1-based); for an encoder-decoder it
    applies to both stacks, or give `{"encoder": …, "decoder": …}`. None keeps them all.
    `pick`: `first`, `last`, `skip`, `upper` (see `pick_layers`). If left out, `skip` where a head reads a whole
    text off one token, as lower layers write nothing into it yet, else `first`.
    `config`: entries that replace the configuration's (`with_settings`).
    `task`: names its head's outputs; None: the head is the one of what it starts from.
    `kind`: what its head answers, and so its class, as a task type or by its name; `auto` names another
    AutoModel class. If left out, sentence classification with a `task`, else what it starts from.
    The head is copied when its labels agree with the task's, otherwise initialised from `seed`.
    ALBERT runs one layer many times: there only the number of rounds changes, and the log says so.

    Raises LimbeckError for an unknown kind, layers that do not exist, settings the model does not have,
    weights that do not fit, checkpoints that cannot be read, and, without a `task`, those without a trained head.
    """
    if isinstance(kind, str):
        kind = get_task_type(kind)
    auto = auto or _class_of_head(init, teacher, task, kind)
    head: Head = "optional" if task is not None else "required"
    source, base, has_head = _start(init, teacher, seed, auto, attn_implementation, head)
    named = kind is not None or task is not None
    own = kind or SENTENCE
    if not named:
        own = kind_of_config(base) if source is None else task_type_of(source)
    picked = _picked(base, layers, pick or ("skip" if own.whole_text else "first"))
    kind = kind or SENTENCE
    labelled = None if task is None else _labels_of_head(kind, task)
    shape = with_layers(base, picked) if picked else deepcopy(base)
    if config:
        shape = with_settings(shape, config, fresh=source is None)
    # With a vocabulary for labels there is nothing to name.
    if labelled is not None:
        shape = with_labels(shape, *labelled, problem_type=kind.problem_of(labelled[1]))
    shape = _marked(shape, kind if named else kind_of_config(base))
    target = fresh_model(shape, seed=seed, auto=auto, attn_implementation=attn_implementation)
    if source is None:
        return target
    if picked and shares_one_layer(source):
        log.warning(
            "student: %s runs one shared layer %d times; the student runs it %d times, whichever "
            "layers are picked",
            type(source).__name__,
            layer_count(base),
            len(picked["main"]),
        )
        picked = {}
    copy_head = has_head and (labelled is None or labels_agree(base, *labelled))
    if isinstance(target, SentenceEmbedder):  # a linear map of another width is a new one
        copy_head = copy_head and heads_alike(source, target)
    return transplant(source, target, picked, copy_head=copy_head)


def _marked(config: PretrainedConfig, kind: TaskType) -> PretrainedConfig:
    """The configuration as one of this kind has it, whatever kind it was of."""
    for other in map(TASK_TYPES.get, TASK_TYPES):
        config = other.disown(config) if other is not kind else config
    return kind.student_config(config)


class _SameClass:
    """Stands for an AutoModel class where the very class of a model is known."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.from_config = builder_of(model)


def _class_of_head(
    init: str | Path | PretrainedConfig | PreTrainedModel,
    teacher: PreTrainedModel | None,
    task: Labelled | None,
    kind: TaskType | None,
) -> Any:
    """What makes the student's class: the kind's, or without a task what it starts from."""
    if kind is not None or task is not None:
        return (kind or SENTENCE).auto
    model = teacher if isinstance(init, str) and init in _OF_TEACHER else init
    if isinstance(model, PreTrainedModel):
        return _SameClass(model)
    if isinstance(model, PretrainedConfig):
        return kind_of_config(model).auto
    return SENTENCE.auto if model is None else kind_of_config(read_config(model)).auto


def _start(
    init: str | Path | PretrainedConfig | PreTrainedModel,
    teacher: PreTrainedModel | None,
    seed: int,
    auto: Any,
    attn_implementation: str | None,
    head: Head,
) -> tuple[PreTrainedModel | None, PretrainedConfig, bool]:
    """The model to copy from (None: random weights), its configuration, whether it has a head."""
    if isinstance(init, PretrainedConfig):
        return None, init, False
    if isinstance(init, PreTrainedModel):
        return init, init.config, True
    if init in _OF_TEACHER:
        if teacher is None:
            raise LimbeckError(
                f"student.init is {init!r}, but there is no teacher",
                "give a teacher, or set student.init to a folder or a Hub name",
            )
        return (teacher if init == "teacher" else None), teacher.config, init == "teacher"
    model, has_head = load_checkpoint(
        init, head=head, seed=seed, auto=auto, attn_implementation=attn_implementation
    )
    return model, model.config, has_head


def _labels_of_head(kind: TaskType, task: Labelled) -> tuple[tuple[str, ...], bool] | None:
    """Names of the head's outputs, and whether it is a single number; None for a vocabulary."""
    names = kind.head_labels(task)
    return None if names is None else (names, task.regression and kind.is_number(len(names)))


def _picked(base: PretrainedConfig, layers: Layers, pick: str) -> dict[str, list[int]]:
    """Picked layers per stack; {} keeps every stack whole."""
    stacks = stacks_of(base)
    if isinstance(layers, Mapping):
        strange = layers.keys() - set(stacks)
        if strange:
            raise LimbeckError(
                f"student.layers names the stacks {sorted(strange)}, but the model has "
                f"{', '.join(stacks)}",
                "give a number or a list of layers, or one per existing stack",
            )
        wanted = dict(layers)
    else:
        wanted = dict.fromkeys(stacks, layers) if layers is not None else {}
    picked = {}
    for stack, kept in wanted.items():
        total = layer_count(base, stack)
        if isinstance(kept, int):
            picked[stack] = pick_layers(pick, kept, total)
        else:
            picked[stack] = pick_layers(kept, None, total)
    return picked


# Which layers a student takes from the model it starts from, as plain numbers. The result is a
# list of 1-based layer numbers, lowest first, because a stack keeps its order; everything that
# copies weights or configuration entries reads this list and nothing else.


def _first(keep: int, total: int) -> list[int]:
    return list(range(1, keep + 1))


def _last(keep: int, total: int) -> list[int]:
    return list(range(total - keep + 1, total + 1))


def _skip(keep: int, total: int) -> list[int]:
    # j * total / keep, rounded half up without leaving the integers.
    return [(2 * j * total + keep) // (2 * keep) for j in range(1, keep + 1)]


def _upper(keep: int, total: int) -> list[int]:
    small, larger_groups = divmod(total, keep)
    uppers, top = [], 0
    for group in range(keep):
        top += small + (1 if group < larger_groups else 0)
        uppers.append(top)
    return uppers


PICKS: dict[str, Callable[[int, int], list[int]]] = {
    "first": _first,
    "last": _last,
    "skip": _skip,
    "upper": _upper,
}


def pick_layers(pick: str | Sequence[int], keep: int | None, total: int) -> list[int]:
    """Numbers of the picked layers, 1-based and ascending.

    `pick` is a rule or the layers themselves; `keep` is how many a rule keeps (None: all):

    * `first`, `last`: the `keep` layers at that end.
    * `skip`: every (total / keep)-th: 12 to 6 gives 2, 4, 6, 8, 10, 12. A step that is not whole is
      rounded half up: 12 to 5 gives 2, 5, 7, 10, 12.
    * `upper`: the upper layer of each of `keep` contiguous groups, of which the first
      `total mod keep` hold one layer more: 12 to 5 gives 3, 6, 8, 10, 12. Equal to `skip` when
      `total / keep` is whole.

    Raises LimbeckError for an unknown rule, for a count outside 1..total, and for listed layers
    that do not exist or occur twice.
    """
    if isinstance(pick, str):
        if pick not in PICKS:
            problem = unknown("student.pick", pick, list(PICKS))
            raise LimbeckError(problem.message, f"{problem.fix}; or list layers in student.layers")
        keep = total if keep is None else keep
        if not 1 <= keep <= total:
            raise LimbeckError(
                f"student.layers: {keep} layers asked for, but the model has {total}",
                f"choose a number from 1 to {total}",
            )
        return PICKS[pick](keep, total)
    return _listed(list(pick), keep, total)


def _listed(listed: list[int], keep: int | None, total: int) -> list[int]:
    """Check layers that were named one by one."""
    absent = [layer for layer in listed if not 1 <= layer <= total]
    problems = []
    if absent:
        problems.append(
            Problem(
                f"student.layers: {_numbers(absent)} asked for, but the model's layers are "
                f"1..{total}",
                f"name layers from 1 to {total} (the first layer is 1, not 0)",
            )
        )
    if len(set(listed)) < len(listed):
        problems.append(
            Problem(f"student.layers: {listed} names a layer twice", "name each layer once")
        )
    if not listed:
        problems.append(Problem("student.layers is empty", "name at least one layer"))
    if keep is not None and keep != len(listed):
        problems.append(
            Problem(
                f"student.layers: {keep} layers asked for, but {len(listed)} are listed: {listed}",
                "give the count or the list, not both",
            )
        )
    if problems:
        raise LimbeckError(problems)
    return sorted(listed)


def _numbers(layers: Sequence[int]) -> str:
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}"
