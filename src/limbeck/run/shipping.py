"""The end of a run: its predictions, and the student that it leaves. Part of `limbeck.run`."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.activations import Passes
from limbeck.data import CORPUS
from limbeck.evaluation import measuring
from limbeck.evaluation.measuring import flops_of, latencies
from limbeck.recipe import Stage
from limbeck.records import Record
from limbeck.records.facts import Cost, ModelFacts, Numbers, StageFacts, TeacherFacts
from limbeck.run.prepared import Prepared, SplitsToScore, StageInputs
from limbeck.run.run_folder import RunFolder
from limbeck.support.files import write_whole
from limbeck.support.machine import is_first, wait_for_all
from limbeck.tasks import MASKED, Task
from limbeck.tasks.rules import THRESHOLDS
from limbeck.training import DistillationTrainer
from limbeck.training.progress import PassesState

log = logging.getLogger(__name__)


def ship(trainer: DistillationTrainer, folder: RunFolder, prepared: Prepared) -> None:
    """Write the student, whole or not at all: a student folder that is there is complete."""
    _write(trainer, folder, prepared)
    folder.ship()


def ship_first_stage(trainer: DistillationTrainer, folder: RunFolder, prepared: Prepared) -> None:
    """The same of the student as it is after its first stage, whose trainer this is."""
    if is_first():
        _write(trainer, folder, prepared)
        folder.ship_first_stage()
    wait_for_all()


def _write(trainer: DistillationTrainer, folder: RunFolder, prepared: Prepared) -> None:
    shutil.rmtree(folder.unshipped, ignore_errors=True)
    processor, kind = prepared.tokenizer, prepared.task.kind
    # Whoever loads the student cuts texts where its scores were measured; a language model is trained further.
    if isinstance(processor, PreTrainedTokenizerBase) and kind is not MASKED:
        processor.model_max_length = kind.scored_length(prepared.recipe.max_length)
    kind.ship_with(trainer.student.config, prepared.task)
    trainer.save_model(str(folder.unshipped))


def predict(
    prepared: Prepared, trainer: DistillationTrainer, scored: SplitsToScore, folder: RunFolder
) -> tuple[dict[str, Numbers], dict[str, dict[str, list[Any]]]]:
    """Score the best epoch's student on every split and keep its predictions; both by split.

    Where thresholds are tuned, those of the first split are the student's from here on.
    """
    scores: dict[str, Numbers] = {}
    predictions: dict[str, dict[str, list[Any]]] = {}
    trainer.compute_metrics = None  # it scores the rows that select, and these may be others
    for split, rows in scored.rows.items():
        output = trainer.predict(rows.encoded)
        found = prepared.results(rows, np.asarray(output.predictions))
        if found.thresholds:
            prepared = prepared.deciding_by(found.thresholds)
            setattr(trainer.student.config, THRESHOLDS, [*found.thresholds])
        scores[split], predictions[split] = dict(found.scores), found.predictions
        _warn_of_one_answer(prepared.task, split, found.predictions)
    if is_first():
        write_whole(folder.predictions, json.dumps(predictions))
    return scores, predictions


def _warn_of_one_answer(task: Task, split: str, predictions: dict[str, list[Any]]) -> None:
    """Say of a classifier that it answers every row alike: its score, high or not, is its class's share."""
    if not task.labels or task.kind.problem_of(task.regression) is None:
        return
    given = {task.kind.named(task, one) for one in predictions.get("prediction", ())}
    if len(given) != 1 or len({task.kind.named(task, one) for one in predictions["label"]}) < 2:
        return
    log.warning(
        "the student answers all %d rows of %s with %r: it has learned no more than that class's share; train "
        "longer, at another rate, or on more rows",
        len(predictions["label"]), split, given.pop(),
    )  # fmt: skip


# What a finished run puts into its record about its models and its cost.


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
        name: measuring.model_facts(model, size, latency_ms=times[name])
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
        found: float = sum(entry["seconds"] for entry in self.epochs)
        return found


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
        if member.fresh and id(member) not in before:
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
