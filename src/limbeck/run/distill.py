"""`distill(recipe)`: one run from recipe to shipped student, resumable at any point.

Part of `limbeck.run`.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PrinterCallback, set_seed

from limbeck.data import Collator
from limbeck.engine import DistillationTrainer, Patience, tensorboard, training_arguments
from limbeck.engine.callbacks import CheckpointEvery
from limbeck.engine.display import Display
from limbeck.recipe import Recipe
from limbeck.records import Best, Epoch, Examples, Numbers, Record, hardware, versions, write_whole
from limbeck.run.assemble import Assembly, assemble
from limbeck.run.folder import RunFolder, default_folder
from limbeck.run.measure import cost, model_facts
from limbeck.run.preflight import inspect_run
from limbeck.run.report import report_run
from limbeck.students import load_model
from limbeck.teachers import Teacher


@dataclass
class Result:
    """What a run gives back.

    Attributes:
        path: the run folder.
        scores: split → metric → score, 0 to 100.
        record: everything known about the run.
    """

    path: Path
    record: Record

    @property
    def scores(self) -> dict[str, Numbers]:
        """Split → metric → score, 0 to 100."""
        return self.record.scores

    @property
    def student(self) -> Any:
        """The shipped student, loaded from the run folder."""
        return load_model(RunFolder(self.path).student)


def distill(
    recipe: Recipe | str | Path,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    show: bool = False,
    report: bool = True,
    live_teacher: Teacher | None = None,
    **overrides: Any,
) -> Result:
    """Train one student as a recipe says; call it again to continue a run that was stopped.

    Args:
        recipe: a `Recipe`, a shipped method's name or a YAML file.
        out: the run folder; `runs/<task>-<method>-…` by default.
        overwrite: replace the run that lies there, once everything is ready to start.
        show: show pre-flight findings and progress on the terminal.
        report: also write the run's page, `report.html`.
        live_teacher: the model `recipe.teacher` names, loaded already; runs of one process may
            share it, and with a `RememberingTeacher` its answers.
        **overrides: recipe keys, if `recipe` is a name or a file.

    Raises:
        LimbeckError: everything that is wrong with the recipe, the data or the models, before any
            work starts; or a loss that stopped being a number.
    """
    if not isinstance(recipe, Recipe):
        recipe = Recipe.load(recipe, **overrides)
    folder = RunFolder(Path(out) if out is not None else default_folder(recipe))
    done = folder.finished(recipe, overwrite=overwrite)
    if done is not None:
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
        return Result(folder.path, done)
    began = time.perf_counter()
    set_seed(recipe.seed)
    assembly = assemble(recipe, live_teacher, progress=show)
    inspect_run(recipe, assembly, folder.path, show=show)
    if overwrite:
        folder.clear()
    checkpoint = folder.begin(recipe)
    record = _new_record(recipe, assembly)
    record.save(folder.path)
    try:
        trainer = _train(recipe, assembly, folder, checkpoint, show=show)
        _finish(recipe, assembly, folder, trainer, record, began)
    except Exception as error:
        record.fail(error)
        record.save(folder.path)
        raise
    if report:
        report_run(assembly, record, folder)
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    return Result(folder.path, record)


def _new_record(recipe: Recipe, assembly: Assembly) -> Record:
    return Record(
        kind="distill" if recipe.needs_teacher else "finetune",
        method=recipe.method,
        task=assembly.task.name,
        data=recipe.data,
        seed=recipe.seed,
        recipe=recipe.model_dump(mode="json"),
        versions=versions(),
        hardware=hardware(),
        examples=Examples(
            train=len(assembly.encoded["train"]),
            dev=len(assembly.dev),
            truncated=assembly.truncated,
        ),
    )


def _train(
    recipe: Recipe, assembly: Assembly, folder: RunFolder, checkpoint: Path | None, *, show: bool
) -> DistillationTrainer:
    display = Display(recipe, shown=show)
    trainer = DistillationTrainer(
        assembly.student,
        training_arguments(recipe, folder.checkpoints),
        teacher=assembly.live_teacher if recipe.needs_teacher else None,
        objectives=recipe.objectives,
        group_by_length=recipe.group_by_length,
        train_dataset=assembly.encoded["train"],
        eval_dataset=assembly.dev,
        data_collator=Collator(assembly.tokenizer),
        processing_class=assembly.tokenizer,
        compute_metrics=assembly.compute_metrics,
        callbacks=[display],
    )
    trainer.remove_callback(PrinterCallback)
    if recipe.patience is not None:
        trainer.add_callback(Patience(recipe.patience, recipe.select_by))
    if recipe.checkpoint_steps is not None:
        trainer.add_callback(CheckpointEvery(recipe.checkpoint_steps))
    if recipe.tensorboard:
        trainer.add_callback(tensorboard(folder.events))
    try:
        trainer.start_or_continue(checkpoint)
    finally:
        display.close()
    return trainer


def _finish(
    recipe: Recipe,
    assembly: Assembly,
    folder: RunFolder,
    trainer: DistillationTrainer,
    record: Record,
    began: float,
) -> None:
    record.epochs = [Epoch(**entry) for entry in trainer.progress.epochs]
    best = max(trainer.progress.epochs, key=lambda entry: entry["dev"][recipe.select_by])
    record.best = Best(epoch=best["epoch"], primary=best["dev"]["primary"])
    record.scores = _predict(assembly, trainer, folder)
    record.student, record.teacher = model_facts(assembly, recipe.teacher)
    record.cost = cost(
        trainer,
        record,
        # What earlier starts of this run have spent counts as well.
        total_seconds=time.perf_counter() - began + trainer.progress.run_clock.before,
        uses_teacher=recipe.needs_teacher,
    )
    # Whole or not at all: a student folder that is there is complete.
    part = folder.student.with_name("student.part")
    shutil.rmtree(part, ignore_errors=True)
    trainer.save_model(str(part))
    shutil.rmtree(folder.student, ignore_errors=True)
    part.rename(folder.student)
    record.status = "finished"
    record.save(folder.path)


def _predict(
    assembly: Assembly, trainer: DistillationTrainer, folder: RunFolder
) -> dict[str, Numbers]:
    """Score the best epoch's student on every dev split and keep its answers."""
    scores: dict[str, Numbers] = {}
    answers: dict[str, dict[str, list[float]]] = {}
    for split in assembly.task.dev_splits:
        if split not in assembly.encoded:
            continue
        dataset = assembly.encoded[split]
        output = trainer.predict(dataset)
        logits, labels = np.asarray(output.predictions), np.asarray(output.label_ids)
        scores[split] = dict(assembly.task.scores(logits, labels))
        answer = logits.reshape(-1) if assembly.task.regression else logits.argmax(axis=1)
        answers[split] = {
            "index": list(dataset["index"]),
            "prediction": answer.tolist(),
            "label": labels.tolist(),
        }
    write_whole(folder.predictions, json.dumps(answers))
    return scores
