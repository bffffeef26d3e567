"""Checkpoints: the wrapper's raw state and the run's progress, and which of them are whole.

Part of `limbeck.engine`. Stock saving and loading goes through `from_pretrained`, which restores a
ViT only partly and fails on T5's shared tensors; raw state does neither.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_model, save_model
from torch import nn
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

WEIGHTS = "distiller.safetensors"
PROGRESS = "progress.json"
LAST_WRITTEN = "trainer_state.json"
# What the Trainer reads when it resumes, besides its own state.
_PARTS = (WEIGHTS, PROGRESS, "optimizer.pt", "scheduler.pt")


def save(folder: str | Path, model: nn.Module, progress: dict[str, Any]) -> None:
    """Write weights and progress.

    The Trainer adds optimiser, scheduler, generators and, last, its own state.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    # A folder that is written again is not whole until its last file is back.
    (path / LAST_WRITTEN).unlink(missing_ok=True)
    save_model(model, str(path / WEIGHTS))
    (path / PROGRESS).write_text(json.dumps(progress), encoding="utf-8")


def load_weights(folder: str | Path, model: nn.Module) -> None:
    """Every weight of the wrapper, or an error."""
    load_model(model, str(Path(folder) / WEIGHTS), strict=True)


def load_progress(folder: str | Path) -> dict[str, Any]:
    """What `save` was given."""
    return json.loads((Path(folder) / PROGRESS).read_text(encoding="utf-8"))


def last_whole(folder: str | Path) -> Path | None:
    """The newest checkpoint that was written to its end and not begun to be deleted."""
    found = [
        (int(path.name.rsplit("-", 1)[1]), path)
        for path in Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
        if path.name.rsplit("-", 1)[1].isdigit() and _is_whole(path)
    ]
    return max(found)[1] if found else None


def _is_whole(path: Path) -> bool:
    try:
        json.loads((path / LAST_WRITTEN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    parts = all((path / name).is_file() for name in _PARTS)
    return parts and any(path.glob("rng_state*.pth"))
