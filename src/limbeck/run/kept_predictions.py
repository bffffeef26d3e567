"""The predictions that a run keeps of the splits it was scored on. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.preflight import recorded_scores
from limbeck.support.errors import LimbeckError
from limbeck.support.manifest import Manifest
from limbeck.support.plain import read_json
from limbeck.tasks import Task

PREDICTIONS_NAME = "predictions.json"


def kept_predictions(run: Path, split: str) -> Mapping[str, Sequence[Any]] | None:
    """A split's predictions by row, as the run's task type keeps them; None where there are none, or damaged ones."""
    manifest = Manifest.read(run)
    if manifest is None or manifest.damaged(run, PREDICTIONS_NAME):
        return None
    try:
        kept = read_json((run / PREDICTIONS_NAME).read_bytes(), PREDICTIONS_NAME)[split]
        same = len(kept["prediction"]) == len(kept["label"])
    except (OSError, LimbeckError, KeyError, TypeError):
        return None
    return kept if same else None


def kept_by_its_run(
    path: str, task: Task, split: str, fingerprint: str
) -> Mapping[str, Sequence[Any]] | None:
    """What the run that made a model predicted on the very same rows of a split, undamaged."""
    found = recorded_scores(path, task, {split: fingerprint})
    if found is None or split not in found[0]:
        return None
    return kept_predictions(found[1].parent, split)
