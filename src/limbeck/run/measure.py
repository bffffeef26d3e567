"""What a finished run puts into its record about its models and its cost. Part of `limbeck.run`."""

from __future__ import annotations

from transformers import PreTrainedModel

from limbeck import evaluation
from limbeck.engine import DistillationTrainer
from limbeck.errors import LimbeckError
from limbeck.evaluation import latencies
from limbeck.records import Cost, ModelFacts, Record, TeacherFacts
from limbeck.run.assemble import Assembly

# A backward pass computes two products for each one of the forward pass.
_TRAINING_OVER_FORWARD = 3


def model_facts(
    assembly: Assembly, teacher_path: str | None
) -> tuple[ModelFacts, TeacherFacts | None]:
    """Size, FLOPs and latency of student and teacher, in turns on one example of mean length."""
    models: dict[str, PreTrainedModel] = {"student": assembly.student}
    if assembly.teacher is not None:
        models["teacher"] = assembly.teacher
    tokens = assembly.mean_tokens()
    times = latencies(models, tokens, batch_size=1)
    facts = {
        name: evaluation.model_facts(model, tokens, latency_ms=times[name])
        for name, model in models.items()
    }
    if assembly.teacher is None:
        return facts["student"], None
    scores = recorded_scores(teacher_path)
    own = facts["teacher"].model_dump()
    return facts["student"], TeacherFacts(**own, path=teacher_path, scores=scores)


def recorded_scores(run: str | None) -> dict[str, dict[str, float | None]]:
    """The scores a run folder's record holds; empty where there is none."""
    if run is None:
        return {}
    try:
        return Record.load(run).scores
    except LimbeckError:
        return {}


def cost(
    trainer: DistillationTrainer,
    record: Record,
    *,
    total_seconds: float,
    uses_teacher: bool,
) -> Cost:
    """Seconds and FLOPs, split into teacher and student."""
    seconds = trainer.progress.stopwatch.read()
    training = sum(entry["seconds"] for entry in trainer.progress.epochs)
    args = trainer.args
    seen = min(
        trainer.state.global_step * args.train_batch_size * args.gradient_accumulation_steps,
        (trainer.state.epoch or 0) * (record.examples.train or 0),
    )
    student = record.student.flops_per_example or 0
    teacher = (record.teacher.flops_per_example or 0) if record.teacher and uses_teacher else 0
    teacher_seconds = seconds.get("teacher", 0.0)
    return Cost(
        total_seconds=total_seconds,
        student_seconds=training - teacher_seconds,
        teacher_seconds=teacher_seconds,
        evaluation_seconds=seconds.get("evaluation", 0.0),
        student_flops=_TRAINING_OVER_FORWARD * student * seen,
        teacher_flops=teacher * seen,
    )
