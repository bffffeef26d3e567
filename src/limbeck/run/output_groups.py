"""Which teachers are asked about the same rows, in which stages, and for what. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset, LargeList, List
from torch import Tensor

from limbeck.activations import Request, token_mask
from limbeck.data import Collator, batches_of
from limbeck.data.row_facts import facts_of
from limbeck.objectives import Objectives
from limbeck.outputs import Ask, Lengths, RememberingTeacher
from limbeck.outputs.stored_teacher import StoredTeacher
from limbeck.recipe import Stage
from limbeck.run.prepared import Prepared
from limbeck.run.stage_inputs import StageInputs
from limbeck.run.stage_objectives import objectives_of
from limbeck.run.stage_passes import length_of
from limbeck.run.stage_rows import EncodedRows
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TaskType
from limbeck.teachers import Team
from limbeck.teachers.teacher import Teacher

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
        return self.share * length_of(self.stage.recipe, rows)


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
            if isinstance(teacher, StoredTeacher):
                continue
            built = built or objectives_of(inputs, prepared.student)
            objectives = built.of(place.number)
            assert inputs.teacher is not None  # one of its members is asked
            asked = inputs.teacher.asks(objectives.ever("teacher"))
            wanted = Ask(asked, objectives.differences("teacher").items)
            reason = _refusal(stage, teacher, objectives, rows.kind) or _too_many(rows)
            if reason is not None and prepared.recipe.cache == "always":
                raise LimbeckError(f"cache: always, but {reason}", "set cache to auto or never")
            if (
                isinstance(teacher, RememberingTeacher)
                and rows.kind.resampled
                and rows.kind.constant
            ):
                raise LimbeckError(
                    f"live_teacher: it remembers its outputs, but {rows.kind.resampled} are sampled "
                    "again in every epoch",
                    "pass Teacher.load(…), or set images.crop=0 and images.flip=false",
                )
            if reason is not None and asked != Request():
                live(place, reason)
            if reason is not None or isinstance(teacher, RememberingTeacher):
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
    if isinstance(teacher, Team):
        for number, (name, share) in enumerate(zip(teacher.names, teacher.shares, strict=True)):
            yield StagePlace(stage, number, name, float(share)), teacher.members[number]
    elif teacher is not None:
        yield StagePlace(stage, 0, "", 1.0), teacher


def _too_many(rows: EncodedRows) -> str | None:
    """A pass over very many rows, only to store the teacher's outputs, would come before the first step."""
    if facts_of(rows.encoded).encoded:
        return None
    return (
        f"of {len(rows.encoded):,} training rows each batch is encoded, and asked about, in its turn; "
        "cache=always encodes and stores all of them first"
    )


def _refusal(stage: Stage, teacher: Teacher, objectives: Objectives, kind: TaskType) -> str | None:
    """Why a stage's teacher outputs on rows of a task type cannot be stored, if they cannot."""
    transform = stage.recipe.transform
    if transform is not None and transform.why_live is not None:
        return f"{transform.why_live} ({transform.name})"
    if teacher.dropout:
        return "the teacher's dropout is on (teacher_dropout)"
    if kind.resampled:
        return f"{kind.resampled} are sampled again in every epoch"
    asked = objectives.ever("teacher")
    if not asked.items and not asked.logits:
        return "no term asks the teacher anything"
    if objectives.sees_padding:
        return f"what stands at padding counts in {', '.join(objectives.sees_padding)}"
    return None
