"""The trackers' runs that a stage reports to, by their ids: a stage that is continued goes on with the same ones.

Part of `limbeck.training`. transformers' callbacks report to a run that is open already, so W&B's and MLflow's are
opened before them; which run it was is kept beside the stage's checkpoints.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.support.files import write_whole
from limbeck.support.plain import read_json, read_text
from limbeck.training.checkpoints import TRACKER_RUNS


class _TrackerRuns(ABC):
    """How one tracker's runs are known and opened again; `module` is its own.

    Attributes:
        variable: the environment variable by which a user chooses a run.
        places: environment variables that say where its runs lie: an id of another place is none.
    """

    variable: ClassVar[str]
    places: ClassVar[tuple[str, ...]]

    @abstractmethod
    def open_id(self, module: Any) -> str | None:
        """The id of the run that is open in this process."""

    @abstractmethod
    def go_on(self, module: Any, known: str, name: str | None) -> None:
        """Open the run of an id."""


class _WandbRuns(_TrackerRuns):
    variable = "WANDB_RUN_ID"
    places = ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_BASE_URL")

    def open_id(self, module: Any) -> str | None:
        return None if module.run is None else str(module.run.id)

    def go_on(self, module: Any, known: str, name: str | None) -> None:
        # As transformers' callback does; an id in the environment would be that of all of this process's runs.
        project = os.environ.get("WANDB_PROJECT", "huggingface")
        module.init(project=project, name=name, id=known, resume="allow")


class _MlflowRuns(_TrackerRuns):
    variable = "MLFLOW_RUN_ID"
    places = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME")

    def open_id(self, module: Any) -> str | None:
        run = module.active_run()
        return None if run is None else str(run.info.run_id)

    def go_on(self, module: Any, known: str, name: str | None) -> None:
        # Another experiment, of an earlier run of this process, would be refused.
        if experiment := os.environ.get("MLFLOW_EXPERIMENT_NAME"):
            module.set_experiment(experiment)
        module.start_run(run_id=known)


_TRACKERS: dict[str, _TrackerRuns] = {"wandb": _WandbRuns(), "mlflow": _MlflowRuns()}


class ContinuedRuns(TrainerCallback):
    """Opens the runs that an earlier start of a stage reported to, and writes down which ones are open.

    A run that the user names (`WANDB_RUN_ID`, `MLFLOW_RUN_ID`) or has opened is left as it is. It has to stand before
    the trackers' own callbacks.

    Args:
        folder: the stage's checkpoints.
        names: of trackers.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.path = folder / TRACKER_RUNS
        self.names = [name for name in names if name in _TRACKERS and _is_ours(name)]
        self.written = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Go on with the runs that are known."""
        known = self._known()
        for name in self.names if state.is_world_process_zero else ():
            run = known.get(name)
            if run is not None and run["place"] == _place(name):
                _TRACKERS[name].go_on(import_module(name), run["id"], args.run_name)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """All trackers are open by the first step."""
        if self.written or not state.is_world_process_zero:
            return
        self.written = True
        known = self._known()
        runs = known | {
            name: {"id": found, "place": _place(name)}
            for name in self.names
            if (found := _open_id(name)) is not None
        }
        if runs != known:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps(runs, indent=1) + "\n")

    def _known(self) -> dict[str, dict[str, Any]]:
        return read_json(read_text(self.path), str(self.path)) if self.path.is_file() else {}


def _is_ours(name: str) -> bool:
    """Whether the run will be one that limbeck opens, of no id that the user chose."""
    return _TRACKERS[name].variable not in os.environ and _open_id(name) is None


def _open_id(name: str) -> str | None:
    module = sys.modules.get(name)
    return None if module is None else _TRACKERS[name].open_id(module)


def _place(name: str) -> dict[str, str]:
    """Where a tracker's runs lie, as far as the environment says."""
    return {one: os.environ[one] for one in _TRACKERS[name].places if one in os.environ}
