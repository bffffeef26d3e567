"""Finalists: chosen among the trials, trained to the end with several seeds, exported and measured.

Part of `limbeck.compressing`.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.compressing.budget import Budget, Costs
from limbeck.compressing.costs import FORMATS
from limbeck.compressing.front import FrontPoint
from limbeck.compressing.rows import CHOOSING, SCORING
from limbeck.compressing.shapes import StudentShape
from limbeck.compressing.timing import timed
from limbeck.compressing.trials import SEED, Candidate, Trainings, Trial
from limbeck.data import RowsAsked
from limbeck.exporting.export_model import export
from limbeck.exporting.folder import default_place
from limbeck.latency.contenders import contenders
from limbeck.run.distill import Result, distill
from limbeck.run.finish import refresh
from limbeck.runtimes.manifest import EXPORT_NAME, read_export
from limbeck.scoring.scored_model import LoadedSplit, ScoredModel
from limbeck.support import files
from limbeck.support.errors import LimbeckError, first_line
from limbeck.support.words import count_of

_SMALLER = 0.7
"""Size or latency of a further finalist, as a share of that of the others, at most."""
_MOST_DROP = 2.0
"""Points of the primary score that an export may lose; one that loses more is left out of the front."""
_LEAST_ROWS = 200
_ABOUT = {"README.md", EXPORT_NAME, "predict.py"}
"""Files beside a model that nobody needs to run it."""


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


def rows_for(one: Trial, seconds: float, count: int) -> int:
    """How many of `count` rows a training may read in so many seconds, by the time of its trial."""
    return max(
        min(count, int(one.rows * seconds / max(one.seconds, 1e-3))), min(count, _LEAST_ROWS)
    )


def trained(one: Candidate, rows: int, trainings: Trainings, folder: Path) -> list[Result]:
    """The finished runs of a finalist, one a seed, the best on the rows that choose first."""
    seeds = range(SEED, SEED + trainings.model.settings.seeds)
    runs = [
        distill(trainings.recipe(one, rows, seed), folder.with_name(f"{folder.name}-s{seed}"))
        for seed in seeds
    ]
    return sorted(runs, key=lambda run: -(run.scores[CHOOSING]["primary"] or 0))


class Measuring:
    """Exports models in precisions, scores them on both halves, and times all of them at the end.

    Attributes:
        points: one for each export, with predicted latency and memory until `timed` is called.
        notes: what was left out, and why.
    """

    def __init__(self, trainings: Trainings, budget: Budget, loaded: Sequence[LoadedSplit]) -> None:
        """`loaded`: the rows that choose, and those that score."""
        self.trainings, self.budget, self.loaded = trainings, budget, loaded
        self.points: list[FrontPoint] = []
        self.notes: list[str] = []
        self._lengths: list[int] = []

    def student(self, one: Candidate, runs: Sequence[Result], folder: Path) -> None:
        """Add a finalist's best student in every precision that is within the budget."""
        seeds = [run.scores[SCORING]["primary"] or 0.0 for run in runs]
        run = str(runs[0].path)
        named = {"name": f"{one.shape.words}, {one.method}", "kind": "student", "run": run}
        for precision in self.trainings.model.precisions(one.shape):
            if not self.budget.exceeded(self.trainings.model.predicted(one.shape, precision)):
                asked = {"model": run, "max_drop": _MOST_DROP}
                self._add(one.shape, precision, folder, asked, {**named, "seeds": seeds})

    def teacher(self, folder: Path) -> None:
        """Add the teacher as it is, and without training in the first precision that is asked for."""
        rows, model = self.trainings.rows, self.trainings.model
        whole = model.shapes.all[0]
        scores = [self._score(self.trainings.teacher, one) for one in self.loaded]
        known = {"name": "teacher", "kind": "teacher"}
        costs = model.predicted(whole, "float")
        self._point("float", costs, whole, scores, known)
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
        self._add(whole, model.settings.precisions[0], folder, asked, known)

    def _add(
        self,
        shape: StudentShape,
        precision: str,
        folder: Path,
        asked: Mapping[str, Any],
        known: Mapping[str, Any],
    ) -> None:
        place, graph = folder / precision, folder / "graph.onnx"
        try:
            if not (place / EXPORT_NAME).is_file():
                how = {"out": place, "overwrite": True, "graph": graph, "keep_sensitive": False}
                export(**{**asked, **how, **FORMATS[precision]})
        except LimbeckError as error:
            self.notes.append(f"left out: {known['name']}, {precision}: {first_line(error)}")
            return
        read = [one for one in place.rglob("*") if one.is_file() and one.name not in _ABOUT]
        size = float(sum(one.stat().st_size for one in read))
        costs = replace(self.trainings.model.predicted(shape, precision), size=size)
        scores = [self._score(place, one) for one in self.loaded]
        self._point(precision, costs, shape, scores, {**known, "path": str(place)})

    def _point(
        self,
        precision: str,
        costs: Costs,
        shape: StudentShape,
        scores: Sequence[float],
        known: Mapping[str, Any],
    ) -> None:
        measured = {"precision": precision, "costs": costs, "chosen_on": scores[0]}
        self.points.append(FrontPoint.model_validate({**known, **measured, "score": scores[1]}))
        self._lengths.append(self.trainings.model.tokens(shape))

    def _score(self, model: str | Path, loaded: LoadedSplit) -> float:
        return float(ScoredModel.open(model).score(loaded).results.scores["primary"] or 0.0)

    def timed(self) -> list[FrontPoint]:
        """The points with latency and memory as measured in turns; the teacher in float keeps those of its shape."""
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
    finalists: Sequence[tuple[Candidate, int]],
    trainings: Trainings,
    budget: Budget,
    place: Path,
    say: Callable[[str], None],
) -> tuple[list[FrontPoint], list[str]]:
    """Train, export and measure finalists (with their rows), and the teacher; what is measured already is read."""
    named = [f"{one.words}, {rows:,} rows" for one, rows in finalists]
    folders = [files.checksum_of_text(name)[:8] for name in named]
    path = place / f"points-{files.checksum_of_text(str(named))[:8]}.json"
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        return [FrontPoint.model_validate(one) for one in kept["points"]], kept["notes"]
    done = []
    for (one, rows), name, folder in zip(finalists, named, folders, strict=True):
        say(f"training {name}, {count_of(trainings.model.settings.seeds, 'seed')}")
        done.append(trained(one, rows, trainings, place / "students" / folder))
    own = ScoredModel.open(done[0][0].path)
    loaded = [own.rows(RowsAsked(split=split)) for split in (CHOOSING, SCORING)]
    measuring = Measuring(trainings, budget, loaded)
    say("exporting and measuring the finalists and the teacher")
    exports = place / "exports"
    # A killed process may have written half of a graph.
    for graph in exports.glob("*/graph.onnx"):
        graph.unlink()
    for (one, _), runs, folder in zip(finalists, done, folders, strict=True):
        measuring.student(one, runs, exports / folder)
    measuring.teacher(exports / "teacher")
    points = measuring.timed()
    for graph in exports.glob("*/graph.onnx"):
        graph.unlink()
    kept = {"points": [one.model_dump() for one in points], "notes": measuring.notes}
    files.write_whole(path, json.dumps(kept, indent=1))
    return points, measuring.notes


def shipped(point: FrontPoint) -> str:
    """Put a student's export into its run, whose card then names it; returns the folder."""
    if not point.run:
        return point.path
    place = default_place(point.run, read_export(point.path).format)
    if not place.is_dir():
        part = place.with_name(f".{place.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(point.path, part)
        files.put_in_place(part, place)
        refresh(Path(point.run))
    return str(place)
