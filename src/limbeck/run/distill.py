"""`distill(recipe)`: one run from recipe to shipped student, resumable at any point.

Part of `limbeck.run`. Plan → prepare → check → make ready → train → finish: each step hands a value to the next.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import set_seed

from limbeck.recipe import Recipe
from limbeck.recipe.augment_spec import augmentation
from limbeck.records import Record
from limbeck.records.facts import Execution, Numbers
from limbeck.records.runs_meant import named_one_by_one
from limbeck.run import check, inputs, models, objects, rows, stored_outputs, teacher_labels
from limbeck.run.begin import begin, new_record, resolve, save, say_training
from limbeck.run.earlier_run import EarlierRun
from limbeck.run.finish import card_run, fail, finish, report_run, take_over
from limbeck.run.prepare import prepare, refuse_wrong
from limbeck.run.prepared import Prepared
from limbeck.run.run_folder import RunFolder, default_folder
from limbeck.run.several_teachers import Train, with_team
from limbeck.run.train import train_stages
from limbeck.students import load_model
from limbeck.students.execution import warn_of_emulated_bf16
from limbeck.support import files, given, lock, machine, terminal
from limbeck.support.errors import raise_problems
from limbeck.teachers.teacher import Teacher
from limbeck.training.progress import Parts


@dataclass(frozen=True)
class Plan:
    """A run that may start.

    Attributes:
        recipe: as requested, with each teacher and the student's start named; kept in the run's folder and record.
        folder: the folder of all its files.
        live_teacher: the model that `recipe.teacher` names, if it is loaded already.
        overwrite: replace the folder's content.
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
        """The record of this very run if it has finished; every process has to call it.

        Raises:
            LimbeckError: as `EarlierRun.finished`; problems of the command itself, if the folder
                has another recipe's run.
        """
        earlier, teacher = EarlierRun(self.folder, self.recipe), self.live_teacher
        if not self.overwrite and earlier.is_of_another():
            refuse_wrong(self.recipe, teacher)
        options = {"overwrite": self.overwrite, "for_another": self.for_another}
        record = machine.agreed(earlier.finished(live_teacher=teacher, **options))
        if record is not None and machine.is_first():
            self.folder.remove_checkpoints()
        return record


def plan_run(
    recipe: Recipe, out: str | Path | None, live_teacher: Teacher | None = None, **options: bool
) -> Plan:
    """Name every model of a recipe, and the folder; `options` are fields of a `Plan`.

    Raises:
        LimbeckError: objects that are not at hand, runs that are not finished, a folder that the run reads.
    """
    raise_problems(given.absent(recipe.model_dump(mode="json")))
    recipe = rows.with_columns(inputs.with_start(named_one_by_one(recipe)))
    recipe = models.with_max_length(recipe)
    folder = RunFolder(Path(out) if out is not None else default_folder(recipe))
    inputs.refuse_inputs(recipe, folder.path)
    recipe = teacher_labels.with_teacher_labels(recipe, folder.path.parent, live_teacher)
    recipe = models.with_tokenizer(recipe, folder.path.parent)
    return Plan(recipe, folder, live_teacher, **options)


# The run.

# What costs time before the first step, once all is checked: augmented rows, who teaches, stored
# outputs.


def make_ready(
    plan: Plan, prepared: Prepared, record: Record, parts: Parts, train: Train
) -> Prepared:
    """The run as its stages train it; each step of its preparation is recorded as soon as it is done.

    If the student is another run's, nothing more is made (`record.team.chosen`). `train` makes
    the runs that have to come first.
    """
    if prepared.augmenter is not None:
        prepared = augmentation().extend(prepared, show=plan.show)
    # What there is more of rows than before has been made.
    rows, examples = len(prepared.train.encoded), record.examples
    examples.augmented = rows - (examples.train or 0)
    examples.train, examples.truncated = rows, prepared.truncated
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
        prepared = stored_outputs.with_stored_outputs(prepared, show=plan.show, keep=keep)
        keep(prepared.execution)
    # The first checkpoint, if there is one, knows them too, and takes their place.
    parts.restore({"storing": stored_outputs.seconds_stored_before(prepared, before)})
    return prepared


# The result of a run.


@dataclass
class Result:
    """The result of a run.

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
    """Train one student as a recipe specifies; call it again to continue a run that was stopped.

    Args:
        recipe: a `Recipe`, a shipped method's name or a YAML file; None for the usual method of the teacher's task.
        out: the run folder; `default_folder`'s by default, one per experiment.
        overwrite: replace another recipe's run in the folder, or this one's if it has finished,
            once everything is ready to start; a stopped run is resumed.
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

    Example:
        ```python
        result = limbeck.distill(
            "kd", out="runs/student", teacher="runs/teacher", data="questions.csv", **{"student.layers": 3}
        )
        result.scores["test"]["primary"]
        ```

    Raises:
        LimbeckError: everything that is wrong with the recipe, the data or the models, before any
            work starts; a folder that another process writes, or that the run reads; a finished run
            of rows or models that have changed since; a loss that stopped being a number; a full
            disk.
    """
    settings, writers = objects.settings_of(recipe, overrides, tokenizer)
    with given.at_hand(writers):
        if not isinstance(recipe, Recipe):
            recipe = Recipe.load(recipe, **settings)
        show = show and machine.is_first()  # one process of several talks
        plan = plan_run(recipe, out, live_teacher, overwrite=overwrite, show=show, report=report)
        return _carry_out(plan)


def _carry_out(plan: Plan) -> Result:
    record = plan.finished()
    if record is not None:
        return Result(plan.folder.path, record)
    with lock.in_use(plan.folder.path), files.one_error_for_a_full_disk(plan.folder.path):
        # Who held the folder until now may have finished the run.
        record = plan.finished() or _run(plan)
    return Result(plan.folder.path, record)


def _run(plan: Plan) -> Record:
    recipe, folder, parts = plan.recipe, plan.folder, Parts()
    goes_on = machine.agreed(EarlierRun(folder, recipe).continues(overwrite=plan.overwrite))
    set_seed(recipe.seed)
    # Computed before the files are read, so that a later change to a file is noticed.
    files = inputs.checksums_of_inputs(recipe)
    if plan.show and machine.is_first():
        # Translations are in a file of limbeck's own by now, with the teacher's embeddings.
        data = ", ".join(recipe.parallel) or recipe.data
        outputs = [] if recipe.parallel else recipe.outputs
        named = outputs or recipe.teachers or ([recipe.teacher] if recipe.teacher else [])
        init = recipe.student.init
        if init not in ("teacher", "fresh") and not inputs.start_problems(recipe):
            named = [*named, init]
        loading = f", loading {', '.join(named)}" if named else ""
        terminal.print_line(terminal.messages(), f"reading {data}{loading}")
    warn_of_emulated_bf16(recipe.precision)
    prepared = prepare(recipe, plan.live_teacher, progress=plan.show)
    prepared = resolve(prepared, folder, files, fresh=not goes_on)
    prepared = check.check_run(prepared, show=plan.show)
    say_training(prepared, show=plan.show)
    record = new_record(recipe, prepared)
    begin(recipe, folder, record, fresh=not goes_on)
    try:
        ready = make_ready(plan, prepared, record, parts, _before_run(plan.show))
        if record.team is not None and record.team.chosen is not None:
            take_over(record, folder)
        else:
            trained = train_stages(ready, folder, parts, show=plan.show)
            summarized = plan.show and not plan.for_another
            finish(trained, record, folder, parts, summarized=summarized)
    except Exception as error:  # recorded, whatever it is, and raised again
        fail(record, folder, error)
        raise
    if machine.is_first():
        if plan.report:
            report_run(ready, record, folder)
        card_run(folder)
        folder.remove_checkpoints()
    machine.wait_for_all()
    return record


def _before_run(show: bool) -> Train:
    """Trains the runs that a run requires before it can start."""

    def train(recipe: Recipe, place: Path) -> Record:
        plan = plan_run(recipe, place, show=show, report=False, for_another=True)
        return _carry_out(plan).record

    return train
