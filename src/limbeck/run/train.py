"""Trains a run's stages, one after the other. Part of `limbeck.run`."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from transformers import PrinterCallback

from limbeck.run.final_rows import TEST, SplitsToScore
from limbeck.run.measurements import Spent
from limbeck.run.prepared import Prepared
from limbeck.run.run_folder import RunFolder
from limbeck.run.shipping import ship_first_stage
from limbeck.run.stage_inputs import StageInputs
from limbeck.training import (
    DistillationTrainer,
    Patience,
    reporting,
    training_arguments,
)
from limbeck.training.callbacks import CheckpointEvery, Display
from limbeck.training.progress import Parts


@dataclass(frozen=True)
class Trained:
    """A run whose stages are trained.

    Attributes:
        prepared: what they were trained on.
        trainer: of the last stage, its best epoch loaded.
        spent: what each stage has cost.
    """

    prepared: Prepared
    trainer: DistillationTrainer
    spent: tuple[Spent, ...]

    @property
    def splits_to_score(self) -> SplitsToScore:
        """All that the run is scored on: the dev splits, then test rows where there are some."""
        dev, final = self.prepared.dev_rows, self.prepared.final
        if final is None:
            return dev
        return SplitsToScore(
            {**dev.rows, TEST: final.when_trained(self)},
            {**dev.fingerprints, TEST: final.fingerprint},
        )


def train_stages(prepared: Prepared, folder: RunFolder, parts: Parts, *, show: bool) -> Trained:
    """One stage after the other."""
    *before, last = prepared.stages
    spent = []
    for inputs in before:
        trainer = train_stage(inputs, prepared, folder, parts, show=show)
        spent.append(Spent.by(trainer, inputs))
        if prepared.recipe.keep_first_stage:
            with parts.part("saving"):
                ship_first_stage(trainer, folder, prepared)
        del trainer
        # A trainer and its callbacks hold each other; its optimiser need not wait for the next.
        gc.collect()
    trainer = train_stage(last, prepared, folder, parts, show=show)
    return Trained(prepared, trainer, (*spent, Spent.by(trainer, last)))


def train_stage(
    inputs: StageInputs,
    prepared: Prepared,
    folder: RunFolder,
    parts: Parts,
    *,
    show: bool,
) -> DistillationTrainer:
    """Train the student through one stage, or load what an earlier start made of it.

    A stage has its own optimiser, and the learned parts of its terms end with it.
    """
    stage, recipe = inputs.stage, inputs.recipe
    display = Display(prepared.recipe, shown=show, stage=stage)
    trainer = DistillationTrainer(
        prepared.student,
        inputs.teacher,
        training_arguments(
            recipe,
            folder.checkpoints_of(stage),
            select=stage.last,
            name=folder.name_of(stage),
        ),
        holdout=inputs.holdout,
        train_dataset=inputs.rows.encoded,
        eval_dataset=prepared.selecting,
        data_collator=inputs.collator(prepared.tokenizer),
        processing_class=prepared.tokenizer,
        compute_metrics=prepared.compute_metrics,
        callbacks=[display],
    )
    trainer.progress.parts = parts
    trainer.remove_callback(PrinterCallback)
    if recipe.patience is not None:
        trainer.add_callback(Patience(recipe.patience, recipe.select_by))
    if recipe.checkpoint_steps is not None:
        trainer.add_callback(CheckpointEvery(recipe.checkpoint_steps))
    try:
        with reporting(
            trainer,
            recipe.trackers,
            folder.events_of(stage),
            prepared.recipe.model_dump(mode="json"),
        ):
            trainer.start_or_continue(folder.last_checkpoint(stage))
    finally:
        display.close()
    return trainer
