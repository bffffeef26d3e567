"""What a checkpoint holds beside the weights, and when it counts as one. Part of `limbeck.training`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import nn
from transformers.training_args import ParallelMode

from limbeck.support.errors import LimbeckError
from limbeck.support.machine import wait_for_all
from limbeck.training import checkpoints, trainer_privates
from limbeck.training.checkpoints import generators, read_state, restore_generators, write_state
from limbeck.training.feeding import SendsBatches


class Resumes(SendsBatches):
    """A Trainer whose checkpoints are sealed, and whose state is never pickled."""

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; `resume_from_checkpoint=True` is the last whole one of `output_dir`.

        Raises:
            LimbeckError: a checkpoint that is damaged, not whole, or pickled.
        """
        if missing := trainer_privates.missing():
            raise LimbeckError(
                f"this version of transformers trains otherwise (no {', '.join(missing)})",
                "install a version that limbeck names in its requirements",
            )
        if resume_from_checkpoint is True:
            found = checkpoints.last_whole(str(self.args.output_dir))
            if found is None:
                raise LimbeckError(
                    f"there is no whole checkpoint in {self.args.output_dir}",
                    "train without resume_from_checkpoint",
                )
            resume_from_checkpoint = str(found)
        if resume_from_checkpoint:
            checkpoints.require_whole(resume_from_checkpoint)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial))
        # The Trainer would delete older ones before this one is sealed.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        wait_for_all()  # each process writes its generators
        if self.args.should_save:
            checkpoints.seal(folder / f"checkpoint-{self.state.global_step}")
            checkpoints.rotate(folder, limit, self.state.best_model_checkpoint)

    # ---- optimiser, schedule, scaler ----

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self._elsewhere:
            super()._save_optimizer_and_scheduler(output_dir)
        elif self.args.should_save:
            folder = Path(output_dir)
            assert self.optimizer is not None and self.lr_scheduler is not None  # trained with
            write_state(folder / checkpoints.OPTIMIZER, self.optimizer.state_dict())
            write_state(folder / checkpoints.SCHEDULER, self.lr_scheduler.state_dict())

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        if self._elsewhere:
            raise LimbeckError(
                "DeepSpeed's and FSDP's own checkpoints are pickled, and are not continued from",
                "train in one go, or with plain data parallelism",
            )
        folder = Path(checkpoint)
        # With save_only_model they are not there.
        if (folder / checkpoints.OPTIMIZER).is_file():
            assert self.optimizer is not None and self.lr_scheduler is not None  # just made
            self.optimizer.load_state_dict(read_state(folder / checkpoints.OPTIMIZER))
            self.lr_scheduler.load_state_dict(read_state(folder / checkpoints.SCHEDULER))

    def _save_scaler(self, output_dir: str) -> None:
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is not None and self.args.should_save:
            write_state(Path(output_dir) / checkpoints.SCALER, scaler.state_dict())

    def _load_scaler(self, checkpoint: str | None) -> None:
        scaler = getattr(self.accelerator, "scaler", None)
        path = Path(checkpoint or "") / checkpoints.SCALER
        if scaler is not None and path.is_file():
            scaler.load_state_dict(read_state(path))

    @property
    def _elsewhere(self) -> bool:
        """Whether a library writes what is spread over the processes in a way of its own."""
        return self.is_deepspeed_enabled or self.is_fsdp_enabled

    # ---- generators ----

    def _save_rng_state(self, output_dir: str) -> None:
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        write_state(self._generators_in(output_dir), generators(self._sees_every_device))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        # Continued by another number of processes, some of them have none.
        if checkpoint is not None and (path := self._generators_in(checkpoint)).is_file():
            restore_generators(read_state(path), self._sees_every_device)

    def _generators_in(self, folder: str) -> Path:
        own = "" if self.args.world_size <= 1 else f"_{self.args.process_index}"
        return Path(os.fspath(folder)) / f"{checkpoints.GENERATORS}{own}.safetensors"

    @property
    def _sees_every_device(self) -> bool:
        return self.args.parallel_mode == ParallelMode.DISTRIBUTED
