"""Finalists: chosen among the trials, trained to the end with several seeds, exported and measured.

Part of `limbeck.compressing`.
"""

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from limbeck.compressing.budget import Budget, Costs
from limbeck.compressing.cascades import Halves, cascades, have_confidence
from limbeck.compressing.costs import FORMATS
from limbeck.compressing.front import FrontPoint
from limbeck.compressing.pace import Extent, Hours, Pace
from limbeck.compressing.rows import CHOOSING, SCORING
from limbeck.compressing.shapes import StudentShape
from limbeck.compressing.timing import timed
from limbeck.compressing.trials import SEED, Candidate, RunTask, Trial
from limbeck.data import RowsAsked
from limbeck.exporting.export_model import export
from limbeck.exporting.folder import default_place
from limbeck.latency.contenders import contenders
from limbeck.run.distill import Result, distill
from limbeck.run.finish import refresh
from limbeck.runtimes.manifest import EXPORT_NAME, read_export
from limbeck.scoring.scored_model import LoadedSplit, Scored, ScoredModel
from limbeck.support import files
from limbeck.support.errors import LimbeckError, first_line

_SMALLER = 0.7
"""Size or latency of a further finalist, as a share of the other finalists', at most."""
_MOST_DROP = 2.0
"""Points of the primary score that an export may lose; one that loses more is left out of the front."""
_ABOUT = {"README.md", EXPORT_NAME, "predict.py"}
"""Files in a model's folder that are not needed to run it."""


def chosen(trials: Sequence[Trial], count: int) -> list[Trial]:
    """The trials to train to the end: the best, the best of the other kind, then clearly smaller or faster ones."""
    order = sorted(
        (one for one in trials if one.score is not None), key=lambda one: -(one.score or 0)
    )
    if not order:
        return []
    other = [one for one in order if _static(one) != _static(order[0])]
    found = [order[0], *other[:1]][:count]

    def smaller(one: Trial) -> bool:
        own = one.costs
        return all(
            own.size < _SMALLER * each.costs.size or own.latency < _SMALLER * each.costs.latency
            for each in found
        )

    rules: tuple[Callable[[Trial], bool], ...] = (smaller, lambda _: True)
    for rule in rules:  # the second where fewer differ so much than are wanted
        for one in order:
            shapes = {each.candidate.shape for each in found}
            if len(found) < count and one.candidate.shape not in shapes and rule(one):
                found.append(one)
    return found


def _static(one: Trial) -> bool:
    return one.candidate.shape.is_static


def smaller(
    trials: Sequence[Trial], tried: Sequence[Trial], points: Sequence[FrontPoint], budget: Budget
) -> Trial | None:
    """The best trial that is smaller than all that were tried, where their exported files exceed the budget."""
    students = [one for one in points if one.kind == "student"]
    if not students or not all(budget.exceeded(one.costs) for one in students):
        return None
    least = min(one.costs.size for one in tried)
    left = [one for one in trials if one.score is not None and one.costs.size < least]
    return max(left, key=lambda one: one.score or 0.0, default=None)


@dataclass
class FinalTrainings:
    """Trains finalists as long as there is time.

    Attributes:
        pace: predicts the seconds of trainings.
        hours: the remaining time.
        place: folder of the compression.
        plan: file of the decisions, rows and epochs by training, null for one that was left out; a start after a kill
            keeps them.
        say: prints progress.
        notes: the trainings that were left out.
    """

    pace: Pace
    hours: Hours
    place: Path
    plan: Path
    say: Callable[[str], None]
    notes: list[str] = field(default_factory=list)

    def train(self, best: Sequence[Trial]) -> list[list[Result]]:
        """The runs of each finalist, one a seed, the best on the rows that choose first.

        All are trained with the first seed before any is with the next one, for which there may be no time. The ones
        that need least time come first, and the unused part of their share goes to the ones that need more. As many
        are trained at the same time as there are jobs.
        """
        pace, jobs = self.pace, self.pace.trainings.model.settings.jobs
        seeds, count = pace.trainings.model.settings.seeds, pace.trainings.rows.count
        order = sorted(range(len(best)), key=lambda at: pace.training(best[at].candidate, count))
        runs: list[list[Result]] = [[] for _ in best]
        extents: dict[int, Extent | None] = {}
        due = [(seed, number, at) for seed in range(seeds) for number, at in enumerate(order)]
        for start in range(0, len(due), jobs):
            batch: dict[int, tuple[Candidate, int, Extent]] = {}
            for beside, (seed, number, at) in enumerate(due[start : start + jobs]):
                # More rows before more seeds.
                one, rounds = best[at].candidate, math.ceil((len(best) - number + beside) / jobs)
                asked = extents.get(at) or self.extent(one, best, 1 / rounds)
                must = seed == at == 0  # the best trial is trained in any case
                extents[at] = self.decided(one, SEED + seed, asked, best, must=must)
                if (extent := extents[at]) is not None:
                    batch[start + beside] = one, SEED + seed, extent
            for place, run in zip(batch, self.together([*batch.values()]), strict=True):
                runs[due[place][2]] += [run] if run else []
        return [_best_first(found) for found in runs]

    def extent(self, one: Candidate, best: Sequence[Trial], share: float = 1.0) -> Extent:
        """What fits in a share of the time that the last steps of finalists leave."""
        left, trainings = self.hours.left - self.pace.ends(best), self.pace.trainings
        seeds = trainings.model.settings.seeds
        return self.pace.extent_for(one, share * left, trainings.rows.count, seeds)

    def decided(
        self, one: Candidate, seed: int, asked: Extent, best: Sequence[Trial], *, must: bool = False
    ) -> Extent | None:
        """The rows and epochs of a training; None if the last steps of `best` would not end in time after it."""
        plan = json.loads(self.plan.read_text(encoding="utf-8")) if self.plan.is_file() else {}
        key = f"{one.words}, seed {seed}"
        if key not in plan:
            late = self.pace.training(one, *asked) > self.hours.left - self.pace.ends(best)
            plan[key] = None if late and not must else asked
            files.write_whole(self.plan, json.dumps(plan, indent=1))
        if plan[key] is None:
            self.notes.append(f"not trained, for the time: {key}")
            return None
        extent, count = Extent(*plan[key]), self.pace.trainings.rows.count
        if extent.rows < count:
            self.notes.append(f"trained on {extent.rows:,} of {count:,} rows, for the time: {key}")
        return extent

    def together(self, batch: Sequence[tuple[Candidate, int, Extent]]) -> list[Result | None]:
        """Run trainings by candidate, seed and extent at the same time; None if its process ended."""
        names, tasks = [], []
        for one, seed, extent in batch:
            read = f"{extent.rows:,} rows, {extent.epochs:g} epochs"
            names.append(f"{one.words}, {read}, seed {seed}")
            self.say(f"training {names[-1]}")
            own = files.checksum_of_text(f"{one.words}, {read}")[:8]
            settings = self.pace.trainings.settings(one, extent.rows, seed, epochs=extent.epochs)
            folder = self.place / "students" / f"{own}-s{seed}"
            tasks.append(RunTask(distill, one.method, settings, folder))
        expected = max((self.pace.training(one, *extent) for one, _, extent in batch), default=0.0)
        runs: list[Result | None] = [None] * len(tasks)
        began = time.monotonic()
        for at, made in self.pace.trainings.workers.each(tasks):
            if made.error is not None and not made.lost:
                raise made.error
            if made.error is not None:
                self.notes.append(f"not trained: {names[at]}: {first_line(made.error)}")
            now = time.monotonic()
            self.hours.add(f"training {names[at]}", now - began)
            began, runs[at] = now, made.run
        if tasks:
            self.pace.took(expected, sum(self.hours.spent[f"training {one}"] for one in names))
        return runs


def _best_first(runs: Sequence[Result]) -> list[Result]:
    return sorted(runs, key=lambda run: -(run.scores[CHOOSING]["primary"] or 0))


class Measuring:
    """Exports models in precisions as long as there is time, scores them on both halves, and times all at the end.

    Attributes:
        points: one for each export, with predicted latency and memory until `timed` is called.
        outputs: each exported folder's outputs for both halves.
        notes: the trainings that were left out, and why.
    """

    def __init__(
        self, pace: Pace, hours: Hours, budget: Budget, loaded: Sequence[LoadedSplit]
    ) -> None:
        """`loaded`: the rows that choose, and the rows that score."""
        self.pace, self.hours, self.budget, self.loaded = pace, hours, budget, loaded
        self.trainings = pace.trainings
        self.points: list[FrontPoint] = []
        self.outputs: dict[str, Halves] = {}
        self.notes: list[str] = []
        self._lengths: list[int] = []

    def student(self, one: Candidate, runs: Sequence[Result], folder: Path, *, own: bool) -> None:
        """Add a finalist's best student in its own precision, or in the others that are within the budget."""
        seeds = [run.scores[SCORING]["primary"] or 0.0 for run in runs]
        run, model = str(runs[0].path), self.trainings.model
        known = {"name": f"{one.shape.words}, {one.method}", "kind": "student", "run": run}
        asked = {"model": run, "max_drop": _MOST_DROP}
        every = [one.precision] if own else model.precisions(one.shape)
        for precision in every:
            over = self.budget.exceeded(model.predicted(one.shape, precision))
            if own or not (over or precision == one.precision):
                self._add(one.shape, precision, folder, asked, {**known, "seeds": seeds})

    def teacher(self) -> None:
        """Add the teacher as it is."""
        whole = self.trainings.model.shapes.all[0]
        with self.hours.step("teacher"):
            scored = [self._scored(self.trainings.teacher, one) for one in self.loaded]
        costs = self.trainings.model.predicted(whole, "float")
        self._point("float", costs, whole, scored, {"name": "teacher", "kind": "teacher"})

    def untrained(self, folder: Path) -> None:
        """Add the teacher without training in the first precision, and in float where a cascade may hold it."""
        rows, model = self.trainings.rows, self.trainings.model
        whole = model.shapes.all[0]
        asked = {
            "model": self.trainings.teacher,
            "task": rows.recipe.task,
            "data": rows.settings[CHOOSING],
            "text_columns": rows.settings.get("text_columns"),
            "label_column": rows.settings.get("label_column"),
            "max_length": rows.recipe.max_length,
            "max_drop": 100.0,
        }
        known = {"name": "teacher, untrained", "kind": "teacher"}
        seldom = replace(model.predicted(whole, "float"), latency=0.0)
        as_it_is = "float" in model.settings.precisions and not self.budget.exceeded(seldom)
        for precision in dict.fromkeys([model.settings.precisions[0], *["float"] * as_it_is]):
            self._add(whole, precision, folder, asked, known)

    def _add(
        self,
        shape: StudentShape,
        precision: str,
        folder: Path,
        asked: Mapping[str, Any],
        known: Mapping[str, Any],
    ) -> None:
        """Add an export, if it and the teacher's scores end in time; the first one in any case."""
        place, graph, name = (
            folder / precision,
            folder / "graph.onnx",
            f"{known['name']}, {precision}",
        )
        expected, there = self.pace.export(shape), (place / EXPORT_NAME).is_file()
        scored = any(one.kind == "teacher" for one in self.points)
        owed = 0.0 if scored else self.pace.export(self.trainings.model.shapes.all[0])
        if self.outputs and not there and expected > self.hours.left - owed:
            self.notes.append(f"not exported, for the time: {name}")
            return
        step = f"export {place.relative_to(folder.parent)}"
        try:
            with self.hours.step(step):
                if not there:
                    how = {"out": place, "overwrite": True, "graph": graph, "keep_sensitive": False}
                    export(**{**asked, **how, **FORMATS[precision]})
                halves = [self._scored(place, one) for one in self.loaded]
        except LimbeckError as error:
            self.notes.append(f"left out: {name}: {first_line(error)}")
            return
        self.pace.took(expected, self.hours.spent[step])
        read = [one for one in place.rglob("*") if one.is_file() and one.name not in _ABOUT]
        size = float(sum(one.stat().st_size for one in read))
        costs = replace(self.trainings.model.predicted(shape, precision), size=size)
        self._point(precision, costs, shape, halves, {**known, "path": str(place)})
        self.outputs[str(place)] = halves

    def _point(
        self,
        precision: str,
        costs: Costs,
        shape: StudentShape,
        scored: Halves,
        known: Mapping[str, Any],
    ) -> None:
        chosen, score = (float(one.results.scores["primary"] or 0.0) for one in scored)
        found = {"precision": precision, "costs": costs, "chosen_on": chosen, "score": score}
        self.points.append(FrontPoint.model_validate({**known, **found}))
        self._lengths.append(self.trainings.model.tokens(shape))

    def _scored(self, model: str | Path, loaded: LoadedSplit) -> Scored:
        return ScoredModel.open(model).score(loaded)

    def timed(self) -> list[FrontPoint]:
        """The points with latency and memory as measured in turns; the teacher in float keeps its shape's."""
        exports = [at for at, one in enumerate(self.points) if one.path]
        who = [
            (replace(contenders([self.points[at].path])[0], model=f"{at}"), self._lengths[at])
            for at in exports
        ]
        found = timed(who, self.trainings.model.settings)
        for at, (latency, memory) in zip(exports, found, strict=True):
            costs = replace(self.points[at].costs, latency=latency, memory=memory)
            self.points[at] = self.points[at].model_copy(update={"costs": costs})
        return self.points


def measured(
    trials: Sequence[Trial],
    pace: Pace,
    hours: Hours,
    budget: Budget,
    place: Path,
    say: Callable[[str], None],
) -> tuple[list[FrontPoint], list[str]]:
    """Train, export and measure finalists, and the teacher, in the remaining time; finished measurements are read.

    Raises:
        LimbeckError: a training that failed; the process of every one has ended.
    """
    trainings = pace.trainings
    best = chosen(trials, trainings.model.settings.finalists)
    asked = [hours.seconds, *(one.candidate.words for one in best)]
    key = files.checksum_of_text(str(asked))[:8]
    path = place / f"points-{key}.json"
    if path.is_file():
        known = json.loads(path.read_text(encoding="utf-8"))
        return [FrontPoint.model_validate(one) for one in known["points"]], known["notes"]
    course = FinalTrainings(pace, hours, place, place / f"plan-{key}.json", say)
    done = [(one, runs) for one, runs in zip(best, course.train(best), strict=True) if runs]
    if not done:
        raise LimbeckError(
            f"compress: {'; '.join(course.notes)}", "the same command tries it again"
        )
    own = ScoredModel.open(done[0][1][0].path)
    loaded = [own.rows(RowsAsked(split=split)) for split in (CHOOSING, SCORING)]
    measuring = Measuring(pace, hours, budget, loaded)
    say("exporting and measuring the finalists and the teacher")
    exports = place / "exports"
    # A killed process may have written half of a graph.
    for graph in exports.glob("*/graph.onnx"):
        graph.unlink()

    for one, runs in done:
        measuring.student(one.candidate, runs, exports / runs[0].path.name, own=True)
    while (more := smaller(trials, best, measuring.points, budget)) is not None:
        best = [*best, more]
        extent = course.extent(more.candidate, [more])
        decided = course.decided(more.candidate, SEED, extent, [more])
        asked_more = [] if decided is None else [(more.candidate, SEED, decided)]
        for run in filter(None, course.together(asked_more)):
            done.append((more, [run]))
            measuring.student(more.candidate, [run], exports / run.path.name, own=True)
    measuring.teacher()
    measuring.untrained(exports / "teacher")
    for one, runs in done:
        measuring.student(one.candidate, runs, exports / runs[0].path.name, own=False)
    points = measuring.timed()
    for graph in exports.glob("*/graph.onnx"):
        graph.unlink()
    if any(have_confidence(one) for one, _ in measuring.outputs.values()):
        points += cascades(points, measuring.outputs, budget, place / "cascades")
    notes = [*course.notes, *measuring.notes]
    kept = {"points": [one.model_dump() for one in points], "notes": notes}
    files.write_whole(path, json.dumps(kept, indent=1))
    return points, notes


def shipped(point: FrontPoint) -> str:
    """Put a student's export into its run, whose card then names it; returns the folder."""
    if not point.run:
        return point.path
    place = default_place(point.run, read_export(point.path).format)
    # With more time another precision of the same format may be the one.
    part = place.with_name(f".{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(point.path, part)
    files.put_in_place(part, place)
    refresh(Path(point.run))
    return str(place)
