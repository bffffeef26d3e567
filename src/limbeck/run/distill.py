"""`distill(recipe)`: one run from recipe to shipped student, resumable at any point.

Part of `limbeck.run`.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, set_seed

from limbeck.agreement import agreed, is_first, wait_for_all
from limbeck.errors import LimbeckError
from limbeck.files import one_error_for_a_full_disk
from limbeck.given import absent, at_hand
from limbeck.recipe import Recipe, Stage
from limbeck.reporting.records import (
    Best,
    Epoch,
    Examples,
    Execution,
    Record,
)
from limbeck.run.assemble import Assembly, add_copies, assemble
from limbeck.run.beginning import new_record
from limbeck.run.caching import seconds_stored_before, store_answers
from limbeck.run.failing import fail
from limbeck.run.input_files import checksums_of_inputs
from limbeck.run.lock import in_use
from limbeck.run.measurements import Spent, add_draws, cost, model_facts, stage_facts
from limbeck.run.objects import settings_of
from limbeck.run.preflight import inspect_run
from limbeck.run.prepared_teachers import Train, settle_team
from limbeck.run.promotion import adopt
from limbeck.run.protected_paths import refuse_inputs
from limbeck.run.resolution import settle
from limbeck.run.result import Result
from limbeck.run.run_folder import RunFolder, default_folder
from limbeck.run.run_page import report_run
from limbeck.run.runs_meant import named_one_by_one
from limbeck.run.scoring import reference_scores
from limbeck.run.shipping import predict, ship
from limbeck.run.student_start import with_start
from limbeck.run.unchanged import finished
from limbeck.tasks import LOWER_IS_BETTER
from limbeck.teachers.teacher import Teacher
from limbeck.training import (
    DistillationTrainer,
    Optimisation,
    Patience,
    reporting,
    training_arguments,
)
from limbeck.training.callbacks import CheckpointEvery
from limbeck.training.display import Display
from limbeck.training.seconds_by_part import Parts


def distill(
    recipe: Recipe | str | Path,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    show: bool = False,
    report: bool = True,
    live_teacher: Teacher | None = None,
    tokenizer: Any = None,
    **overrides: Any,
) -> Result:
    """Train one student as a recipe says; call it again to continue a run that was stopped.

    Args:
        recipe: a `Recipe`, a shipped method's name or a YAML file.
        out: the run folder; `runs/<task>-<method>-…` by default.
        overwrite: replace another recipe's run that lies there, or this one's if it has finished,
            once everything is ready to start; one that was stopped is gone on with.
        show: show pre-flight findings and progress on the terminal.
        report: also write the run's page, `report.html`.
        live_teacher: the model `recipe.teacher` names, loaded already; runs of one process may
            share it, and with a `RememberingTeacher` its answers.
        tokenizer: of all model objects, the one (or image processor) that makes their input; by
            default each model's own, where it was loaded from.
        **overrides: recipe keys, if `recipe` is a name or a file. `teacher`, `teachers` and
            `student` may be model objects (or pairs of a model and its tokenizer), a list of them
            as `teacher` is a team; `data` a `Dataset`, a `DatasetDict`, rows by split.

    Raises:
        LimbeckError: everything that is wrong with the recipe, the data or the models, before any
            work starts; a folder that another process writes, or that the run reads; a finished run
            of rows or models that have changed since; a loss that stopped being a number; a full
            disk.
    """
    given = settings_of(recipe, overrides, tokenizer)
    with at_hand(given.writers):
        if not isinstance(recipe, Recipe):
            recipe = Recipe.load(recipe, **given.settings)
        return _distill(recipe, out, live_teacher, overwrite=overwrite, show=show, report=report)


def _distill(
    recipe: Recipe,
    out: str | Path | None,
    live_teacher: Teacher | None,
    *,
    overwrite: bool,
    show: bool,
    report: bool,
    for_another: bool = False,
) -> Result:
    problems = absent(recipe.model_dump(mode="json"))
    if problems:
        raise LimbeckError(problems)
    recipe = with_start(named_one_by_one(recipe))
    folder = RunFolder(Path(out) if out is not None else default_folder(recipe))
    refuse_inputs(recipe, folder.path)

    def finished_run() -> Result | None:
        record = agreed(
            finished(
                recipe,
                folder,
                overwrite=overwrite,
                live_teacher=live_teacher,
                for_another=for_another,
            )
        )
        if record is None:
            return None
        if is_first():
            folder.remove_checkpoints()
        return Result(folder.path, record)

    done = finished_run()
    if done is not None:
        return done
    with in_use(folder.path), one_error_for_a_full_disk(folder.path):
        # Who held the folder until now may have finished the run.
        done = finished_run()
        if done is not None:
            return done
        return _run(recipe, folder, live_teacher, overwrite=overwrite, show=show, report=report)


def _run(
    recipe: Recipe,
    folder: RunFolder,
    live_teacher: Teacher | None,
    *,
    overwrite: bool,
    show: bool,
    report: bool,
) -> Result:
    parts = Parts()
    goes_on = agreed(folder.continues(recipe, overwrite=overwrite))
    set_seed(recipe.seed)
    # Before they are read, so that one that changes meanwhile is seen to have changed.
    files = checksums_of_inputs(recipe)
    assembly = assemble(recipe, live_teacher, progress=show)
    given = recipe
    recipe, execution = settle(given, assembly, folder, anew=not goes_on)
    inspect_run(recipe, assembly, folder.path, show=show)
    record = new_record(given, assembly)
    record.execution = execution.model_copy(update={"files": files})
    _begin(given, folder, record, anew=not goes_on)
    try:
        _add_copies(recipe, assembly, record.examples, show=show)
        with parts.part("teams"):
            record.team = settle_team(given, assembly, folder, _before_run(show))
        if record.team is not None and record.team.chosen is not None:
            _take_over(record, folder)
        else:
            _train_and_finish(recipe, assembly, folder, record, parts, show=show)
    except Exception as error:
        fail(record, folder, error)
        raise
    if is_first():
        if report:
            report_run(assembly, record, folder)
        folder.remove_checkpoints()
    wait_for_all()
    return Result(folder.path, record)


def _begin(recipe: Recipe, folder: RunFolder, record: Record, *, anew: bool) -> None:
    """The folder is this run's from now on."""
    if anew and is_first():
        folder.clear()
    wait_for_all()
    if is_first():
        folder.begin(recipe)
    _save(record, folder)


def _train_and_finish(
    recipe: Recipe,
    assembly: Assembly,
    folder: RunFolder,
    record: Record,
    parts: Parts,
    *,
    show: bool,
) -> None:

    def keep(execution: Execution) -> None:
        record.execution = execution
        _save(record, folder)

    before = record.execution
    asks = any(stage.recipe.needs_teacher for stage in recipe.stages())
    with parts.part("storing" if asks else "preparation"):
        keep(store_answers(recipe, assembly, record.execution, show=show, keep=keep))
    # The first checkpoint, if there is one, knows them too, and takes their place.
    parts.restore({"storing": seconds_stored_before(assembly, before, record.execution)})
    trainer, spent = _train_all(recipe, assembly, folder, parts, show=show)
    _finish(recipe, assembly, folder, trainer, record, spent, parts)


def _take_over(record: Record, folder: RunFolder) -> None:
    if is_first():
        adopt(record, folder)
    _save(record, folder)
    wait_for_all()


def _save(record: Record, folder: RunFolder) -> None:
    if is_first():
        record.save(folder.path)


def _before_run(show: bool) -> Train:
    """Trains what has to be there before a run can start."""

    def train(recipe: Recipe, place: Path) -> Record:
        made = _distill(
            recipe, place, None, overwrite=False, show=show, report=False, for_another=True
        )
        return made.record

    return train


def _add_copies(recipe: Recipe, assembly: Assembly, examples: Examples, *, show: bool) -> None:
    examples.augmented = add_copies(recipe, assembly, show=show)
    examples.train = len(assembly.encoded["train"])
    examples.truncated = assembly.truncated


def _train_all(
    recipe: Recipe, assembly: Assembly, folder: RunFolder, parts: Parts, *, show: bool
) -> tuple[DistillationTrainer, list[Spent]]:
    """One stage after the other: the last one's trainer, and what each has cost."""
    *before, last = recipe.stages()
    spent = []
    for stage in before:
        trainer = _train(recipe, stage, assembly, folder, parts, show=show)
        spent.append(Spent.by(trainer, stage))
        del trainer
        # A trainer and its callbacks hold each other; its optimiser need not wait for the next.
        gc.collect()
    trainer = _train(recipe, last, assembly, folder, parts, show=show)
    return trainer, [*spent, Spent.by(trainer, last)]


def _train(
    run: Recipe,
    stage: Stage,
    assembly: Assembly,
    folder: RunFolder,
    parts: Parts,
    *,
    show: bool,
) -> DistillationTrainer:
    """Train the student through one stage, or load what an earlier start made of it.

    A stage has its own optimiser, and the learned parts of its terms end with it.
    """
    recipe = stage.recipe
    display = Display(run, shown=show, stage=stage)
    trainer = DistillationTrainer(
        assembly.student,
        training_arguments(
            recipe,
            folder.checkpoints_of(stage),
            select=stage.last,
            name=folder.name_of(stage),
        ),
        teacher=assembly.teacher_of(stage),
        holdout=assembly.holdout,
        objectives=recipe.objectives,
        curriculum=recipe.curriculum,
        mixup=recipe.mixup,
        input_transform=recipe.input_transform,
        group_by_length=recipe.groups_by_length,
        compile=recipe.compile,
        train_dataset=assembly.rows_of(stage).encoded,
        eval_dataset=assembly.dev,
        compact=True,
        data_collator=assembly.rows_of(stage).collator(assembly.tokenizer, recipe.padded_width),
        processing_class=assembly.tokenizer,
        optimisation=Optimisation.of(recipe),
        compute_metrics=assembly.compute_metrics,
        callbacks=[display],
    )
    trainer.progress.parts = parts
    trainer.remove_callback(PrinterCallback)
    if recipe.patience is not None:
        trainer.add_callback(Patience(recipe.patience, recipe.select_by))
    if recipe.checkpoint_steps is not None:
        trainer.add_callback(CheckpointEvery(recipe.checkpoint_steps))
    try:
        with reporting(trainer, recipe.trackers, folder.events_of(stage)):
            trainer.start_or_continue(folder.last_checkpoint(stage))
    finally:
        display.close()
    return trainer


def _finish(
    recipe: Recipe,
    assembly: Assembly,
    folder: RunFolder,
    trainer: DistillationTrainer,
    record: Record,
    spent: list[Spent],
    parts: Parts,
) -> None:
    record.epochs = [
        Epoch(stage=part.stage.number, **entry) for part in spent for entry in part.epochs
    ]
    choose = min if recipe.select_by in LOWER_IS_BETTER else max
    best = choose(trainer.progress.epochs, key=lambda entry: entry["dev"][recipe.select_by])
    record.best = Best(epoch=best["epoch"], primary=best["dev"]["primary"])
    last = trainer.progress.epochs[-1]
    record.last = Best(epoch=last["epoch"], primary=last["dev"].get("primary"))
    record.scores = predict(assembly, trainer, folder)
    with parts.part("evaluation"):
        scores = reference_scores(assembly, recipe.max_length)
    with parts.part("measuring"):
        record.student, record.teacher = model_facts(assembly, scores)
        record.stages = [stage_facts(part, assembly) for part in spent]
    add_draws(record)
    wait_for_all()
    if is_first():
        with parts.part("saving"):
            ship(trainer, folder)
    record.cost = cost(spent, record.stages, parts.read())
    record.status = "finished"
    _save(record, folder)
    wait_for_all()
