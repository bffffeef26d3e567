"""What a finished run puts into its record about its models and its cost. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from limbeck import evaluation
from limbeck.cache import CachedTeacher
from limbeck.data import CORPUS
from limbeck.engine import DistillationTrainer
from limbeck.evaluation import Size, latencies
from limbeck.recipe import Stage
from limbeck.records import Cost, ModelFacts, Numbers, Record, StageFacts, TeacherFacts
from limbeck.run.assemble import Assembly
from limbeck.teachers import Teacher
from limbeck.teams import Drawn, Team, members_of

# A backward pass computes two products for each one of the forward pass.
_TRAINING_OVER_FORWARD = 3


def model_facts(
    assembly: Assembly, scores: dict[str, Numbers]
) -> tuple[ModelFacts, TeacherFacts | None]:
    """Size, FLOPs and latency of student and teacher, in turns on one example of mean length.

    Of several teachers the one that students are held against; `scores` are its own.
    """
    models: dict[str, PreTrainedModel] = {"student": assembly.student}
    if assembly.teacher is not None:
        models["teacher"] = assembly.teacher
    size = assembly.example_size()
    times = latencies(models, size, batch_size=1)
    facts = {
        name: evaluation.model_facts(model, size, latency_ms=times[name])
        for name, model in models.items()
    }
    if assembly.teacher is None:
        return facts["student"], None
    path = assembly.named[assembly.reference].path
    own = facts["teacher"].model_dump()
    return facts["student"], TeacherFacts(**own, path=path, scores=scores)


def add_draws(record: Record) -> None:
    """How often each of several teachers that take turns taught, from the epochs' counts."""
    for member in record.team.members if record.team is not None else ():
        if record.team is not None and record.team.use == "draw":
            member.drawn = sum(epoch.drawn.get(member.name, 0) for epoch in record.epochs)


@dataclass(frozen=True)
class Spent:
    """What one stage has measured, kept when its trainer is gone."""

    stage: Stage
    epochs: list[dict[str, Any]]
    seconds: dict[str, float]
    steps: int
    examples: float
    """That the student was trained on, every pass counted."""

    @classmethod
    def by(cls, trainer: DistillationTrainer, stage: Stage, assembly: Assembly) -> Spent:
        """Read off a trainer that is done."""
        args, state = trainer.args, trainer.state
        batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        rows = len(assembly.rows_of(stage).encoded)
        return cls(
            stage,
            list(trainer.progress.epochs),
            trainer.progress.stopwatch.read(),
            state.global_step,
            min(state.global_step * batch, (state.epoch or 0) * rows),
        )

    def shares(self, team: Teacher | Team | None) -> list[float]:
        """The part of all steps in which each teacher was asked."""
        if not isinstance(team, Drawn):
            return [1.0] * len(members_of(team))
        drawn = [sum(e["drawn"].get(name, 0) for e in self.epochs) for name in team.names]
        return [count / max(sum(drawn), 1) for count in drawn]

    @property
    def teacher_seconds(self) -> float:
        """Of training, while the teacher answered."""
        return self.seconds.get("teacher", 0.0)

    @property
    def training_seconds(self) -> float:
        """Of the epochs, dev scores not counted."""
        return sum(entry["seconds"] for entry in self.epochs)


def stage_facts(spent: Spent, assembly: Assembly) -> StageFacts:
    """What a stage trained on, and its FLOPs."""
    stage, rows = spent.stage, assembly.rows_of(spent.stage)
    # Text of its own has a length of its own; otherwise the run's, that of its facts.
    size, tokens = assembly.example_size(), rows.mean_tokens
    if tokens is not None and not stage.same_rows:
        size = max(round(tokens), 1)
    student = _TRAINING_OVER_FORWARD * evaluation.flops_per_example(assembly.student, size)
    return StageFacts(
        stage=stage.number,
        task=stage.recipe.task if stage.corpus is None else CORPUS.name,
        data=stage.recipe.data if stage.corpus is None else stage.corpus.source,
        rows=len(rows.encoded),
        tokens=tokens,
        truncated=rows.truncated,
        teacher=_named(stage),
        steps=spent.steps,
        student_examples=spent.examples,
        student_flops=student * spent.examples,
        teacher_flops=_teacher_flops(spent, assembly, size),
        seconds=spent.training_seconds,
    )


def _named(stage: Stage) -> str | None:
    if not stage.recipe.needs_teacher:
        return None
    several = stage.recipe.teachers if stage.recipe.team is not None else None
    return ", ".join(several) if several else stage.recipe.teacher


def _teacher_flops(spent: Spent, assembly: Assembly, size: Size) -> float:
    team = assembly.teacher_of(spent.stage)
    shares = spent.shares(team)
    return sum(
        evaluation.flops_per_example(member.model, size)
        * _answered_live(spent, assembly, place, shares[place])
        for place, member in enumerate(members_of(team))
    )


def _answered_live(spent: Spent, assembly: Assembly, place: int, share: float) -> float:
    """Examples a teacher was run on; a pass that stages share counts in the first of them."""
    own = (spent.stage.number, place)
    stored = assembly.stored.get(own)
    if not isinstance(stored, CachedTeacher):
        return spent.examples * share
    first = min(key for key, teacher in assembly.stored.items() if teacher is stored)
    return stored.fresh if first == own else 0


def cost(
    spent: Sequence[Spent], stages: Sequence[StageFacts], seconds: Mapping[str, float]
) -> Cost:
    """Seconds and FLOPs of all stages; `seconds` are those of the run by part (`engine.parts`)."""
    # On an accelerator the teacher's time is the device's own, which may lie outside the host's.
    answering = min(sum(part.teacher_seconds for part in spent), seconds["training"])
    return Cost(
        total_seconds=sum(seconds.values()),
        student_seconds=seconds["training"] - answering,
        teacher_seconds=seconds["storing"] + answering,
        evaluation_seconds=seconds["evaluation"],
        preparation_seconds=seconds["preparation"],
        team_seconds=seconds["teams"],
        measuring_seconds=seconds["measuring"],
        saving_seconds=seconds["saving"],
        student_flops=sum(facts.student_flops or 0 for facts in stages),
        teacher_flops=sum(facts.teacher_flops or 0 for facts in stages),
        student_examples=sum(part.examples for part in spent),
    )
