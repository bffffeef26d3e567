"""Where each stage's teacher answers from: the model itself, or what it said once, from disk.

Part of `limbeck.run`. Stages that learn from one teacher on the same rows share a pass.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from datasets import Dataset
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from limbeck.cache import (
    Ask,
    CachedTeacher,
    Entry,
    Estimate,
    RememberingTeacher,
    Store,
    UnstorableError,
    build,
    default_store,
    fingerprint,
    measure,
)
from limbeck.capture import token_mask
from limbeck.data import Collator
from limbeck.errors import LimbeckError
from limbeck.kinds import TEXT, Kind, kind_of
from limbeck.objectives import Objectives
from limbeck.recipe import Recipe, Stage
from limbeck.records import Execution
from limbeck.run.assemble import Assembly
from limbeck.run.terms import objectives_of
from limbeck.teachers import Teacher

logger = logging.getLogger(__name__)

Answers = Literal["stored", "live"]
# Less is not worth a file.
_WORTH_SECONDS = 5.0
# Without gradients there is room for more rows than in training.
_ROWS = 64
# Rows of all lengths to measure by.
_SAMPLE = 16
_GIB = 2**30


@dataclass(frozen=True)
class _Group:
    """Stages that ask one teacher about the same rows."""

    stages: tuple[Stage, ...]
    teacher: Teacher
    rows: Dataset
    collator: Collator
    wanted: Ask

    @property
    def passes(self) -> float:
        """How often training goes through the rows."""
        return sum(_passes(stage.recipe, len(self.rows)) for stage in self.stages)


def store_answers(
    recipe: Recipe, assembly: Assembly, execution: Execution, *, show: bool
) -> Execution:
    """Put stored answers in the teacher's place wherever that pays, and say what was done.

    What an earlier start of the run decided (`execution`) stays.

    Raises:
        LimbeckError: `cache: always` where answers cannot be stored.
    """
    console = Console(stderr=True, quiet=not show)
    answers = dict(execution.answers)
    for group in _groups(recipe, assembly):
        numbers = [str(stage.number) for stage in group.stages]
        before = {answers.get(number) for number in numbers}
        decided: Answers | None = next(
            (found for found in ("stored", "live") if before == {found}), None
        )
        teacher = _answering(recipe, group, decided, console)
        answers |= dict.fromkeys(numbers, "live" if teacher is None else "stored")
        if teacher is not None:
            assembly.stored |= {stage.number: teacher for stage in group.stages}
    return execution.model_copy(update={"answers": answers})


def _groups(recipe: Recipe, assembly: Assembly) -> list[_Group]:
    groups: dict[tuple[int, bool], _Group] = {}
    for stage in recipe.stages():
        teacher, rows = assembly.teacher_of(stage), assembly.rows_of(stage)
        if teacher is None:
            continue
        objectives = objectives_of(stage, assembly)
        wanted = Ask(objectives.ever("teacher"), objectives.differences("teacher").items)
        reason = _refusal(stage, teacher, objectives, rows.kind)
        if reason is not None and recipe.cache == "always":
            raise LimbeckError(f"cache: always, but {reason}", "set cache to auto or never")
        if isinstance(teacher, RememberingTeacher) and rows.kind.redrawn and rows.kind.constant:
            raise LimbeckError(
                f"live_teacher: it remembers its answers, but {rows.kind.redrawn} are drawn anew in "
                "every epoch",
                "pass Teacher.load(…), or set images.crop=0 and images.flip=false",
            )
        if reason is not None or isinstance(teacher, RememberingTeacher):
            continue
        key = (id(teacher.model), stage.same_rows)
        known = groups.get(key)
        groups[key] = _Group(
            (*(known.stages if known else ()), stage),
            teacher,
            rows.encoded,
            rows.collator(assembly.tokenizer),
            wanted if known is None else wanted | known.wanted,
        )
    return list(groups.values())


def _refusal(stage: Stage, teacher: Teacher, objectives: Objectives, kind: Kind) -> str | None:
    """Why a stage's answers about rows of a kind cannot be stored, if they cannot."""
    if stage.recipe.mixup is not None:
        return "the inputs are mixed anew in every step (mixup)"
    if teacher.dropout:
        return "the teacher's dropout is on (teacher_dropout)"
    if kind.redrawn:
        return f"{kind.redrawn} are drawn anew in every epoch"
    if kind_of(teacher.model) is TEXT or any(
        seen.stack != "main" for seen in objectives.ever("teacher").items
    ):
        return "answers of an encoder-decoder are not stored"
    if objectives.sees_padding:
        return f"what stands at padding counts in {', '.join(objectives.sees_padding)}"
    return None


def _answering(
    recipe: Recipe, group: _Group, decided: Answers | None, console: Console
) -> Teacher | None:
    """The teacher that reads its answers, or None for the live one."""
    if recipe.cache == "never" or decided == "live":
        return None
    store, precision = default_store(), recipe.precision
    group.teacher.to(_device())
    key = fingerprint(group.teacher.model, group.rows, group.wanted, precision)
    entry = store.find(key)
    if entry is not None:
        console.print(f"teacher cache: {_size(entry.bytes)}, found", highlight=False)
        return CachedTeacher(group.teacher, entry)
    lengths = _lengths(group)
    order = np.argsort(-lengths, kind="stable")
    few = next(_batches(group, order[:: math.ceil(len(order) / _SAMPLE)]))
    estimate = measure(group.teacher, few, group.wanted, lengths, precision=precision)
    free_to_choose = decided is None and recipe.cache == "auto"
    too_large = _too_large(estimate, recipe.cache_limit, store)
    if free_to_choose and (too_large or estimate.saved(group.passes) < _WORTH_SECONDS):
        logger.info("teacher cache: not used, %s", too_large or "it saves no time to speak of")
        return None
    if too_large:
        raise LimbeckError(
            f"cache: always, but {too_large}", "raise cache_limit, make room, or set cache to auto"
        )
    console.print(
        f"teacher cache: {_size(estimate.bytes)}, one pass of about "
        f"{estimate.teacher_seconds:.0f} s now saves about "
        f"{max(estimate.saved(group.passes), 0):.0f} s",
        highlight=False,
    )
    try:
        return _stored(recipe, group, store, key, order, estimate, console)
    except UnstorableError as reason:
        if not free_to_choose:
            raise
        logger.warning("teacher cache: not used, %s", reason)
        return None


def _stored(
    recipe: Recipe,
    group: _Group,
    store: Store,
    key: str,
    order: np.ndarray,
    estimate: Estimate,
    console: Console,
) -> CachedTeacher:
    """The entry, built by one process while the others wait."""
    with store.lock(key):
        # Another process may have built it while this one waited.
        entry, fresh = store.find(key), 0
        if entry is None:
            _make_room(store, estimate.bytes, recipe.cache_limit)
            entry, fresh = _build(recipe, group, store, key, order, console), len(order)
    return CachedTeacher(group.teacher, entry, fresh=fresh)


def _too_large(estimate: Estimate, limit: float, store: Store) -> str | None:
    """Why there is no room, if there is none."""
    if estimate.bytes > limit * _GIB:
        return f"it would take {_size(estimate.bytes)}, more than cache_limit {limit:g} GiB"
    free = shutil.disk_usage(_existing(store)).free
    if estimate.bytes > free / 2:
        return f"it would take {_size(estimate.bytes)} of {_size(free)} free"
    return None


def _existing(store: Store) -> str:
    place = store.folder
    while not place.exists():
        place = place.parent
    return str(place)


def _make_room(store: Store, needed: int, limit: float) -> None:
    store.sweep()
    for entry in store.make_room(needed, int(limit * _GIB)):
        logger.info("teacher cache: removed %s (%s)", entry.key, _size(entry.bytes))


def _build(
    recipe: Recipe, group: _Group, store: Store, key: str, order: np.ndarray, console: Console
) -> Entry:
    about = {
        "teacher": str(group.stages[-1].recipe.teacher),
        "task": group.stages[-1].recipe.task,
        "rows": len(group.rows),
        "precision": recipe.precision,
        "holds": group.wanted.names(),
    }
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with store.writing(key) as folder, bar:
        shown = bar.add_task("teacher", total=len(order))
        build(
            folder,
            group.teacher,
            _batches(group, order),
            group.wanted,
            precision=recipe.precision,
            about=about,
            advance=lambda examples: bar.advance(shown, examples),
        )
    entry = store.find(key)
    assert entry is not None  # just renamed into its place
    return entry


def _batches(group: _Group, order: np.ndarray) -> Iterator[dict[str, Tensor]]:
    device = group.teacher.device
    for start in range(0, len(order), _ROWS):
        columns: dict[str, list[Any]] = group.rows[order[start : start + _ROWS].tolist()]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        yield {name: value.to(device) for name, value in group.collator(rows).items()}


def _device() -> torch.device:
    """Where the Trainer is going to put the teacher."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return torch.device("cpu")
    return torch.device(accelerator.type, int(os.environ.get("LOCAL_RANK", "0")))


def _lengths(group: _Group) -> np.ndarray:
    """Tokens of each row; as many of every image."""
    found = group.collator.kind.reads.lengths(group.rows)
    if found is not None:
        return np.array(found)
    mask = token_mask(group.teacher.model, next(_batches(group, np.array([0]))))
    return np.full(len(group.rows), int(mask.sum()))


def _passes(recipe: Recipe, rows: int) -> float:
    if recipe.max_steps is None:
        return recipe.epochs
    return recipe.max_steps * recipe.batch_size * recipe.accumulation / rows


def _size(count: float) -> str:
    return f"{count / _GIB:.2f} GiB" if count >= _GIB / 10 else f"{count / 2**20:.1f} MiB"
