"""From a study and the records that there are to the runs that are due: teachers, the choice on dev, all seeds.

Everything follows from records, so that a study that was killed goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean

from limbeck.lab.study.figure_checks import recipe_problems
from limbeck.lab.study.plan_builder import PlanBuilder
from limbeck.lab.study.shared_runs import Held, StudyRun
from limbeck.lab.study.study_fields import Study
from limbeck.lab.study.study_groups import Cell, Choice, Group, Tried, Verdict
from limbeck.support.errors import LimbeckError


@dataclass(frozen=True)
class StudyPlan:
    """All runs that a study may ask for, their recipes checked."""

    study: Study
    teachers: Mapping[str, StudyRun]
    """By task, or by task and member of its team, `sst2 T10`."""
    groups: tuple[Group, ...]
    tried: Mapping[str, Group] = field(default_factory=dict)
    """By the name of a teacher that is chosen, what is tried for it."""

    @classmethod
    def of(cls, study: Study, folder: Path | None = None) -> StudyPlan:
        """Build every run of the study.

        Args:
            study: what is asked for.
            folder: where its searches are kept; without one they are forgotten with the process.

        Raises:
            LimbeckError: what is wrong with any of their recipes, each problem once; a figure of what a recipe lacks.
        """
        builder = PlanBuilder(study, folder)
        teachers, groups = builder.teachers_and_groups()
        problems = recipe_problems(study, groups)
        if problems:
            raise LimbeckError(problems)
        return cls(study, teachers, groups, builder.tried)

    def teachers_of(self, task: str) -> list[StudyRun]:
        """The runs that make a task's teachers."""
        return [run for run in self.teachers.values() if run.settings["task"] == task]

    @property
    def trained_teachers(self) -> list[StudyRun]:
        """The runs that are trained for the teachers: of a choice all that are tried for it."""
        return [one for run in self.teachers.values() for one in run.tries or (run,)]

    @cached_property
    def choosing(self) -> int:
        """How many seeds the choice is made on."""
        return self.study.select.seeds

    @property
    def count(self) -> int:
        """How many runs the study is made of, teachers included."""
        found = {run.name for run in self.trained_teachers}
        extra = 0
        for group in self.groups:
            known = set()
            if group.search is None:
                deciding = self.choosing if group.chooses else None
                known = {run.name for _, runs in group.grid for run in runs[:deciding]}
            found |= known
            extra += group.wanted(self.choosing) - len(known)
        return len(found) + extra

    def choice(self, group: Group, held: Held, ended: Callable[[str], bool]) -> Choice | None:
        """The cell of the grid that is best on dev; None until every run that decides has ended.

        By the mean of the primary dev score over the seeds that decide; a cell with a run that
        failed is not chosen where another has all of them. The first of equals.
        """
        tried = group.tried
        if not group.chooses:
            settings, runs = tried[0]
            return Choice(group, settings, runs, ())
        if len(tried) < group.tries:
            return None
        scores: list[tuple[Cell, float | None]] = []
        ranks = []
        for settings, runs in tried:
            values = self._deciding_scores(runs, held, ended)
            if values is None:
                return None
            mean = fmean(values) if values else None
            scores.append((settings, mean))
            ranks.append((len(values) == self.choosing, float("-inf") if mean is None else mean))
        best = max(range(len(ranks)), key=lambda number: ranks[number])
        settings, runs = tried[best]
        return Choice(group, settings, runs, tuple(scores))

    def _deciding_scores(
        self, runs: Sequence[StudyRun], held: Held, ended: Callable[[str], bool]
    ) -> list[float] | None:
        """Of the seeds that decide those that have a score; None until all of them have ended."""
        deciding = runs[: self.choosing]
        if not all(ended(run.name) for run in deciding):
            return None
        records = [record for run in deciding if (record := held(run.name)) is not None]
        return [value for one in records if (value := one.primary_score("dev")) is not None]

    def advance(self, held: Held, ended: Callable[[str], bool], room: int) -> None:
        """Let every search ask for what it tries next, so that `room` of its cells are open.

        A search whose teacher is not there yet waits.
        """

        def verdict(one: Tried) -> Verdict | None:
            values = self._deciding_scores(one[1], held, ended)
            if values is None:
                return None
            return Verdict(fmean(values) if len(values) == self.choosing else None)

        for group in self.groups:
            if group.search is not None and group.sample.may_begin(held):
                group.search.advance(verdict, room)

    def due(self, held: Held, ended: Callable[[str], bool]) -> list[StudyRun]:
        """Runs that can be made now: no record holds them, nothing they need is missing.

        Teachers first, then what the choice is made on, then one seed of everything after the
        other: a study that is stopped has whole rounds to compare.
        """
        found: dict[str, tuple[int, int, StudyRun]] = {}

        def want(run: StudyRun, rank: int, seed: int) -> None:
            if run.may_begin(held, ended) and not ended(run.name):
                found.setdefault(run.name, (rank, seed, run))

        for run in (*self.trained_teachers, *self.teachers.values()):
            want(run, 0, 0)
        for group in self.groups:
            choice = self.choice(group, held, ended)
            if choice is None:
                for _, runs in group.tried:
                    for number, run in enumerate(runs[: self.choosing]):
                        want(run, 1, number)
            else:
                for number, run in enumerate(choice.runs):
                    want(run, 2, number)
        return [run for _, _, run in sorted(found.values(), key=lambda item: item[:2])]

    def waiting(self, held: Held, ended: Callable[[str], bool]) -> list[StudyRun]:
        """Runs whose teacher has failed: they cannot be made."""
        lost: list[StudyRun] = []
        for group in self.groups:
            if not group.sample.lost(held, ended):
                continue
            choice = self.choice(group, held, ended)
            asked = group.tried or group.grid[:1]
            for _, runs in asked if choice is None else ((choice.settings, choice.runs),):
                lost += runs
        return list({run.name: run for run in lost if not ended(run.name)}.values())


def runs_folder(out: Path) -> Path:
    """Where the runs of all studies in a folder lie."""
    return out / "runs"
