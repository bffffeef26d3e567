"""Where each stage's teacher outputs come from: the live model, or its stored outputs.

Part of `limbeck.run`. Stages that learn from one teacher on the same rows share a pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from rich.console import Console

from limbeck.outputs import (
    CachedTeacher,
    EntryAbout,
    StoringQuestion,
    default_store,
    fingerprint,
    stored_if_it_pays,
)
from limbeck.recipe import Recipe
from limbeck.records import Execution
from limbeck.run.entry_rows import entry_rows
from limbeck.run.output_groups import OutputGroup, StagePlace, output_groups
from limbeck.run.prepared import Prepared
from limbeck.run.stage_passes import bars
from limbeck.support.machine import device
from limbeck.support.terminal import print_line
from limbeck.teachers.teacher import Teacher

Answers = Literal["stored", "live"]
_GIB = 2**30


def with_stored_outputs(
    prepared: Prepared,
    *,
    show: bool,
    keep: Callable[[Execution], None] = lambda execution: None,
) -> Prepared:
    """The run with stored outputs in its teachers' places wherever that pays.

    What an earlier start of the run decided (`prepared.execution`) stays. `keep` is given what is about to be
    stored before it is, so that the run is known to have paid for it however it ends.

    Raises:
        LimbeckError: `cache: always` where outputs cannot be stored.
    """
    console = Console(stderr=True, quiet=not show, markup=False, emoji=False)
    execution = prepared.execution
    answers, stored = dict(execution.teacher_outputs), list(execution.stored)

    def starting(key: str) -> None:
        stored.append(key)
        keep(execution.model_copy(update={"teacher_outputs": answers, "stored": stored}))

    recipe, found = prepared.recipe, defaultdict[int, dict[int, Teacher]](dict)
    reasons: dict[str, str] = {}

    def live(place: StagePlace, reason: str) -> None:
        if recipe.cache != "auto":  # then nobody expects them to be
            return
        reasons[place.key] = reason
        whose = f" of {place.name}" if place.name else ""
        print_line(console, f"teacher outputs{whose} are not stored: {reason}")

    for group in output_groups(prepared, live):
        keys = [place.key for place in group.places]
        before = {answers.get(key) for key in keys}
        decided: Answers | None = next(
            (known for known in ("stored", "live") if before == {known}), None
        )
        teacher = _answering(recipe, group, decided, stored, starting, console)
        answers |= dict.fromkeys(keys, "live" if teacher is None else "stored")
        if teacher is not None:
            for place in group.places:
                found[place.stage.number][place.number] = teacher
    stages = (inputs.answered_from(found[inputs.stage.number]) for inputs in prepared.stages)
    done = execution.model_copy(
        update={"teacher_outputs": answers, "stored": stored, "live_because": reasons}
    )
    return replace(prepared, stages=tuple(stages), execution=done)


def seconds_stored_before(prepared: Prepared, before: Execution) -> float:
    """What an earlier start of the run spent on storing outputs that this one has found."""
    now = prepared.execution
    made_now = now.stored[len(before.stored) :]
    members = [member for inputs in prepared.stages for member in inputs.members]
    stored = [one for one in members if isinstance(one, CachedTeacher)]
    found = {teacher.entry.key: teacher.built_seconds for teacher in stored}
    earlier = set(before.stored) - set(made_now)
    return sum(seconds for key, seconds in found.items() if key in earlier)


def _answering(
    recipe: Recipe,
    group: OutputGroup,
    decided: Answers | None,
    ours: Sequence[str],
    starting: Callable[[str], None],
    console: Console,
) -> Teacher | None:
    """The teacher that reads its stored outputs, or None for the live one."""
    if recipe.cache == "never" or decided == "live":
        return None
    store, precision = default_store(), recipe.precision
    group.teacher.to(device())
    inputs, rows = group.teacher.inputs, group.rows
    # As this teacher reads them: whose other columns lie beside is none of its business.
    rows = rows if inputs is None else inputs.of_rows(rows)
    place = group.places[-1]
    question = StoringQuestion(
        teacher=group.teacher,
        wanted=group.wanted,
        precision=precision,
        key=fingerprint(group.teacher.model, rows, group.wanted, precision),
        lengths=group.lengths,
        batches=group.batches,
        passes=group.passes,
        limit=recipe.cache_limit * _GIB,
        setting=None if decided is None and recipe.cache == "auto" else "cache: always",
        about=EntryAbout(
            place.name or str(place.stage.recipe.teacher),
            place.stage.recipe.task,
            entry_rows(group),
        ),
        title=group.title,
    )
    return stored_if_it_pays(
        question,
        store,
        ours=ours,
        starting=starting,
        say=partial(console.print, highlight=False),
        watching=partial(bars, console),
    )
