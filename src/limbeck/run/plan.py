"""What a run is to do, and where: its recipe with every model named, its folder, and how it was asked for.

Part of `limbeck.run`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.records.runs_meant import named_one_by_one
from limbeck.run.earlier_run import EarlierRun, finished
from limbeck.run.own_columns import with_columns
from limbeck.run.prepare import refuse_wrong
from limbeck.run.protected_paths import refuse_inputs
from limbeck.run.required_settings import with_start
from limbeck.run.run_folder import RunFolder, default_folder
from limbeck.run.teacher_labels import with_teacher_labels
from limbeck.support.errors import LimbeckError
from limbeck.support.given import absent
from limbeck.support.machine import agreed, is_first
from limbeck.teachers.teacher import Teacher


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
