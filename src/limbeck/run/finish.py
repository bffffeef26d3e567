"""A run is trained: its student is scored, measured and shipped. Part of `limbeck.run`."""

from __future__ import annotations

from limbeck.records import Best, Epoch, Record
from limbeck.run.beside_teacher import beside_teacher
from limbeck.run.check import warn_of_none_counted
from limbeck.run.run_folder import RunFolder
from limbeck.run.several_teachers import promote
from limbeck.run.shipping import add_draws, cost, model_facts, predict, ship, stage_facts
from limbeck.run.teacher_scores import Kept, reference_scores
from limbeck.run.train import Trained, save
from limbeck.students import labels_of
from limbeck.support.machine import is_first, wait_for_all
from limbeck.tasks import LOWER_IS_BETTER
from limbeck.tasks.rules import thresholds_of
from limbeck.training.progress import Parts


def finish(trained: Trained, record: Record, folder: RunFolder, parts: Parts) -> None:
    """Score what was trained, measure it, ship the student, and say so in the record."""
    prepared, trainer, spent = trained.prepared, trained.trainer, trained.spent
    recipe = prepared.recipe
    record.epochs = [
        Epoch(stage=part.inputs.stage.number, **entry) for part in spent for entry in part.epochs
    ]
    choose = min if recipe.select_by in LOWER_IS_BETTER else max
    best = choose(trainer.progress.epochs, key=lambda entry: entry["dev"][recipe.select_by])
    record.best = Best(epoch=best["epoch"], primary=best["dev"]["primary"])
    last = trainer.progress.epochs[-1]
    warn_of_none_counted(trainer.progress.epochs)
    record.last = Best(epoch=last["epoch"], primary=last["dev"].get("primary"))
    scored = trained.splits_to_score
    record.scores, predictions = predict(prepared, trainer, scored, folder)
    record.class_weights = trainer.objectives.weights_by_class()
    thresholds = thresholds_of(trainer.student.config)
    if thresholds is not None:
        names = labels_of(trainer.student.config)
        record.thresholds = dict(zip(names, thresholds, strict=True))
    measured: Kept = {}
    with parts.part("evaluation"):
        scores = reference_scores(prepared, scored, measured)
        found = beside_teacher(prepared, scored, record.scores, predictions, scores, measured)
        record.kept, record.classification = found.kept, found.classification
        record.row_tests, record.floor = found.row_tests, found.floor
    with parts.part("measuring"):
        record.student, record.teacher = model_facts(prepared, scores)
        record.stages = [stage_facts(part, prepared) for part in spent]
    add_draws(record)
    wait_for_all()
    if is_first():
        with parts.part("saving"):
            ship(trainer, folder, prepared)
    record.cost = cost(spent, record.stages, parts.read())
    record.status = "finished"
    save(record, folder)
    wait_for_all()


def take_over(record: Record, folder: RunFolder) -> None:
    """Finish a run whose student is that of the best of several runs made for it."""
    if is_first():
        promote(record, folder)
    save(record, folder)
    wait_for_all()
