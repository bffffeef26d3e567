"""What of a trainer others get to see: the student, written like any model, here or on the Hub.

Part of `limbeck.training`.
"""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel, Trainer
from transformers.trainer_utils import HubStrategy


class PublishesStudents(Trainer):
    """A Trainer that trains more than it ships: checkpoints hold all, what is published the student."""

    student: PreTrainedModel

    def save_checkpoint(self, folder: str) -> None:
        """Write what a checkpoint has to hold."""
        raise NotImplementedError

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the student, and its tokenizer or image processor, by `save_pretrained`.

        Inside a checkpoint: the whole wrapper and the progress.
        """
        # The Trainer calls it without a folder too, for what it is going to push.
        if _internal_call and output_dir is not None:
            self.save_checkpoint(str(output_dir))
            return
        self._write_student(str(output_dir or self.args.output_dir))
        if self.args.push_to_hub and not _internal_call:
            revision = getattr(self.args, "hub_revision", None)
            self.push_to_hub(commit_message="Model save", revision=revision)

    def _write_student(self, folder: str) -> None:
        if not self.args.should_save:
            return
        self.student.save_pretrained(folder)
        processor: Any = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if processor is not None:
            processor.save_pretrained(folder)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        # The Trainer would copy a model out of the checkpoint, which holds the wrapper.
        if self.args.hub_strategy != HubStrategy.END:
            self._write_student(str(self.args.output_dir))
        super()._push_from_checkpoint(checkpoint_folder)
