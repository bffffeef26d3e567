"""`distill(recipe)`: one run from recipe to shipped student, resumable at any point.

Part of `limbeck.run`. Plan → prepare → check → make ready → train → finish: each step hands a value to the next.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import set_seed

from limbeck.recipe import Recipe
from limbeck.recipe.augment_spec import augmentation
from limbeck.records import Record
from limbeck.records.facts import Best, Epoch, Examples, Execution, Numbers
from limbeck.records.runs_meant import named_one_by_one
from limbeck.run.beside_teacher import beside_teacher
from limbeck.run.check import check_run, warn_of_none_counted
from limbeck.run.earlier_run import EarlierRun, checksums_of_inputs, finished
from limbeck.run.objects import settings_of
from limbeck.run.own_columns import with_columns
from limbeck.run.prepare import prepare, refuse_wrong
from limbeck.run.prepared import Prepared
from limbeck.run.protected_paths import refuse_inputs
from limbeck.run.report import card_run, report_run
from limbeck.run.required_settings import with_start
from limbeck.run.run_folder import RunFolder, default_folder
from limbeck.run.several_teachers import Train, promote, with_team
from limbeck.run.shipping import add_draws, cost, model_facts, predict, ship, stage_facts
from limbeck.run.stored_outputs import seconds_stored_before, with_stored_outputs
from limbeck.run.teacher_labels import with_teacher_labels
from limbeck.run.teacher_scores import Kept, reference_scores
from limbeck.run.train import Trained, begin, new_record, resolve, save, say_training, train_stages
from limbeck.students import labels_of, load_model
from limbeck.students.execution import warn_of_emulated_bf16
from limbeck.support.errors import LimbeckError
from limbeck.support.files import full_disk, is_full, one_error_for_a_full_disk
from limbeck.support.given import absent, at_hand
from limbeck.support.lock import in_use
from limbeck.support.machine import agreed, is_first, wait_for_all
from limbeck.support.terminal import messages, print_line
from limbeck.tasks import LOWER_IS_BETTER
from limbeck.tasks.rules import thresholds_of
from limbeck.teachers.teacher import Teacher
from limbeck.training.progress import Parts


@dataclass(frozen=True)
class Plan:
    """A run that may start.

    Attributes:
        recipe: as it was asked for, each teacher and the student's start named: what the run's folder and record keep.
        folder: where everything lies.
        live_teacher: the model that `recipe.teacher` names, where it is loaded already.
        overwrite: replace what lies in the folder.
        show: show pre-flight findings and progress on the terminal.
        report: write the run's page.
        for_another: the run is made for another one, in whose command no `--overwrite` reaches it.
    """

    recipe: Recipe
    folder: RunFolder
    live_teacher: Teacher | None = None
    overwrite: bool = False
    show: bool = False
    report: bool = True
    for_another: bool = False

    def finished(self) -> Record | None:
        """The record of this very run if it has finished; every process has to ask.

        Raises:
            LimbeckError: as `limbeck.run.earlier_run.finished`; what is wrong with the command itself, where another
                recipe's run lies there.
        """
        if not self.overwrite and EarlierRun(self.folder, self.recipe).is_of_another():
            refuse_wrong(self.recipe, self.live_teacher)
        record = agreed(
            finished(
                self.recipe,
                self.folder,
                overwrite=self.overwrite,
                live_teacher=self.live_teacher,
                for_another=self.for_another,
            )
        )
        if record is not None and is_first():
            self.folder.remove_checkpoints()
        return record

    def goes_on(self) -> bool:
        """Whether the run continues one that was stopped; every process has to ask."""
        return agreed(EarlierRun(self.folder, self.recipe).continues(overwrite=self.overwrite))


def plan_run(
    recipe: Recipe,
    out: str | Path | None,
    live_teacher: Teacher | None = None,
    *,
    overwrite: bool = False,
    show: bool = False,
    report: bool = True,
    for_another: bool = False,
) -> Plan:
    """Name every model of a recipe, and the folder.

    Raises:
        LimbeckError: objects that are not at hand, runs that are not finished, a folder that the run reads.
    """
    problems = absent(recipe.model_dump(mode="json"))
    if problems:
        raise LimbeckError(problems)
    recipe = with_columns(with_start(named_one_by_one(recipe)))
    folder = RunFolder(Path(out) if out is not None else default_folder(recipe))
    refuse_inputs(recipe, folder.path)
    recipe = with_teacher_labels(recipe, folder.path.parent, live_teacher)
    return Plan(recipe, folder, live_teacher, overwrite, show, report, for_another)


# The run.

# What costs time before the first step, once all is checked: augmented rows, who teaches, stored
# outputs.


def make_ready(
    plan: Plan, prepared: Prepared, record: Record, parts: Parts, train: Train
) -> Prepared:
    """The run as its stages train it; what was done for it is in the record as soon as it is done.

    Of a run whose student is another run's nothing more is made (`record.team.chosen`). `train` makes
    the runs that have to come first.
    """
    if prepared.augmenter is not None:
        prepared = augmentation().extend(prepared, show=plan.show)
    _count(prepared, record.examples)
    with parts.part("teams"):
        prepared, record.team = with_team(plan.recipe, prepared, plan.folder, train)
    if record.team is not None and record.team.chosen is not None:
        return prepared

    def keep(execution: Execution) -> None:
        record.execution = execution
        save(record, plan.folder)

    before = prepared.execution
    asks = any(inputs.recipe.needs_teacher for inputs in prepared.stages)
    with parts.part("storing" if asks else "preparation"):
        prepared = with_stored_outputs(prepared, show=plan.show, keep=keep)
        keep(prepared.execution)
    # The first checkpoint, if there is one, knows them too, and takes their place.
    parts.restore({"storing": seconds_stored_before(prepared, before)})
    return prepared


def _count(prepared: Prepared, examples: Examples) -> None:
    """How many rows there are now; what is more of them than before has been made."""
    rows = len(prepared.train.encoded)
    examples.augmented = rows - (examples.train or 0)
    examples.train, examples.truncated = rows, prepared.truncated


# The end of a run.


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


# What a run leaves when it fails.


def fail(record: Record, folder: RunFolder, error: Exception) -> None:
    """Keep the reason in the record; on a full disk, first make room for it."""
    full = is_full(error)
    raw = full and not isinstance(error, LimbeckError)
    record.fail(str(full_disk(folder.path, error)) if raw else error)
    if not is_first():
        return
    if not full:
        record.save(folder.path)
        return
    folder.remove_unfinished()
    with suppress(LimbeckError):  # not even that: what is wrong is said by who calls
        record.save(folder.path)


# What a run gives back.


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
    prepared = check_run(prepared, show=plan.show)
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
