"""The end of a run: its predictions, and the student that it leaves. Part of `limbeck.run`."""

from __future__ import annotations

import json
import logging
import shutil
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from limbeck.records import Numbers, write_whole
from limbeck.run.final_rows import SplitsToScore
from limbeck.run.prepared import Prepared
from limbeck.run.run_folder import RunFolder
from limbeck.support.machine import is_first, wait_for_all
from limbeck.tasks import MASKED, Task
from limbeck.tasks.text import PROMPT, prompt_of
from limbeck.tasks.thresholds import THRESHOLDS
from limbeck.training import DistillationTrainer

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
    if kind.classes_as_text:
        setattr(trainer.student.config, PROMPT, prompt_of(prepared.task))
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
    if not (task.kind.constant and task.labels):
        return
    given = {task.kind.named(task, one) for one in predictions.get("prediction", ())}
    if len(given) != 1 or len({task.kind.named(task, one) for one in predictions["label"]}) < 2:
        return
    log.warning(
        "the student answers all %d rows of %s with %r: it has learned no more than that class's share; train "
        "longer, at another rate, or on more rows",
        len(predictions["label"]), split, given.pop(),
    )  # fmt: skip
