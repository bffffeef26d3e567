"""The predictions that a run keeps of the splits it was scored on. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.manifest import Manifest
from limbeck.plain import read_json

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
