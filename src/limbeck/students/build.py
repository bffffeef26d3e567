"""A student: some layers of the teacher or of a checkpoint, a complete checkpoint, or a fresh model.

The result is an ordinary Hugging Face model that
`save_pretrained` writes and `AutoModelFor….from_pretrained`, with the class of its head, reads
where limbeck is not installed.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel

from limbeck import tasks
from limbeck.activations.compat import SameClass
from limbeck.embedding import SentenceEmbedder
from limbeck.students import configuration, pretrained
from limbeck.support.errors import LimbeckError, unknown
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
    kind: tasks.TaskType | str | None = None,
) -> PreTrainedModel:
    """Build a student, `build_student(teacher, layers=3)`: float32, eval mode, on the CPU.

    A narrower one is `narrowed(build_student(teacher, layers=3), heads=8)`. ALBERT runs one layer many times:
    there only the number of rounds changes, which is logged.

    Args:
        init: `"teacher"` (copied from `teacher`), a folder or Hub name, a model, `"fresh"` (random weights, the
            teacher's configuration) or a configuration (random weights).
        task: names its head's outputs; None: the head is the one of its start. The head is copied when its labels
            agree with the task's, otherwise initialised from `seed`.
        layers: how many `pick` keeps, or the layers themselves (1-based); for an encoder-decoder it applies to both
            stacks, or give `{"encoder": …, "decoder": …}`. None keeps them all.
        pick: `first`, `last`, `skip`, `upper` (see `pick_layers`; by rows: `important_layers`). If left out, `skip` for
            models that generate and where a head reads a complete text off one token, as lower layers write nothing
            into it yet, `upper` for embedding models, otherwise `first`.
        config: entries that replace the configuration's (`with_settings`).
        teacher: the model that `"teacher"` and `"fresh"` refer to.
        seed: decides random weights.
        kind: what its head answers, and so its class, as a task type or by its name. If left out, sentence
            classification with a `task`, otherwise the type of its start.

    Example:
        ```python
        student = limbeck.build_student("runs/teacher/student", layers=3)
        student.save_pretrained("small")
        ```

    Raises:
        LimbeckError: an unknown kind, layers that do not exist, settings the model does not have, weights that do not
            fit, checkpoints that cannot be read, and, without a `task`, those without a trained head.
    """
    if isinstance(kind, str):
        kind = tasks.get_task_type(kind)
    auto = _class_of_head(init, teacher, task, kind)
    head: pretrained.Head = "optional" if task is not None else "required"
    source, base, has_head = _start(init, teacher, seed, auto, head)
    named = kind is not None or task is not None
    own = kind or tasks.SENTENCE
    if not named:
        own = tasks.kind_of_config(base) if source is None else tasks.task_type_of(source)
    picked = picked_layers(base, layers, pick or default_pick(own))
    kind = kind or tasks.SENTENCE
    # With a vocabulary for labels there is nothing to name.
    names = None if task is None else kind.head_labels(task)
    labelled = None
    if task is not None and names is not None:
        labelled = names, kind.regresses(task)
    shape = configuration.with_layers(base, picked) if picked else deepcopy(base)
    if config:
        shape = configuration.with_settings(shape, config, fresh=source is None)
    if labelled is not None:
        shape = configuration.with_labels(
            shape, *labelled, problem_type=kind.problem_of(labelled[1])
        )
    shape = _marked(shape, kind if named else tasks.kind_of_config(base).of_model(base))
    target = pretrained.fresh_model(shape, seed=seed, auto=auto)
    if source is None:
        return target
    if picked and pretrained.shares_one_layer(source):
        log.warning(
            "student: %s runs one shared layer %d times; the student runs it %d times, whichever layers are picked",
            type(source).__name__,
            configuration.layer_count(base),
            len(picked["main"]),
        )
        picked = {}
    copy_head = has_head and (labelled is None or configuration.labels_agree(base, *labelled))
    if isinstance(target, SentenceEmbedder):  # a linear map of another width is a new one
        copy_head = copy_head and pretrained.heads_alike(source, target)
    return pretrained.transplant(source, target, picked, copy_head=copy_head)


def _marked(config: PretrainedConfig, kind: tasks.TaskType) -> PretrainedConfig:
    """The configuration as one of this kind has it, whatever kind it was of."""
    for other in map(tasks.TASK_TYPES.get, tasks.TASK_TYPES):
        config = other.disown(config) if other is not kind else config
    return kind.student_config(config)


def _class_of_head(
    init: str | Path | PretrainedConfig | PreTrainedModel,
    teacher: PreTrainedModel | None,
    task: Labelled | None,
    kind: tasks.TaskType | None,
) -> Any:
    """Determines the student's class: the task type, or without a task its start."""
    if kind is not None or task is not None:
        return (kind or tasks.SENTENCE).auto
    model = teacher if isinstance(init, str) and init in _OF_TEACHER else init
    if isinstance(model, PreTrainedModel):
        return SameClass(model)
    if isinstance(model, PretrainedConfig):
        return tasks.kind_of_config(model).auto
    return (
        tasks.SENTENCE.auto
        if model is None
        else tasks.kind_of_config(pretrained.read_config(model)).auto
    )


def _start(
    init: str | Path | PretrainedConfig | PreTrainedModel,
    teacher: PreTrainedModel | None,
    seed: int,
    auto: Any,
    head: pretrained.Head,
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
    model, has_head = pretrained.load_checkpoint(init, head=head, seed=seed, auto=auto)
    return model, model.config, has_head


def wanted_layers(base: PretrainedConfig, layers: Layers) -> dict[str, int | Sequence[int]]:
    """The number or the choice of each stack's layers; {} keeps every stack complete.

    Raises:
        LimbeckError: a stack that the model does not have.
    """
    stacks = configuration.stacks_of(base)
    if isinstance(layers, Mapping):
        strange = layers.keys() - set(stacks)
        if strange:
            raise LimbeckError(
                f"student.layers names the stacks {sorted(strange)}, but the model has {', '.join(stacks)}",
                "give a number or a list of layers, or one per existing stack",
            )
        return dict(layers)
    return dict.fromkeys(stacks, layers) if layers is not None else {}


def default_pick(kind: tasks.TaskType) -> str:
    """The rule by which layers are picked where none is named, and there are no rows."""
    return "skip" if kind.usual_pick == BY_ROWS else kind.usual_pick


def picked_layers(base: PretrainedConfig, layers: Layers, pick: str) -> dict[str, list[int]]:
    """Picked layers per stack; {} keeps every stack complete."""
    picked = {}
    for stack, kept in wanted_layers(base, layers).items():
        total = configuration.layer_count(base, stack)
        rule, keep = (pick, kept) if isinstance(kept, int) else (kept, None)
        picked[stack] = pick_layers(rule, keep, total)
    return picked


# Which layers a student takes from the model it starts from, as plain numbers. The result is a
# list of 1-based layer numbers, lowest first, because a stack keeps its order; everything that
# copies weights or configuration entries reads this list and nothing else.


def _upper(keep: int, total: int) -> list[int]:
    small, larger_groups = divmod(total, keep)
    return [small * group + min(group, larger_groups) for group in range(1, keep + 1)]


PICKS: dict[str, Callable[[int, int], list[int]]] = {
    "first": lambda keep, total: list(range(1, keep + 1)),
    "last": lambda keep, total: list(range(total - keep + 1, total + 1)),
    # j * total / keep, rounded half up without leaving the integers.
    "skip": lambda keep, total: [(2 * j * total + keep) // (2 * keep) for j in range(1, keep + 1)],
    "upper": _upper,
}
BY_ROWS = "importance"
"""Picks layers by their effect on rows: `important_layers`."""


def pick_layers(pick: str | Sequence[int], keep: int | None, total: int) -> list[int]:
    """Numbers of the picked layers, 1-based and ascending.

    `pick` is a rule or the layers themselves; `keep` is how many a rule keeps (None: all), and for a rule alone:

    * `first`, `last`: the `keep` layers at that end.
    * `skip`: every (total / keep)-th: 12 to 6 gives 2, 4, 6, 8, 10, 12. A step that is not an integer is
      rounded half up: 12 to 5 gives 2, 5, 7, 10, 12.
    * `upper`: the upper layer of each of `keep` contiguous groups, of which the first
      `total mod keep` hold one layer more: 12 to 5 gives 3, 6, 8, 10, 12. Equal to `skip` when
      `total / keep` is an integer.

    Raises LimbeckError for an unknown rule, for a count outside 1..total, and for listed layers
    that do not exist or occur twice.
    """
    if isinstance(pick, str):
        if pick not in PICKS:
            if pick == BY_ROWS:
                raise LimbeckError(
                    f"student.pick: {pick} needs rows, and there are no rows here",
                    "choose the layers first: build_student(model, layers=important_layers(model, 3, batches))",
                )
            problem = unknown("student.pick", pick, [*PICKS, BY_ROWS])
            raise LimbeckError(problem.message, f"{problem.fix}; or list layers in student.layers")
        keep = total if keep is None else keep
        if not total:
            raise LimbeckError(
                f"student.layers: {keep} layers requested, but the model has no layers",
                "leave the layers out",
            )
        if not 1 <= keep <= total:
            raise LimbeckError(
                f"student.layers: {keep} layers requested, but the model has {total}",
                f"choose a number from 1 to {total}",
            )
        return PICKS[pick](keep, total)
    listed = list(pick)
    absent = any(not 1 <= layer <= total for layer in listed)
    if not listed or absent or len(set(listed)) < len(listed):
        raise LimbeckError(
            f"student.layers: {listed} are not layers of a model that has {total}",
            f"name each layer once, from 1 to {total} (the first layer is 1, not 0)",
        )
    return sorted(listed)
