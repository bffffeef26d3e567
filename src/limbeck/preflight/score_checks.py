"""Whether the teacher is useful: its dev score against the best constant prediction.

Part of `limbeck.preflight`. A score recorded on the same rows is believed; without one the teacher
is measured once, on a sample of dev.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from scipy.optimize import linear_sum_assignment
from scipy.stats import binomtest
from transformers import PreTrainedModel

from limbeck.activations import Request
from limbeck.data import Collator, batches_of, encode
from limbeck.support import manifest, plain
from limbeck.support.errors import LimbeckError, Problem, problem_list
from limbeck.tasks import Processor, ScoredSplit, Task, as_array, join, metrics
from limbeck.teachers.teacher import Teacher

_SAMPLE = 512
# The metrics, in a teacher's own record, that compare it with its own teacher.
_OF_ITS_TEACHER = (metrics.TEACHER_AGREEMENT, metrics.TEACHER_KL)
_BATCH = 32
# Significance level of the test against always making one prediction.
_CHANCE = 0.01


def recorded_scores(
    path: str | Path | None, task: Task, fingerprints: Mapping[str, str]
) -> tuple[dict[str, dict[str, float | None]], Path] | None:
    """A teacher's recorded scores, and where, of those splits that hold the very rows of its record.

    `fingerprints`: by split the value of `rows_fingerprint`. A record of an earlier version has
    no fingerprints, so that none of its scores counts. None as `teacher_record`.
    """
    found = teacher_record(path, task)
    if found is None:
        return None
    record, place = found
    scores = record.get("scores") or {}
    known = (record.get("examples") or {}).get("fingerprints") or {}
    same = {
        split: {name: value for name, value in scores[split].items() if name not in _OF_ITS_TEACHER}
        for split, fingerprint in fingerprints.items()
        if split in scores and known.get(split) == fingerprint
    }
    return same, place


def teacher_record(path: str | Path | None, task: Task) -> tuple[Mapping[str, Any], Path] | None:
    """The content of the `record.json` of, or above, a teacher's folder, and its place.

    None without a folder, a readable record, or where it is of another task.
    """
    # A Hub name is no folder: a folder of that name in the working directory is irrelevant.
    if path is None or not Path(path).is_dir():
        return None
    for folder in (Path(path), Path(path).parent):
        record = _read_record(folder / "record.json")
        if record is not None:
            own = record.get("task") == task.name
            return (record, folder / "record.json") if own else None
    return None


def _read_record(path: Path) -> Mapping[str, Any] | None:
    try:
        record = manifest.verified(
            plain.read_json(path.read_bytes(), str(path), constant=lambda _: None), path
        )
    except (OSError, LimbeckError):
        return None
    # Another program's record.json, or a folder's parent that holds something else.
    return record if isinstance(record, dict) and "schema" in record else None


@dataclass(frozen=True)
class TeacherOutputs:
    """A teacher's predictions [n, outputs] on rows of dev with labels [n], and which rows.

    `scores` are all their scores, 0 to 100; `by_row` the predictions and the labels, as the task type keeps them;
    `thresholds` for several labels per row; `rows` the rows themselves, if they are known.
    """

    predictions: np.ndarray
    labels: Sequence[Any] | np.ndarray
    origin: str
    scores: Mapping[str, float] = field(default_factory=dict)
    by_row: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    thresholds: tuple[float, ...] = ()
    rows: Dataset | None = None


def ask_teacher(
    task: Task,
    teacher: PreTrainedModel | Teacher,
    tokenizer: Processor,
    dev: Dataset,
    max_length: int,
    *,
    rows: int = _SAMPLE,
) -> TeacherOutputs:
    """The teacher's predictions on at most `rows` evenly spaced rows of dev.

    Raises LimbeckError when the rows cannot be encoded, the teacher has no head, or its predictions are
    not finite or do not fit the task.
    """
    asked = teacher if isinstance(teacher, Teacher) else Teacher(teacher)
    if task.kind.of_teacher(asked.model.config) is not task.kind:
        raise LimbeckError(
            "teacher: a cross-encoder gives no embeddings to score", "score it as kind=pair-score"
        )
    chosen = task.kind.spread_rows(task, dev, rows)
    count = len(chosen)
    encoded, _ = encode(chosen, task, tokenizer, task.kind.scored_length(max_length))
    collate = Collator(tokenizer, kind=task.kind)
    predictions = []
    for batch in batches_of(encoded, collate, _BATCH, asked.device):
        logits = asked(batch, Request.of_logits()).logits
        if logits is None:
            raise LimbeckError("teacher: it gave no logits", "use a teacher with a task head")
        with torch.no_grad():
            outputs = task.kind.compact_outputs(asked.model, batch, logits)
        predictions.append(as_array(outputs))
    joined = join(predictions)
    found = task.kind.results(task, joined, ScoredSplit(encoded, chosen, tokenizer))
    return TeacherOutputs(
        joined,
        chosen[task.label_column][:],
        "measured on dev" if count == len(dev) else f"measured on {count} rows of dev",
        found.scores,
        found.predictions,
        found.thresholds,
        chosen,
    )


@problem_list
def check_class_order(
    task: Task,
    outputs: TeacherOutputs,
    *,
    side: str = "teacher",
    fix: str = "reorder the rows of its head and id2label, or fine-tune it on this data",
) -> Iterator[Problem]:
    """Classes that would fit the labels much better in another order: predictions show it, names may not.

    The best renaming is the assignment with the most agreements; where a row may be of several classes, that with the
    highest mean correlation of a logit with a label. It is reported when it gains more than three standard errors of
    an accuracy of one half, or of a correlation of zero, and beats the majority class by as much: so not for a teacher
    that guesses or always makes one prediction.
    """
    count = len(outputs.labels)
    if task.kind.row_layout == "several labels":
        logits = np.asarray(outputs.predictions, dtype=np.float64)
        table = correlations(logits, np.asarray(outputs.labels, np.float64)) / logits.shape[1]
        noise, least, named, unit = 3.0, -1.0, "mean correlation with the labels", ".2f"
    elif task.one_class:
        table = np.zeros((len(task.labels), len(task.labels)))
        answers = outputs.predictions.argmax(axis=1), np.asarray(outputs.labels)
        np.add.at(table, answers, 100 / count)
        noise, least, named, unit = 150.0, table.sum(axis=0).max(), "accuracy", ".1f"
    else:
        return
    given, meant = linear_sum_assignment(table, maximize=True)
    now, renamed = np.trace(table), table[given, meant].sum()
    if renamed - max(now, least) <= noise / np.sqrt(count):
        return
    order = ", ".join(
        f"its class {number} means {task.labels[name]!r}"
        for number, name in zip(given.tolist(), meant.tolist(), strict=True)
        if number != name
    )
    yield Problem(
        f"{side}: its classes are in another order than the data's: {order} ({named} {renamed:{unit}} instead of "
        f"{now:{unit}}, {outputs.origin})",
        fix,
    )


@problem_list
def check_teacher_score(
    task: Task,
    score: float,
    origin: str,
    labels: Sequence[Any] | np.ndarray,
    *,
    side: str = "teacher",
    rows: Dataset | None = None,
) -> Iterator[Problem]:
    """A teacher whose `score` is no better than always making one prediction, on the rows with these `labels`.

    `origin`: where the score comes from, for messages. `rows`: the rows, if the constant prediction's score
    depends on more than their labels.

    A score above by less than chance explains (an accuracy by the binomial distribution, others by three standard
    errors of a share of one half or of a correlation of zero) is a warning: an untrained regression head rarely
    scores exactly 0.
    """
    if rows is None:
        baseline, answer = task.kind.baseline(task, labels)
    else:
        baseline, answer = task.kind.baseline_of_rows(task, rows)
    of_numbers = all(
        metrics.plain_metric(name) in metrics.CORRELATIONS for name in task.primary.split("+")
    )
    better = score > baseline
    if metrics.plain_metric(task.primary) == "accuracy":
        share, count = min(baseline / 100, 1.0), task.kind.predictions_of(labels)
        chance = binomtest(round(score / 100 * count), count, share, alternative="greater").pvalue
        told, most = chance < _CHANCE, share**count >= _CHANCE
    else:
        noise = 100 * 3 * (1.0 if of_numbers else 0.5) / np.sqrt(len(labels))
        told, most = score > baseline + noise, baseline + noise >= 100
    if better and told:
        return
    if metrics.is_agreement(task.primary):  # its score is 100: it agrees with itself
        fix = "give more rows, or rows with other predictions, as data; or another teacher"
        texts = f"{len(labels)} held-out texts"
        if better:
            few = f"too few to distinguish agreement with it from always predicting {answer!r}"
            yield Problem(f"{side}: {texts} are {few} ({baseline:.1f})", fix, "note")
        else:
            alike = f"it predicts {answer!r} for all {texts}"
            yield Problem(f"{side}: {alike}, so a constant student agrees with it completely", fix)
        return
    if better and most:
        yield Problem(
            f"{side}: {len(labels)} rows of dev are too few to distinguish its score of {score:.1f} from "
            f"always predicting {answer!r} ({baseline:.1f}; {task.primary})",
            "give more dev rows, or take the score as it is",
            "note",
        )
        return
    verdict = "no better"
    if better:
        tested = metrics.plain_metric(task.primary) == "accuracy"
        verdict = "not significantly better" if tested else "hardly better"
    order = ", check the order of its classes," if task.labels else ""
    yield Problem(
        f"{side}: its dev score {score:.1f} ({origin}) is {verdict} than always "
        f"predicting {answer!r} ({baseline:.1f}; {task.primary} on {len(labels)} rows)",
        f"fine-tune the teacher on {task.name} first{order} or give another one",
        "warning" if better else "error",
    )


def correlations(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Pearson's of each column of the logits with each of the labels (C, C); 0 where one of them is constant."""
    sides = [side - side.mean(axis=0) for side in (logits, labels)]
    spread = [np.sqrt((side**2).sum(axis=0)) for side in sides]
    product = spread[0][:, None] * spread[1][None]
    found: np.ndarray = sides[0].T @ sides[1] / np.where(product > 0, product, 1)
    return found
