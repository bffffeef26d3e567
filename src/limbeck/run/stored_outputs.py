"""Where each stage's teacher outputs come from: the live model, or its stored outputs.

Part of `limbeck.run`. Stages that learn from one teacher on the same rows share a pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from datasets import Dataset, LargeList, List
from rich.console import Console
from torch import Tensor

from limbeck.activations import Request, token_mask
from limbeck.data import Collator, batches_of
from limbeck.data.row_facts import facts_of
from limbeck.data.row_ids import output_keys
from limbeck.outputs import (
    Ask,
    EntryAbout,
    EntryRows,
    Lengths,
    RowsIdentity,
    StoringQuestion,
    default_store,
    digest_of_tokenizer,
    fingerprint,
    stored_if_it_pays,
)
from limbeck.outputs.key import digest_of_ids
from limbeck.recipe import Recipe, Stage
from limbeck.records.facts import Execution
from limbeck.run.prepared import Prepared, StageInputs
from limbeck.run.rows import EncodedRows
from limbeck.run.trial_terms import objectives_of
from limbeck.support.errors import LimbeckError
from limbeck.support.given import is_reference
from limbeck.support.machine import device
from limbeck.support.terminal import bars, print_line
from limbeck.tasks.abstract_type import labelled_rows
from limbeck.teachers.teacher import Teacher
from limbeck.training.teacher_cache import wanted_of, why_live

# Which teachers are asked about the same rows, in which stages, and for what.


# Without gradients there is room for more rows than in training.
_ROWS = 64


@dataclass(frozen=True)
class StagePlace:
    """A teacher's place in a stage: its stage, and its number in the stage's team."""

    stage: Stage
    number: int
    name: str
    share: float
    """The part of the stage's steps for which it is asked."""

    @property
    def key(self) -> str:
        """What the record calls it: the stage, and the teacher where there are several."""
        return f"{self.stage.number}{self.name and f' {self.name}'}"

    def passes(self, rows: int) -> float:
        """How often training goes through the rows with this teacher."""
        return self.share * self.stage.recipe.passes_over(rows)


@dataclass(frozen=True)
class OutputGroup:
    """Places in which one teacher is asked about the same rows."""

    places: tuple[StagePlace, ...]
    teacher: Teacher
    rows: Dataset
    collator: Collator
    wanted: Ask
    loaded: EncodedRows
    """The rows as they were loaded."""

    @property
    def title(self) -> str:
        """What messages call it."""
        name = self.places[-1].name
        return f"teacher cache, {name}" if name else "teacher cache"

    @property
    def passes(self) -> float:
        """How often training goes through the rows."""
        return sum(place.passes(len(self.rows)) for place in self.places)

    @property
    def lengths(self) -> Lengths:
        """Tokens of each row, as each stack reads it; as many of every image."""
        found = self.collator.kind.reads.lengths(self.rows)
        if found is None:
            mask = token_mask(self.teacher.model, next(self.batches([0])))
            found = [int(mask.sum())] * len(self.rows)
        main = decoder = np.array(found)
        targets = isinstance(self.rows.features.get("labels"), List | LargeList)
        if targets and self.teacher.model.config.is_encoder_decoder:
            decoder = np.array([len(labels) for labels in self.rows["labels"]])
        return {"main": main, "decoder": decoder}

    def batches(self, order: Sequence[int]) -> Iterator[dict[str, Tensor]]:
        """Batches of the rows at these places, on the teacher's device."""
        return batches_of(self.rows, self.collator, _ROWS, self.teacher.device, order=order)


def output_groups(
    prepared: Prepared, live: Callable[[StagePlace, str], None] = lambda place, reason: None
) -> list[OutputGroup]:
    """Whose outputs may be stored: of every teacher in every stage, those about the same rows together.

    Args:
        live: told of a teacher that is asked in every step, and why its outputs cannot be stored.

    Raises:
        LimbeckError: `cache: always` where they cannot be.
    """
    groups: dict[tuple[int, bool], OutputGroup] = {}
    for inputs in prepared.stages:
        stage, rows, built = inputs.stage, inputs.rows, None
        for place, teacher in _places(inputs):
            if not teacher.live:
                continue
            built = built or objectives_of(inputs, prepared.student)
            objectives = built.of(place.number)
            assert inputs.teacher is not None  # one of its members is asked
            wanted = wanted_of(inputs.teacher, objectives)
            reason = why_live(teacher, objectives, stage.recipe.transform, rows.kind)
            reason = reason or _too_many(rows)
            if reason is not None and prepared.recipe.cache == "always":
                raise LimbeckError(f"cache: always, but {reason}", "set cache to auto or never")
            if teacher.remembers and rows.kind.resampled and rows.kind.constant:
                raise LimbeckError(
                    f"live_teacher: it remembers its outputs, but {rows.kind.resampled} are sampled "
                    "again in every epoch",
                    "pass Teacher.load(…), or set images.crop=0 and images.flip=false",
                )
            if reason is not None and wanted.request != Request():
                live(place, reason)
            if reason is not None or teacher.remembers:
                continue
            key = (id(teacher.model), stage.same_rows)
            known = groups.get(key)
            encoded, collator = rows.encoded, rows.collator(prepared.tokenizer)
            if teacher.own_tokens is not None:
                encoded, collator = teacher.own_tokens.rows, teacher.own_tokens.collate
            groups[key] = OutputGroup(
                (*(known.places if known else ()), place),
                teacher,
                encoded,
                collator,
                wanted if known is None else wanted | known.wanted,
                rows,
            )
    return list(groups.values())


def _places(inputs: StageInputs) -> Iterator[tuple[StagePlace, Teacher]]:
    stage, teacher = inputs.stage, inputs.teacher
    if teacher is None:
        return
    for number, (name, share) in enumerate(zip(teacher.names, teacher.shares, strict=True)):
        yield StagePlace(stage, number, name, float(share)), teacher.members[number]


def _too_many(rows: EncodedRows) -> str | None:
    """A pass over very many rows, only to store the teacher's outputs, would come before the first step."""
    if facts_of(rows.encoded).encoded:
        return None
    return (
        f"of {len(rows.encoded):,} training rows each batch is encoded, and asked about, in its turn; "
        "cache=always encodes and stores all of them first"
    )


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
    found = {one.entry.key: one.built_seconds for one in members if one.entry is not None}
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


# Which rows a training's stored outputs are of, by what they say: so that they serve elsewhere
# too.


def entry_rows(group: OutputGroup) -> Callable[[], EntryRows] | None:
    """What gives the rows of a pass; None where its examples are not rows that `limbeck label` could name."""
    if not _are_rows(group.loaded):
        return None
    return lambda: _rows(group)


def _are_rows(rows: EncodedRows) -> bool:
    """Whether each example is one row of texts, with the target that a decoder writes."""
    kind = rows.kind
    if not kind.labels_texts or kind.stored_as is not kind:
        return False
    if not kind.key_columns:
        return True
    name = rows.task.label_column
    if name not in rows.raw.column_names:
        return False
    return bool(labelled_rows(rows.raw.with_format("numpy")[name][:]).all())


def _rows(group: OutputGroup) -> EntryRows:
    rows, recipe = group.loaded, group.places[-1].stage.recipe
    keys, written = output_keys(rows.task, rows.raw), rows.kind.key_columns
    ids = np.full(int(keys.examples.max()) + 1, -1, dtype=np.int64)
    ids[keys.examples] = keys.ids
    # As a user's own file calls them, or as the task does.
    named, own = tuple(recipe.text_columns or ()), rows.task.text_columns
    places = [str(recipe.data), *map(str, recipe.unlabelled)]
    identity = RowsIdentity(
        count=len(group.rows),
        fingerprint=digest_of_ids(ids),
        source=tuple(place for place in places if not is_reference(place)),
        columns=((named if len(named) == len(own) else own) + tuple(written)),
        target=bool(written),
    )
    tokenizer = digest_of_tokenizer(group.collator.tokenizer)
    read_by: dict[str, Any] = {"tokenizer": tokenizer, "max_length": rows.max_length}
    if written:  # its prompts begin with it
        read_by["task"] = rows.task.name
    return EntryRows(ids, identity, rows.task.labels, read_by)
