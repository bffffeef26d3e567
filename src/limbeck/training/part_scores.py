"""What decides between teachers, and between whole trainings: one score, the higher the better.

Part of `limbeck.training`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import TrainingArguments

from limbeck.support.errors import LimbeckError, Problem
from limbeck.teachers.teacher import Teacher
from limbeck.training.method import unscored
from limbeck.training.running_trainer import StagedTrainer


def score_of_teacher(trainer: StagedTrainer, member: Teacher) -> float:
    """On the evaluation data, as the student is scored."""
    args = unscored(trainer.args)
    args.output_dir = str(trainer.folder / "teachers")
    args.report_to = []
    frozen = [weight.requires_grad for weight in member.model.parameters()]
    hard = {"hard": {"compare": "hard_label"}}
    changes: dict[str, Any] = {"objectives": hard, "callbacks": []}
    if member.inputs is not None:
        changes["data_collator"] = lambda rows: dict(member.as_read(trainer.data_collator(rows)))
    part = trainer.for_part(member.model, None, args, None, **changes)
    found = score(part.evaluate(), trainer.args)
    for weight, before in zip(member.model.parameters(), frozen, strict=True):
        weight.requires_grad_(before)
    return found


def score(metrics: Mapping[str, float], args: TrainingArguments) -> float:
    """By `metric_for_best_model`, or the loss; the higher the better.

    Raises:
        LimbeckError: it was not computed.
    """
    name = args.metric_for_best_model or "loss"
    key = name if name.startswith("eval_") else f"eval_{name}"
    if key not in metrics:
        raise LimbeckError(
            f"args.metric_for_best_model: {name} is not among the scores "
            f"({', '.join(found.removeprefix('eval_') for found in metrics)})",
            "name one that compute_metrics returns",
        )
    higher = args.greater_is_better if args.metric_for_best_model else False
    return metrics[key] if higher else -metrics[key]


def unscorable(trainer: StagedTrainer, members: Sequence[Teacher], by: str) -> list[Problem]:
    """Why teachers cannot be ranked by their scores, before any of them is."""
    if trainer.eval_dataset is None:
        return [
            Problem(
                f"team.by: {by} ranks by scores, and there is nothing to score on",
                "pass eval_dataset=, or say the shares: "
                "Recipe.load(METHOD, **{'team.by': [3, 2, 1]})",
            )
        ]
    if by != "student-rank" and any(_reads_otherwise(member) for member in members):
        return [
            Problem(
                f"team.by: {by} scores teachers on the student's tokens, and one reads its own",
                "say the shares: Recipe.load(METHOD, **{'team.by': [3, 2, 1]})",
            )
        ]
    if isinstance(trainer.eval_dataset, dict) and not trainer.args.metric_for_best_model:
        return [
            Problem(
                f"team.by: {by} ranks by one score, and there are several evaluation sets",
                "name it: TrainingArguments(metric_for_best_model=…)",
            )
        ]
    return []


def _reads_otherwise(member: Teacher) -> bool:
    columns = member.inputs is not None and bool(member.inputs.own)
    return columns or member.own_tokens is not None
