"""A student: some layers of the teacher or of a checkpoint, a whole checkpoint, or a fresh model.

On the way of a training step: before it. The result is an ordinary Hugging Face model that
`save_pretrained` writes and `AutoModelForSequenceClassification.from_pretrained` reads where
limbeck is not installed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from transformers import AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel

from limbeck.errors import LimbeckError
from limbeck.students.checkpoints import load_checkpoint
from limbeck.students.configuration import (
    labels_agree,
    layer_count,
    stacks_of,
    with_labels,
    with_layers,
    with_settings,
)
from limbeck.students.picking import pick_layers
from limbeck.students.transplanting import fresh_model, shares_one_layer, transplant

log = logging.getLogger(__name__)

Layers = int | Sequence[int] | Mapping[str, int | Sequence[int]] | None


class Labelled(Protocol):
    """The part of a task a student needs: class names in id order, () with regression."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names in id order; () for regression."""
        ...

    @property
    def regression(self) -> bool:
        """Whether the model predicts one number."""
        ...


def build_student(
    init: str | Path | PretrainedConfig | PreTrainedModel,
    *,
    task: Labelled,
    layers: Layers = None,
    pick: str = "first",
    config: Mapping[str, Any] | None = None,
    teacher: PreTrainedModel | None = None,
    seed: int = 0,
    auto: Any = AutoModelForSequenceClassification,
    attn_implementation: str | None = None,
) -> PreTrainedModel:
    """Build the student that a recipe describes: float32, eval mode, on the CPU.

    `init`: `"teacher"` (copied from `teacher`), a folder or Hub name, a model, `"fresh"` (random
    weights, the teacher's configuration) or a configuration (random weights).
    `layers`: how many `pick` keeps, or the layers themselves (1-based); for an encoder-decoder it
    applies to both stacks, or give `{"encoder": …, "decoder": …}`. None keeps them all.
    `pick`: `first`, `last`, `skip`, `upper` (see `pick_layers`).
    `config`: entries that replace the configuration's (`with_settings`).
    The head is copied when its labels agree with the task's, otherwise drawn from `seed`.
    ALBERT runs one layer many times: there only the number of rounds changes, and the log says so.

    Raises LimbeckError for layers that do not exist, settings the model does not have, weights that
    do not fit, and checkpoints that cannot be read.
    """
    source, base, has_head = _start(init, teacher, seed, auto, attn_implementation)
    picked = _picked(base, layers, pick)
    shape = with_layers(base, picked) if picked else base
    if config:
        shape = with_settings(shape, config, fresh=source is None)
    shape = with_labels(shape, task.labels, task.regression)
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
    copy_head = has_head and labels_agree(base, task.labels, task.regression)
    return transplant(source, target, picked, copy_head=copy_head)


def _start(
    init: str | Path | PretrainedConfig | PreTrainedModel,
    teacher: PreTrainedModel | None,
    seed: int,
    auto: Any,
    attn_implementation: str | None,
) -> tuple[PreTrainedModel | None, PretrainedConfig, bool]:
    """The model to copy from (None: random weights), its configuration, whether it has a head."""
    if isinstance(init, PretrainedConfig):
        return None, init, False
    if isinstance(init, PreTrainedModel):
        return init, init.config, True
    if init in ("teacher", "fresh"):
        if teacher is None:
            raise LimbeckError(
                f"student.init is {init!r}, but there is no teacher",
                "give a teacher, or set student.init to a folder or a Hub name",
            )
        return (teacher if init == "teacher" else None), teacher.config, init == "teacher"
    model, has_head = load_checkpoint(
        init, seed=seed, auto=auto, attn_implementation=attn_implementation
    )
    return model, model.config, has_head


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
