"""Trains a run's stages, one after the other. Part of `limbeck.run`."""

import gc
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase, PrinterCallback

from limbeck.run.prepared import TEST, Prepared, SplitsToScore, StageInputs
from limbeck.run.run_folder import RunFolder
from limbeck.static import StaticStudent
from limbeck.static.formats import bare_tokenizer
from limbeck.students.four_bits import trained_in_four_bits
from limbeck.support.machine import is_first, wait_for_all
from limbeck.training import DistillationTrainer, Patience, reporting, training_arguments
from limbeck.training.callbacks import CheckpointEvery, Display
from limbeck.training.checkpoints import last_whole
from limbeck.training.progress import Parts, PassesState


@dataclass(frozen=True)
class Spent:
    """The measurements of one stage, kept when its trainer is gone."""

    inputs: StageInputs
    epochs: list[dict[str, Any]]
    seconds: dict[str, float]
    steps: int
    examples: float
    """That the student was trained on, every pass counted."""
    passes: PassesState
    """What student and teachers were run on."""
    embeddings: int | None = None
    """Word embeddings that were trained, if embeddings of unused words were left out."""

    @classmethod
    def by(cls, trainer: DistillationTrainer, inputs: StageInputs) -> "Spent":
        """Read off a trainer that is done."""
        return cls(
            inputs,
            list(trainer.progress.epochs),
            trainer.progress.stopwatch.read(),
            trainer.state.global_step,
            trainer.progress.examples(trainer.training_rows),
            trainer.passes(),
            trainer.embeddings_trained,
        )


@dataclass(frozen=True)
class Trained:
    """A run whose stages are trained.

    Attributes:
        prepared: the run that was trained.
        trainer: of the last stage, its best epoch loaded.
        spent: the cost of each stage.
    """

    prepared: Prepared
    trainer: DistillationTrainer
    spent: tuple[Spent, ...]

    @property
    def splits_to_score(self) -> SplitsToScore:
        """All that the run is scored on: the dev splits, then test rows where there are some."""
        dev, final = self.prepared.dev, self.prepared.final
        return dev if final is None else {**dev, TEST: final.when_trained(self)}


def train_stages(prepared: Prepared, folder: RunFolder, parts: Parts, *, show: bool) -> Trained:
    """One stage after the other."""
    *before, last = prepared.stages
    spent = []
    for inputs in before:
        trainer = train_stage(inputs, prepared, folder, parts, show=show)
        spent.append(Spent.by(trainer, inputs))
        if prepared.recipe.keep_first_stage:
            with parts.part("saving"):
                if is_first():
                    write_student(trainer, folder, prepared)
                    folder.ship(folder.first_stage)
                wait_for_all()
        del trainer
        # A trainer and its callbacks hold each other; its optimiser need not wait for the next.
        gc.collect()
    trainer = train_stage(last, prepared, folder, parts, show=show)
    return Trained(prepared, trainer, (*spent, Spent.by(trainer, last)))


def train_stage(
    inputs: StageInputs, prepared: Prepared, folder: RunFolder, parts: Parts, *, show: bool
) -> DistillationTrainer:
    """Train the student through one stage, or load an earlier start's result.

    A stage has its own optimiser, and the learned parts of its terms end with it.
    """
    stage, recipe = inputs.stage, inputs.recipe
    # A first stage's checkpoints stay until the run has finished; every stage counts its steps from 0.
    part = "" if stage.last else "first_stage"
    checkpoints, name = folder.checkpoints / part, folder.path.resolve().name
    display = Display(prepared.recipe, shown=show, stage=stage)
    trainer = DistillationTrainer(
        prepared.student,
        inputs.teacher,
        training_arguments(
            recipe,
            checkpoints,
            select=stage.last,
            name=f"{name}/{part}".rstrip("/"),
            scored_at_once=prepared.task.kind.scored_at_once,
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
    four_bits = prepared.recipe.student.embedding_bits is not None
    try:
        told = prepared.recipe.model_dump(mode="json")
        rounding = trained_in_four_bits(trainer.student) if four_bits else nullcontext()
        with reporting(trainer, recipe.report_to, folder.events / part, told), rounding:
            trainer.start_or_continue(last_whole(checkpoints))
    finally:
        display.close()
    return trainer


def write_student(trainer: DistillationTrainer, folder: RunFolder, prepared: Prepared) -> None:
    """Write the student, and its tokenizer or processor, to the folder where it waits to be shipped."""
    shutil.rmtree(folder.unshipped, ignore_errors=True)
    processor, kind = prepared.tokenizer, prepared.task.kind
    # Whoever loads the student cuts texts where its scores were measured; a language model is trained further.
    if isinstance(processor, PreTrainedTokenizerBase) and not kind.language_model:
        processor.model_max_length = kind.scored_length(prepared.recipe.max_length)
    kind.ship_with(trainer.student.config, prepared.task)
    trainer.save_model(str(folder.unshipped))
    if isinstance(trainer.student, StaticStudent):  # its reader has no other place for the limit
        bare_tokenizer(processor).save(str(folder.unshipped / "tokenizer.json"))
