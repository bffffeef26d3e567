"""What a finished run puts into its record about its models and its cost. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from limbeck import evaluation
from limbeck.activations import Passes
from limbeck.data import CORPUS
from limbeck.evaluation import flops_of, latencies
from limbeck.outputs import CachedTeacher
from limbeck.recipe import Stage
from limbeck.records import Cost, ModelFacts, Numbers, Record, StageFacts, TeacherFacts
from limbeck.run.prepared import Prepared
from limbeck.run.stage_inputs import StageInputs
from limbeck.training import DistillationTrainer
from limbeck.training.progress import PassesState


def model_facts(
    prepared: Prepared, scores: dict[str, Numbers]
) -> tuple[ModelFacts, TeacherFacts | None]:
    """Size, FLOPs and latency of student and teacher, in turns on one example of mean length.

    Of several teachers the one that students are held against; `scores` are its own.
    """
    models: dict[str, PreTrainedModel] = {"student": prepared.student}
    if prepared.teacher is not None:
        models["teacher"] = prepared.teacher
    size = prepared.example_size()
    times = latencies(models, size, batch_size=1)
    facts = {
        name: evaluation.model_facts(model, size, latency_ms=times[name])
        for name, model in models.items()
    }
    if prepared.teacher is None:
        return facts["student"], None
    path = prepared.named[prepared.reference].path
    own = facts["teacher"].model_dump()
    return facts["student"], TeacherFacts(**own, path=path, scores=scores)


def add_draws(record: Record) -> None:
    """How often each of several teachers that take turns taught, from the epochs' counts."""
    for member in record.team.members if record.team is not None else ():
        if record.team is not None and record.team.use == "sample":
            member.sampled = sum(epoch.sampled.get(member.name, 0) for epoch in record.epochs)


@dataclass(frozen=True)
class Spent:
    """What one stage has measured, kept when its trainer is gone."""

    inputs: StageInputs
    epochs: list[dict[str, Any]]
    seconds: dict[str, float]
    steps: int
    examples: float
    """That the student was trained on, every pass counted."""
    passes: PassesState
    """What student and teachers were run on."""
    embeddings: int | None = None
    """Word embeddings that were trained, where those of words in no row were left out."""

    @classmethod
    def by(cls, trainer: DistillationTrainer, inputs: StageInputs) -> Spent:
        """Read off a trainer that is done."""
        return cls(
            inputs,
            list(trainer.progress.epochs),
            trainer.progress.stopwatch.read(),
            trainer.state.global_step,
            trainer.progress.examples(trainer.training_rows),
            trainer.passes(),
            trainer.embeddings_trained,
        )

    @property
    def teacher_seconds(self) -> float:
        """Of training, while the teacher ran."""
        return self.seconds.get("teacher", 0.0)

    @property
    def training_seconds(self) -> float:
        """Of the epochs, dev scores not counted."""
        return sum(entry["seconds"] for entry in self.epochs)


def stage_facts(spent: Spent, prepared: Prepared) -> StageFacts:
    """What a stage trained on, and its FLOPs."""
    stage, rows = spent.inputs.stage, spent.inputs.rows
    return StageFacts(
        stage=stage.number,
        task=stage.recipe.task if stage.corpus is None else CORPUS.name,
        data=stage.recipe.data if stage.corpus is None else stage.corpus.source,
        rows=len(rows.encoded),
        tokens=rows.mean_tokens,
        truncated=rows.truncated,
        without_outputs=spent.inputs.without_outputs,
        teacher=_named(stage),
        steps=spent.steps,
        student_examples=spent.examples,
        embeddings_trained=spent.embeddings,
        student_flops=flops_of(prepared.student, Passes.of(spent.passes["student"])),
        teacher_flops=_teacher_flops(spent, prepared),
        seconds=spent.training_seconds,
    )


def _named(stage: Stage) -> str | None:
    if not stage.recipe.needs_teacher:
        return None
    several = stage.recipe.outputs
    if stage.recipe.team is not None:
        several = several or stage.recipe.teachers
    return ", ".join(several) if several else stage.recipe.teacher


def _teacher_flops(spent: Spent, prepared: Prepared) -> float:
    """Of a stage's live passes, and of those that stored a teacher's outputs for the run.

    A store that stages share counts in the first of them.
    """
    before = {
        id(member)
        for inputs in prepared.stages[: spent.inputs.stage.number - 1]
        for member in inputs.members
    }
    total = 0
    for member, live in zip(spent.inputs.members, spent.passes["teachers"], strict=True):
        total += flops_of(member.model, Passes.of(live))
        if isinstance(member, CachedTeacher) and member.fresh and id(member) not in before:
            total += flops_of(member.model, Passes.of([*member.entry.outputs.passes]))
    return total


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
