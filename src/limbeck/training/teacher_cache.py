"""Cached outputs for a trainer's teachers: `cache_teacher_outputs`. Part of `limbeck.training`."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from limbeck.activations import token_mask
from limbeck.data.encoding import batches_of
from limbeck.input_transforms import InputTransform
from limbeck.objectives import Objectives
from limbeck.outputs import cache, key
from limbeck.outputs.building import StoringQuestion, stored_if_it_pays
from limbeck.outputs.columns import INDEX, Ask, Lengths
from limbeck.outputs.manifest import EntryAbout
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TaskType
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import Team
from limbeck.training.step import TakesSteps

# Without gradients there is room for more rows than in training.
_ROWS = 64
_GIB = 2**30


def answering_once(trainer: TakesSteps, mode: str, gib: float) -> Teacher | Team | None:
    """A trainer's teacher or team, with outputs cached as `cache_teacher_outputs`, the `mode`, requires.

    Args:
        trainer: its teachers are run on its training rows.
        mode: of keeping them.
        gib: of all entries of the store, at most.

    Raises:
        LimbeckError: outputs cannot be cached, although `memory` or `disk` requires it.
    """
    teacher = trainer.teacher
    if mode == "off" or teacher is None:
        return teacher
    members = list(teacher.members)
    for place, member in enumerate(teacher.members):
        if member.remembers or not member.live:
            continue
        objectives, disk = trainer.objectives.of(place), mode != "memory"
        wanted = wanted_of(teacher, objectives)
        reason = why_live(member, objectives, trainer.transform, trainer.kind, disk=disk)
        reason = reason or _unfit_rows(trainer, member, disk=disk)
        if reason is None and not disk:
            pools = {key.pool for key in wanted.request.items if key.pool is not None}
            members[place] = RememberingTeacher(member, tuple(sorted(pools)))
        elif reason is None:
            question = _question(trainer, member, wanted, mode, gib)
            members[place] = stored_if_it_pays(question, cache.default_store()) or member
        elif mode != "auto":
            raise LimbeckError(
                f"cache_teacher_outputs={mode}: {reason}",
                "set it to auto, which asks live then, or off",
            )
    return teacher.answered_by(members)


def wanted_of(teacher: Teacher | Team, objectives: Objectives) -> Ask:
    """Everything that terms may request from a teacher, or from a member of a team."""
    asked = teacher.asks(objectives.ever("teacher"))
    return Ask(asked, objectives.differences("teacher").items)


def why_live(
    teacher: Teacher,
    objectives: Objectives,
    transform: InputTransform | None,
    kind: TaskType,
    *,
    disk: bool = True,
) -> str | None:
    """Why a teacher's outputs about rows of a task type cannot be kept for these terms, if they cannot."""
    if transform is not None and transform.why_live is not None:
        return f"{transform.why_live} ({transform.name})"
    if teacher.dropout:
        return "the teacher's dropout is on (teacher_dropout)"
    if kind.resampled:
        return f"{kind.resampled} are sampled again in every epoch"
    asked = objectives.ever("teacher")
    if not asked.items and not asked.logits:
        return "no term asks the teacher anything"
    if disk and objectives.sees_padding:
        return f"padding counts in {', '.join(objectives.sees_padding)}"
    return None


def _unfit_rows(trainer: TakesSteps, member: Teacher, *, disk: bool) -> str | None:
    """Why outputs cannot be cached for a trainer's own rows, or None."""
    if not isinstance(trainer.train_dataset, Dataset):
        return "the training rows are no datasets.Dataset"
    one, other = (next(_Rows.of(trainer, member).batches(range(8))) for _ in "12")
    if INDEX not in one:
        return f"the collator leaves the column {INDEX} out of its batches"
    if one.keys() != other.keys() or any(not torch.equal(one[n], other[n]) for n in one):
        return "the collator makes other inputs of a row each time"
    if disk and trainer.args.fp16:
        return "outputs are stored in fp32 or bf16, and training is in fp16"
    return None


@dataclass(frozen=True)
class _Rows:
    """The training rows as a teacher is given them."""

    rows: Any
    collate: Any
    member: Teacher

    @classmethod
    def of(cls, trainer: TakesSteps, member: Teacher) -> "_Rows":
        if member.own_tokens is not None:
            return cls(member.own_tokens.rows, member.own_tokens.collate, member)
        return cls(*trainer.readable(trainer.train_dataset), member)

    def batches(self, order: Any) -> Iterator[dict[str, Tensor]]:
        """Batches of the rows at these places, on the teacher's device."""
        places = [place for place in order if place < len(self.rows)]
        yield from batches_of(self.rows, self.collate, _ROWS, self.member.device, order=places)

    def looked_through(self) -> tuple[str, Lengths]:
        """A digest of all inputs as they are collated, whatever makes them, and how long each is."""
        digest = hashlib.blake2b(digest_size=16)
        main: list[int] = []
        decoder: list[int] = []
        for batch in self.batches(range(len(self.rows))):
            for name in sorted(batch):
                value = batch[name].cpu().contiguous()
                digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
                digest.update(value.flatten().view(torch.uint8).numpy().data)
            main += token_mask(self.member.model, batch).sum(1).tolist()
            if (labels := batch.get("labels")) is not None and labels.dim() == 2:
                decoder += (labels != -100).sum(1).tolist()
        lengths = np.array(main)
        return digest.hexdigest(), {"main": lengths, "decoder": np.array(decoder or main)}


def _question(
    trainer: TakesSteps, member: Teacher, wanted: Ask, mode: str, gib: float
) -> StoringQuestion:
    rows = _Rows.of(trainer, member)
    precision = "bf16" if trainer.args.bf16 else "fp32"
    inputs, lengths = rows.looked_through()
    digest = Dataset.from_dict({"inputs": [inputs]})
    return StoringQuestion(
        teacher=member,
        wanted=wanted,
        precision=precision,
        key=key.fingerprint(member.model, digest, wanted, precision),
        lengths=lengths,
        batches=rows.batches,
        passes=trainer.args.num_train_epochs,
        limit=gib * _GIB,
        setting=None if mode == "auto" else f"cache_teacher_outputs={mode}",
        about=EntryAbout(),
    )
