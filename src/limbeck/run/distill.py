"""`distill(recipe)`: one run from recipe to shipped student, resumable at any point.

Part of `limbeck.run`. Plan → prepare → check → make ready → train → finish: each step hands a value to the next.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import set_seed

from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run.beginning import begin, new_record
from limbeck.run.check import check_run
from limbeck.run.failing import fail
from limbeck.run.finish import finish, take_over
from limbeck.run.input_files import checksums_of_inputs
from limbeck.run.make_ready import make_ready
from limbeck.run.objects import settings_of
from limbeck.run.plan import Plan, plan_run
from limbeck.run.prepare import prepare
from limbeck.run.prepared_teachers import Train
from limbeck.run.resolution import resolve, say_training
from limbeck.run.result import Result
from limbeck.run.run_report import card_run, report_run
from limbeck.run.train import train_stages
from limbeck.students.execution import warn_of_emulated_bf16
from limbeck.support.files import one_error_for_a_full_disk
from limbeck.support.given import at_hand
from limbeck.support.lock import in_use
from limbeck.support.machine import is_first, wait_for_all
from limbeck.support.terminal import messages, print_line
from limbeck.teachers.teacher import Teacher
from limbeck.training.progress import Parts


def distill(
    recipe: Recipe | str | Path | None = None,
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
        recipe: a `Recipe`, a shipped method's name or a YAML file; None for the usual method of what the teacher does.
        out: the run folder; `default_folder`'s by default, one an experiment.
        overwrite: replace another recipe's run that lies there, or this one's if it has finished,
            once everything is ready to start; one that was stopped is gone on with.
        show: show pre-flight findings and progress on the terminal.
        report: also write the run's page, `report.html`.
        live_teacher: the model `recipe.teacher` names, loaded already; runs of one process may
            share it, and with a `RememberingTeacher` its outputs.
        tokenizer: of all model objects, the one (or image processor) that makes their input; by
            default each model's own, where it was loaded from.
        **overrides: recipe keys, if `recipe` is a name or a file. `teacher`, `teachers` and
            `student` may be model objects (or pairs of a model and its tokenizer), a list of them
            as `teacher` is a team; `data` a `Dataset`, a `DatasetDict`, rows by split; `outputs` the
            store that `label` returned.

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
        show = show and is_first()  # one process of several talks
        plan = plan_run(recipe, out, live_teacher, overwrite=overwrite, show=show, report=report)
        return _carry_out(plan)


def _carry_out(plan: Plan) -> Result:
    record = plan.finished()
    if record is not None:
        return Result(plan.folder.path, record)
    with in_use(plan.folder.path), one_error_for_a_full_disk(plan.folder.path):
        # Who held the folder until now may have finished the run.
        record = plan.finished() or _run(plan)
    return Result(plan.folder.path, record)


def _run(plan: Plan) -> Record:
    recipe, folder, parts, goes_on = plan.recipe, plan.folder, Parts(), plan.goes_on()
    set_seed(recipe.seed)
    # Before they are read, so that one that changes meanwhile is seen to have changed.
    files = checksums_of_inputs(recipe)
    if plan.show and is_first():
        print_line(messages(), f"reading {recipe.data}, loading {_models(recipe)}")
    warn_of_emulated_bf16(recipe.precision)
    prepared = prepare(recipe, plan.live_teacher, progress=plan.show)
    prepared = resolve(prepared, folder, files, fresh=not goes_on)
    prepared = check_run(prepared, folder.path, show=plan.show)
    say_training(prepared, show=plan.show)
    record = new_record(recipe, prepared)
    begin(recipe, folder, record, fresh=not goes_on)
    try:
        ready = make_ready(plan, prepared, record, parts, _before_run(plan.show))
        if record.team is not None and record.team.chosen is not None:
            take_over(record, folder)
        else:
            finish(train_stages(ready, folder, parts, show=plan.show), record, folder, parts)
    except Exception as error:  # recorded, whatever it is, and raised again
        fail(record, folder, error)
        raise
    if is_first():
        if plan.report:
            report_run(ready, record, folder)
        card_run(folder)
        folder.remove_checkpoints()
    wait_for_all()
    return record


def _models(recipe: Recipe) -> str:
    """The models of a run, as they are named."""
    teachers = recipe.outputs or recipe.teachers or ([recipe.teacher] if recipe.teacher else [])
    student = [] if recipe.student.from_teacher else [recipe.student.init]
    return ", ".join([*teachers, *student])


def _before_run(show: bool) -> Train:
    """Trains what has to be there before a run can start."""

    def train(recipe: Recipe, place: Path) -> Record:
        plan = plan_run(recipe, place, show=show, report=False, for_another=True)
        return _carry_out(plan).record

    return train
