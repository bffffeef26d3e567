"""Where each stage's teacher outputs come from: the live model, or its stored outputs.

Part of `limbeck.run`. Stages that learn from one teacher on the same rows share a pass.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset, LargeList, List
from torch import Tensor

from limbeck.activations import Request, token_mask
from limbeck.data import Collator, batches_of, row_facts, row_ids
from limbeck.outputs import cache
from limbeck.outputs.building import StoringQuestion, stored_if_it_pays
from limbeck.outputs.columns import Ask, Lengths
from limbeck.outputs.key import digest_of_ids, digest_of_tokenizer, fingerprint
from limbeck.outputs.manifest import EntryAbout, EntryRows, RowsIdentity
from limbeck.recipe import Recipe, Stage
from limbeck.records.facts import Execution
from limbeck.run.check import objectives_of
from limbeck.run.prepared import Prepared
from limbeck.run.rows import EncodedRows
from limbeck.support import given, machine, terminal
from limbeck.support.errors import LimbeckError
from limbeck.tasks.abstract_type import labelled_rows
from limbeck.teachers.teacher import Teacher
from limbeck.training.teacher_cache import wanted_of, why_live

# Without gradients there is room for more rows than in training.
_ROWS = 64


_GIB = 2**30


class _Place(NamedTuple):
    """A teacher's place in a stage: its stage, its number and name in the stage's team, its share of the steps."""

    stage: Stage
    number: int
    name: str
    share: float

    @property
    def key(self) -> str:
        """Its name in the record: the stage, and the teacher if there are several."""
        return f"{self.stage.number}{self.name and f' {self.name}'}"


@dataclass
class _Storable:
    """One teacher that sees the same rows in every epoch, in one stage or in several.

    Attributes:
        teacher: the live one.
        rows: as it reads them, and `collator`: makes batches of them.
        loaded: the rows as they were loaded.
        wanted: all activations that training may request of it.
        places: the stages and team members where it is used.
    """

    teacher: Teacher
    rows: Dataset
    collator: Collator
    loaded: EncodedRows
    wanted: Ask
    places: list[_Place]

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

    def question(self, recipe: Recipe, setting: str | None) -> StoringQuestion:
        """Whether its outputs are to be stored; `setting` demands it."""
        self.teacher.to(machine.device())
        inputs, place = self.teacher.inputs, self.places[-1]
        # As this teacher reads them: the other teachers' columns are irrelevant to it.
        read = self.rows if inputs is None else inputs.of_rows(self.rows)
        epochs = (one.share * one.stage.recipe.passes_over(len(self.rows)) for one in self.places)
        own = place.stage.recipe
        return StoringQuestion(
            teacher=self.teacher,
            wanted=self.wanted,
            precision=recipe.precision,
            key=fingerprint(self.teacher.model, read, self.wanted, recipe.precision),
            lengths=self.lengths,
            batches=self.batches,
            passes=sum(epochs),
            limit=recipe.cache_limit * _GIB,
            setting=setting,
            about=EntryAbout(
                place.name or str(own.teacher),
                own.task,
                partial(_rows, self) if _are_rows(self.loaded) else None,
            ),
            title=f"teacher cache, {place.name}" if place.name else "teacher cache",
        )


def with_stored_outputs(
    prepared: Prepared, *, show: bool, keep: Callable[[Execution], None] = lambda execution: None
) -> Prepared:
    """The run with stored outputs instead of its teachers if that saves time.

    An earlier start's decision (`prepared.execution`) stays. `keep` is given each store's description
    before it is stored, so that the run is known to have paid for it however it ends.

    Raises:
        LimbeckError: `cache: always` where outputs cannot be stored.
    """
    console = terminal.messages(shown=show)
    recipe, execution = prepared.recipe, prepared.execution
    answers, stored = dict(execution.teacher_outputs), list(execution.stored)
    asked, reasons = _storable(prepared)
    for place, reason in reasons if recipe.cache == "auto" else ():
        whose = f" of {place.name}" if place.name else ""
        terminal.print_line(console, f"teacher outputs{whose} are not stored: {reason}")

    def starting(key: str) -> None:
        stored.append(key)
        keep(execution.model_copy(update={"teacher_outputs": answers, "stored": stored}))

    found = defaultdict[int, dict[int, Teacher]](dict)
    for one in asked:
        keys = [place.key for place in one.places]
        before = {answers.get(key) for key in keys}
        teacher = None
        if recipe.cache != "never" and before != {"live"}:
            demanded = recipe.cache == "always" or before == {"stored"}
            teacher = stored_if_it_pays(
                one.question(recipe, "cache: always" if demanded else None),
                cache.default_store(),
                ours=stored,
                starting=starting,
                say=partial(console.print, highlight=False),
                watching=partial(terminal.bars, console),
            )
        answers |= dict.fromkeys(keys, "live" if teacher is None else "stored")
        if teacher is not None:
            for place in one.places:
                found[place.stage.number][place.number] = teacher
    stages = (inputs.answered_from(found[inputs.stage.number]) for inputs in prepared.stages)
    # Unless it is left to the run, stored outputs are not expected.
    because = {place.key: reason for place, reason in reasons if recipe.cache == "auto"}
    update = {"teacher_outputs": answers, "stored": stored, "live_because": because}
    done = execution.model_copy(update=update)
    return replace(prepared, stages=tuple(stages), execution=done)


def _storable(prepared: Prepared) -> tuple[list[_Storable], list[tuple[_Place, str]]]:
    """Whose outputs may be stored, those about the same rows together; and whose cannot be, with the reason.

    Raises:
        LimbeckError: `cache: always` where they cannot be.
    """
    groups: dict[tuple[int, bool], _Storable] = {}
    reasons: list[tuple[_Place, str]] = []
    for inputs in prepared.stages:
        stage, rows, team = inputs.stage, inputs.rows, inputs.teacher
        if team is None or not any(member.live for member in team.members):
            continue
        built = objectives_of(inputs, prepared.student)
        for number, teacher in enumerate(team.members):
            if not teacher.live:
                continue
            place = _Place(stage, number, team.names[number], float(team.shares[number]))
            objectives = built.of(number)
            wanted = wanted_of(team, objectives)
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
                reasons.append((place, reason))
            if reason is not None or teacher.remembers:
                continue
            encoded, collator = rows.encoded, rows.collator(prepared.tokenizer)
            if teacher.own_tokens is not None:
                encoded, collator = teacher.own_tokens.rows, teacher.own_tokens.collate
            one = _Storable(teacher, encoded, collator, rows, wanted, [place])
            known = groups.get((id(teacher.model), stage.same_rows))
            if known is not None:
                one.wanted, one.places = known.wanted | wanted, [*known.places, place]
            groups[id(teacher.model), stage.same_rows] = one
    return list(groups.values()), reasons


def _too_many(rows: EncodedRows) -> str | None:
    """A pass over very many rows, only to store the teacher's outputs, would come before the first step."""
    if row_facts.facts_of(rows.encoded).encoded:
        return None
    return (
        f"{len(rows.encoded):,} training rows are encoded, and labeled by the teacher, batch by batch; "
        "cache=always encodes and stores all of them first"
    )


def seconds_stored_before(prepared: Prepared, before: Execution) -> float:
    """The cost, in an earlier start of the run, of stored outputs that this one has found."""
    made_now = prepared.execution.stored[len(before.stored) :]
    members = [member for inputs in prepared.stages for member in inputs.members]
    found = {one.entry.key: one.built_seconds for one in members if one.entry is not None}
    earlier = set(before.stored) - set(made_now)
    return sum(seconds for key, seconds in found.items() if key in earlier)


# The ids of the rows in a training's stored outputs, by content: so that other runs can use
# them too.


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


def _rows(group: _Storable) -> EntryRows:
    rows, recipe = group.loaded, group.places[-1].stage.recipe
    keys, written = row_ids.output_keys(rows.task, rows.raw), rows.kind.key_columns
    ids = np.full(int(keys.examples.max()) + 1, -1, dtype=np.int64)
    ids[keys.examples] = keys.ids
    # As a user's own file calls them, or as the task does.
    named, own = tuple(recipe.text_columns or ()), rows.task.text_columns
    places = [str(recipe.data), *map(str, recipe.unlabelled)]
    identity = RowsIdentity(
        count=len(group.rows),
        fingerprint=digest_of_ids(ids),
        source=tuple(place for place in places if not given.is_reference(place)),
        columns=((named if len(named) == len(own) else own) + tuple(written)),
        target=bool(written),
    )
    tokenizer = digest_of_tokenizer(group.collator.tokenizer)
    read_by: dict[str, Any] = {"tokenizer": tokenizer, "max_length": rows.max_length}
    if written:  # its prompts begin with it
        read_by["task"] = rows.task.name
    return EntryRows(ids, identity, rows.task.labels, read_by)
