"""The last of a run: its answers on dev, and the student that it leaves. Part of `limbeck.run`."""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np

from limbeck.agreement import is_first
from limbeck.reporting.records import Numbers, write_whole
from limbeck.run.prepared import Prepared
from limbeck.run.run_folder import RunFolder
from limbeck.training import DistillationTrainer


def ship(trainer: DistillationTrainer, folder: RunFolder) -> None:
    """Write the student, whole or not at all: a student folder that is there is complete."""
    shutil.rmtree(folder.unshipped, ignore_errors=True)
    trainer.save_model(str(folder.unshipped))
    folder.ship()


def predict(
    prepared: Prepared, trainer: DistillationTrainer, folder: RunFolder
) -> dict[str, Numbers]:
    """Score the best epoch's student on every dev split and keep its answers."""
    scores: dict[str, Numbers] = {}
    answers: dict[str, dict[str, list[Any]]] = {}
    for split in prepared.task.dev_splits:
        if split not in prepared.dev:
            continue
        output = trainer.predict(prepared.dev[split].encoded)
        found = prepared.results(split, np.asarray(output.predictions))
        scores[split], answers[split] = dict(found.scores), found.answers
    if is_first():
        write_whole(folder.predictions, json.dumps(answers))
    return scores
