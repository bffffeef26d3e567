"""A study from its first run to its last: due runs are made, ended ones are reported, failures stay visible."""

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from limbeck.lab.study.plan_builder import StudyPlan
from limbeck.lab.study.shared_runs import Outcome, SharedRuns, StudyRun
from limbeck.lab.study.study_estimate import KindOfRun, held_or_none, kind_of, spoken_hours
from limbeck.records import Record
from limbeck.support.terminal import print_line
from limbeck.support.workers import Workers, workers

_POLL_SECONDS = 1.0
"""How often a run that another process is at is looked for."""


def carry_out(
    plan: StudyPlan,
    runs: SharedRuns,
    *,
    jobs: int = 1,
    threads: int | None = None,
    engine: str = "local",
    address: str | None = None,
    seconds: Mapping[KindOfRun, float] | None = None,
    console: Console | None = None,
) -> list[Outcome]:
    """Make every run without a record, and return the failed ones, each with its problems.

    A run that failed in an earlier call is tried once more. What another process is making is
    waited for.

    Args:
        plan: the runs to make.
        runs: where it is made.
        jobs: how many processes; with one, the runs are made in this one.
        threads: of each of several processes; by default one for every core of its part.
        engine: local, or ray: processes of a Ray cluster.
        address: of the cluster; by default the one that RAY_ADDRESS names, otherwise one on this machine.
        seconds: the time of a run of each kind, for the time left.
        console: where lines and the bar are printed; None prints nothing.
    """
    console = console or Console(quiet=True)
    with workers(runs, jobs, engine, address, threads) as maker:
        return _Course(plan, runs, maker, jobs, dict(seconds or {}), console).run()


class _Course:
    """One call's way through a plan."""

    def __init__(
        self,
        plan: StudyPlan,
        runs: SharedRuns,
        maker: Workers[StudyRun, Outcome],
        jobs: int,
        seconds: dict[KindOfRun, float],
        console: Console,
    ) -> None:
        self.plan, self.runs, self.maker, self.jobs = plan, runs, maker, jobs
        self.seconds, self.console = seconds, console
        self.failed: dict[str, Outcome] = {}
        self.at_work: dict[str, float] = {}
        self.busy: dict[str, float] = {}
        self.records: dict[str, Record] = {}
        self.total = plan.count
        self.bar = Progress(
            TextColumn("runs"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not console.is_terminal,
        )

    def held(self, name: str) -> Record | None:
        """The record, read from disk once."""
        if name not in self.records:
            found = held_or_none(self.runs, name)
            if found is None:
                return None
            self.records[name] = found
        return self.records[name]

    def ended(self, name: str) -> bool:
        """Whether nothing more is to be expected of a run."""
        return name in self.failed or self.held(name) is not None

    def run(self) -> list[Outcome]:
        """To the end."""
        bar = self.bar.add_task("", total=self.total)
        with self.bar:
            while True:
                due = self._startable()
                while due and self.maker.free:
                    run = due.pop(0)
                    self.at_work[run.name] = time.monotonic()
                    self.maker.start(run)
                ended = self.maker.finished()
                for run, outcome in ended:
                    self._take(run, outcome)
                self.bar.update(bar, completed=self._done(), description=self._time_left())
                if not ended and not self.at_work:
                    if not self.busy:
                        break
                    time.sleep(_POLL_SECONDS)
        return list(self.failed.values())

    def _startable(self) -> list[StudyRun]:
        now = time.monotonic()
        self.plan.advance(self.held, self.ended, self.jobs)
        return [
            run
            for run in self.plan.due(self.held, self.ended)
            if run.name not in self.at_work and now - self.busy.get(run.name, -1e9) >= _POLL_SECONDS
        ]

    def _take(self, run: StudyRun, outcome: Outcome) -> None:
        took = time.monotonic() - self.at_work.pop(run.name)
        if outcome.busy:
            if run.name not in self.busy:
                self._say(f"{run.name}: another process is at it")
            self.busy[run.name] = time.monotonic()
            return
        self.busy.pop(run.name, None)
        if outcome.problems:
            self.failed[run.name] = outcome
            self._say(f"{_said(run)}: failed: {outcome.problems[0].message}")
            return
        if not run.tries:  # a choice takes no time
            self.seconds[kind_of(run)] = took
        record = self.held(run.name)
        score = None if record is None else record.primary_score("dev")
        number = "no score" if score is None else f"{score:.1f}"
        left = f"; {self._time_left()}" if self._done() < self.total else ""
        self._say(f"[{self._done()}/{self.total}] {_said(run)}: {number}, {took:.0f} s{left}")

    def _done(self) -> int:
        return min(self.total, sum(self.held(name) is not None for name in self._names()))

    def _names(self) -> set[str]:
        names = {run.name for run in self.plan.trained_teachers}
        for group in self.plan.groups:
            choice = self.plan.choice(group, self.held, self.ended)
            choosing = self.plan.choosing if group.chooses else None
            names |= {run.name for _, runs in group.tried for run in runs[:choosing]}
            names |= set() if choice is None else {run.name for run in choice.runs}
        return names

    def _time_left(self) -> str:
        """The remaining time, from the time that runs of each kind have taken so far."""
        if not self.seconds:
            return ""
        usual = sum(self.seconds.values()) / len(self.seconds)
        left = 0.0
        for run in self.plan.trained_teachers:
            left += 0.0 if self.ended(run.name) else self.seconds.get(kind_of(run), usual)
        for group in self.plan.groups:
            wanted = group.wanted(self.plan.choosing)
            made = {run.name for _, runs in group.tried for run in runs if self.ended(run.name)}
            kind = kind_of(group.sample)
            left += max(0, wanted - len(made)) * self.seconds.get(kind, usual)
        return f"about {spoken_hours(left / self.jobs)} left"

    def _say(self, line: str) -> None:
        print_line(self.console, line)


def _said(run: StudyRun) -> str:
    settings = run.settings
    cell = f"the best of {len(run.tries)} on dev" if run.tries else run.cell
    parts = [f"{settings['task']} {run.label}", cell, f"seed {settings['seed']}"]
    return ", ".join(part for part in parts if part)
