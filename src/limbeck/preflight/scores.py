"""Is the teacher worth learning from: its dev score against the best constant answer.

Part of `limbeck.preflight`. A recorded score is believed; without one the teacher is measured once,
on a sample of dev.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from scipy.optimize import linear_sum_assignment
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.capture import Request
from limbeck.data import Collator, Task, encode
from limbeck.errors import LimbeckError, Problem
from limbeck.teachers import Teacher

_SAMPLE = 512
_BATCH = 32


@dataclass(frozen=True)
class TeacherScore:
    """A primary dev score, 0 to 100, and where it comes from (for messages)."""

    value: float
    origin: str


def constant_baseline(task: Task, labels: np.ndarray) -> tuple[float, str]:
    """The best primary score, 0 to 100, of always giving one answer, and that answer.

    For accuracy this is the majority class. For F1 it may be another one, which a useful teacher
    must beat as well. A constant has no correlation with anything: regression gives 0.

    Raises LimbeckError when there are no labels.
    """
    labels = np.asarray(labels)
    if len(labels) == 0:
        raise LimbeckError(f"task {task.name!r}: there are no labels", "check the split")
    if task.regression:
        return 0.0, "the mean"
    scores = []
    for number, name in enumerate(task.labels):
        constant = np.zeros((len(labels), len(task.labels)))
        constant[:, number] = 1.0
        scores.append((task.scores(constant, labels)["primary"], name))
    return max(scores, key=lambda entry: entry[0])


def recorded_score(path: str | Path | None, task: Task) -> TeacherScore | None:
    """The primary dev score in the `record.json` of, or above, a teacher's folder.

    None without a folder, a readable record, or a score on this task.
    """
    # A Hub name is no folder: what lies beside the working directory is none of its business.
    if path is None or not Path(path).is_dir():
        return None
    for folder in (Path(path), Path(path).parent):
        record = _read_record(folder / "record.json")
        if record is None:
            continue
        score = (record.get("scores") or {}).get(task.dev_splits[0], {}).get("primary")
        if record.get("task") == task.name and isinstance(score, int | float):
            return TeacherScore(float(score), f"recorded in {folder / 'record.json'}")
        return None
    return None


def _read_record(path: Path) -> Mapping | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    # Another program's record.json, or a folder's parent that holds something else.
    return record if isinstance(record, dict) and "schema" in record else None


@dataclass(frozen=True)
class Answers:
    """A teacher's predictions [n, outputs] on rows of dev with labels [n], and which rows."""

    predictions: np.ndarray
    labels: np.ndarray
    origin: str


def ask_teacher(
    task: Task,
    teacher: PreTrainedModel | Teacher,
    tokenizer: PreTrainedTokenizerBase,
    dev: Dataset,
    max_length: int,
    *,
    rows: int = _SAMPLE,
) -> Answers:
    """The teacher's predictions on at most `rows` evenly spaced rows of dev.

    Raises LimbeckError when the rows cannot be encoded or the teacher has no head.
    """
    asked = teacher if isinstance(teacher, Teacher) else Teacher(teacher)
    count = min(rows, len(dev))
    chosen = dev.select(np.linspace(0, len(dev) - 1, count).round().astype(int).tolist())
    encoded, _ = encode(chosen, task, tokenizer, max_length)
    collate = Collator(tokenizer)
    predictions = []
    for start in range(0, count, _BATCH):
        batch = collate([encoded[row] for row in range(start, min(start + _BATCH, count))])
        logits = asked(batch, Request.of_logits()).logits
        if logits is None:
            raise LimbeckError("teacher: it gave no logits", "use a teacher with a task head")
        predictions.append(logits.to("cpu", torch.float32).numpy())
    part = "dev" if count == len(dev) else f"{count} rows of dev"
    labels = np.asarray(encoded["labels"][:])
    return Answers(np.concatenate(predictions), labels, f"measured on {part}")


def measured_score(task: Task, answers: Answers) -> TeacherScore:
    """The primary score of a teacher's answers.

    Raises LimbeckError when they are not finite or do not fit the task.
    """
    scores = task.scores(answers.predictions, answers.labels)
    return TeacherScore(scores["primary"], answers.origin)


def check_class_order(task: Task, answers: Answers) -> list[Problem]:
    """Classes that would fit the labels much better in another order: answers tell, names may not.

    The best renaming is the assignment with the most agreements. It is reported when it gains more
    than three standard errors of an accuracy of one half, and beats the majority class by as much,
    so not for a teacher that guesses or always gives one answer.
    """
    if task.regression:
        return []
    classes, count = len(task.labels), len(answers.labels)
    table = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(table, (answers.predictions.argmax(axis=1), answers.labels.astype(np.int64)), 1)
    predicted, meant = linear_sum_assignment(table, maximize=True)
    now, renamed = np.trace(table) / count, table[predicted, meant].sum() / count
    majority = table.sum(axis=0).max() / count
    if renamed - max(now, majority) <= 3 * np.sqrt(0.25 / count):
        return []
    order = ", ".join(
        f"its class {number} means {task.labels[name]!r}"
        for number, name in zip(predicted.tolist(), meant.tolist(), strict=True)
    )
    return [
        Problem(
            f"teacher: its classes are in another order than the data's: {order} "
            f"(accuracy {100 * renamed:.1f} instead of {100 * now:.1f}, "
            f"{answers.origin})",
            "reorder the rows of its head and id2label, or fine-tune it on this data",
        )
    ]


def check_teacher_score(task: Task, score: TeacherScore, labels: np.ndarray) -> list[Problem]:
    """A teacher no better than always giving one answer, on the rows with these `labels`.

    A score above by less than chance explains (three standard errors of an accuracy of one half, or
    of a correlation of zero) is a warning: an untrained regression head rarely scores exactly 0.
    """
    baseline, answer = constant_baseline(task, labels)
    noise = 100 * 3 * (1.0 if task.regression else 0.5) / np.sqrt(len(labels))
    if score.value > baseline + noise:
        return []
    better = score.value > baseline
    verdict = "hardly better" if better else "no better"
    return [
        Problem(
            f"teacher: its dev score {score.value:.1f} ({score.origin}) is {verdict} than always "
            f"answering {answer!r} ({baseline:.1f}; {task.primary} on {len(labels)} rows)",
            f"fine-tune the teacher on {task.name} first, check the order of its classes, or give "
            "another one",
            "warning" if better else "error",
        )
    ]
