"""Short trainings of candidates that meet the budget: Optuna proposes them, the dev half that chooses judges them.

Part of `limbeck.compressing`. A finished trial is a file, and the search is rebuilt from these files: one that was
killed resumes unchanged. Trials are made in batches, usually of one; a proposal depends only on the trials of
earlier batches and on the earlier proposals of its batch.
Optuna is imported where a search begins: the package is an extra.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from limbeck.compressing.budget import Budget, Costs, amount
from limbeck.compressing.costs import FOUR_BITS, CostModel, probed
from limbeck.compressing.rows import CHOOSING, CompressRows
from limbeck.compressing.shapes import StudentShape
from limbeck.recipe import Recipe, quick
from limbeck.run.distill import Result, distill
from limbeck.support import files
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.workers import Workers

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

SEED = 42
_RATES = (0.4, 2.5)
"""Times the usual learning rate of a shape."""
_PROPOSALS = 300
"""How often Optuna is called for a candidate that meets the budget and is new."""
_READING = 1e-3
"""Seconds that a further row takes to be read and tokenized."""
_STATIC_BATCH = 128
"""A static student's step costs little more for it."""
_PATIENCE = 2
"""Epochs without a better score that end a short training."""


class Candidate(BaseModel, frozen=True):
    """A training of the search: a shape that meets the budget in a precision, by a method, at a learning rate."""

    shape: StudentShape
    precision: str
    method: str
    rate: float
    """Times the usual learning rate."""

    @property
    def words(self) -> str:
        """In one line."""
        return f"{self.shape.words}, {self.method}, {self.rate:.1g} × lr"


class Trial(BaseModel):
    """A candidate's measured costs, and its score (0 to 100) after a short training, or why it is missing."""

    candidate: Candidate
    costs: Costs
    rows: int
    score: float | None = None
    error: str = ""
    seconds: float = 0.0
    fixed: float = 0.0
    """The part of `seconds` for exporting, timing, scoring and saving, which more rows would not change."""
    learning: float = 0.0
    """The part of `seconds` for steps and for the teacher in them."""
    epochs: float = 1.0
    """That were trained."""

    def expected(self, rows: int, epochs: float) -> float:
        """Seconds of such a training on other rows, by the measured ones."""
        of_rows = self.learning * rows / self.rows * epochs / self.epochs
        return self.seconds - self.learning + of_rows + _READING * max(0, rows - self.rows)

    @property
    def said(self) -> str:
        """The score, or why it is missing."""
        return self.error.splitlines()[0] if self.score is None else f"{self.score:.1f}"


@dataclass(frozen=True)
class RunTask:
    """A training by `distill`: the process that carries it out loads the recipe, with its plugins."""

    distill: Callable[..., Result]
    method: str
    settings: Mapping[str, Any]
    folder: Path


@dataclass(frozen=True)
class RunEnd:
    """The run of a training, or its error; `lost` where its process ended."""

    run: Result | None = None
    error: LimbeckError | None = None
    seconds: float = 0.0
    lost: bool = False


class RunWork:
    """Carries out trainings."""

    def carry_out(self, task: RunTask) -> RunEnd:
        """Train."""
        began, run, failed = time.monotonic(), None, None
        try:
            recipe = Recipe.load(task.method, **task.settings)
            run = task.distill(recipe, task.folder)
        except LimbeckError as error:
            failed = error
        return RunEnd(run, failed, time.monotonic() - began)

    def lost(self, task: RunTask, problem: Problem) -> RunEnd:
        """Return the problem as the error."""
        return RunEnd(error=LimbeckError(problem), lost=True)


@dataclass(frozen=True)
class Trainings:
    """Makes the trainings of a compression.

    Attributes:
        teacher: its folder or Hub name.
        rows: the trainings' rows, including stored teacher outputs.
        model: costs of shapes.
        workers: carry out the trainings.
    """

    teacher: str
    rows: CompressRows
    model: CostModel
    workers: Workers[RunTask, RunEnd]

    def settings(self, one: Candidate, count: int, seed: int, **more: Any) -> dict[str, Any]:
        """The settings of a training on this number of rows, in its method's recipe."""
        usual = self._usual(one.shape, count)
        four = {"embedding_bits": 4} if one.precision in FOUR_BITS else {}
        return {
            "teacher": self.teacher,
            "student": one.shape.settings | four,
            "seed": seed,
            "floor": False,
            "batch_size": self._batch(one.shape),
            "precision": "auto",
            "lr": float(f"{one.rate * usual.lr:.2g}"),
            **self.rows.sampled(count),
            **more,
        }

    def epochs(self, shape: StudentShape, count: int) -> float:
        """The settings of a training on this number of rows."""
        return float(self.rows.settings.get("epochs") or self._usual(shape, count).epochs)

    def most_epochs(self, shape: StudentShape, count: int) -> float:
        """The settings of a training on this number of rows if there is time."""
        asked = self.rows.settings.get("epochs")
        return float(asked or math.ceil(quick.QUALITY["best"] * self._usual(shape, count).epochs))

    def least_epochs(self, shape: StudentShape, count: int) -> float:
        """The settings of a training on this number of rows if time is short."""
        asked = self.rows.settings.get("epochs")
        return float(asked or quick.least_epochs(count, self._batch(shape), self._depth(shape)))

    def _usual(self, shape: StudentShape, count: int) -> quick.Training:
        return quick.training_for(count, self._batch(shape), self._depth(shape))

    def _depth(self, shape: StudentShape) -> float:
        return shape.layers / self.model.shapes.depth

    def _batch(self, shape: StudentShape) -> int:
        return int(
            self.rows.settings.get("batch_size")
            or (_STATIC_BATCH if shape.is_static else self.rows.recipe.batch_size)
        )

    def trials(
        self, batch: Mapping[int, Candidate], count: int, budget: Budget, place: Path
    ) -> Iterator[tuple[int, Trial]]:
        """Export and time the candidates' shapes one by one, then train the ones within the budget on a few rows.

        Yields each number and trial once it is stored. Its run is gone then; the score is kept.
        """
        begun: list[tuple[int, Trial]] = []
        tasks: list[RunTask] = []
        for number, one in batch.items():
            began = time.monotonic()
            (probe,) = probed(self.model, [(one.shape, one.precision)], place / "costs")
            made = Trial(candidate=one, costs=self.model.costs(probe), rows=count)
            made.seconds = made.fixed = time.monotonic() - began
            if over := budget.exceeded(made.costs):
                said = (f"{name} {amount(name, getattr(made.costs, name))}" for name in over)
                made.error = f"over the budget as measured: {', '.join(said)}"
                yield number, _stored(made, number, place)
                continue
            settings = self.settings(one, count, SEED, patience=_PATIENCE)
            train = partial(distill, overwrite=True, report=False)
            run = place / "trials" / f"run-{number:03}"
            tasks.append(RunTask(train, one.method, settings, run))
            begun.append((number, made))
        for at, end in self.workers.each(tasks):
            number, made = begun[at]
            if end.error is not None:  # another candidate may do
                made.error = str(end.error)
            if end.run is not None:
                record = end.run.record
                made.score, made.epochs = end.run.scores[CHOOSING]["primary"], len(record.epochs)
                cost = record.cost
                made.learning = sum(filter(None, (cost.student_seconds, cost.teacher_seconds)))
                made.fixed -= made.learning + (cost.preparation_seconds or 0.0)
            shutil.rmtree(tasks[at].folder, ignore_errors=True)
            made.seconds += end.seconds
            made.fixed = max(0.0, made.fixed + end.seconds)
            yield number, _stored(made, number, place)


def _stored(made: Trial, number: int, place: Path) -> Trial:
    files.write_whole(place / "trials" / f"{number:03}.json", made.model_dump_json(indent=1))
    return made


def numbered_trials(place: Path) -> dict[int, Trial]:
    """The trials in a compression's folder by number; a stopped batch may lack some."""
    paths = sorted((place / "trials").glob("[0-9]*.json"))
    read = Trial.model_validate_json
    return {int(path.stem): read(path.read_text(encoding="utf-8")) for path in paths}


class Proposals:
    """What to try next: first the largest shapes of each depth that meet the budget, then what Optuna proposes."""

    def __init__(self, model: CostModel, budget: Budget, methods: Sequence[str]) -> None:
        self.model, self.methods = model, tuple(methods)
        fitting = {shape: model.fitting(shape, budget) for shape in model.shapes.all}
        self.fitting = {shape: form for shape, form in fitting.items() if form is not None}
        trials = model.settings.trials
        self.starts = self._starts()[: max(1, trials // 2)]

    def _starts(self) -> list[Candidate]:
        """The largest shape of each depth, the static one first, then from the middle; methods in turn."""

        def size(one: StudentShape) -> tuple[int, int]:
            return self.model.shapes.numbers(one).matrices, self.model.shapes.tokens(one)

        groups: dict[int, list[StudentShape]] = {}
        for shape in self.fitting:
            groups.setdefault(shape.layers, []).append(shape)
        middle = self.model.shapes.depth / 2
        order = sorted(groups, key=lambda layers: (layers > 0, abs(layers - middle)))
        return [
            self._candidate(max(groups[layers], key=size), self.methods[at % len(self.methods)])
            for at, layers in enumerate(order)
        ]

    def _candidate(self, shape: StudentShape, method: str, rate: float = 1.0) -> Candidate:
        return Candidate(shape=shape, precision=self.fitting[shape], method=method, rate=rate)

    def next(self, trials: Sequence[Trial], begun: Sequence[Candidate] = ()) -> Candidate | None:
        """The next candidate after these trials and the begun ones; None where nothing new is found."""
        number = len(trials) + len(begun)
        if number < len(self.starts):
            return self.starts[number]
        tried = {one.words for one in (*(trial.candidate for trial in trials), *begun)}
        over = {one.candidate.shape for one in trials if one.error}
        proposed = self._proposed(trials, SEED + number)
        return next(
            (one for one in proposed if one.words not in tried and one.shape not in over), None
        )

    def _proposed(self, trials: Sequence[Trial], seed: int) -> Iterator[Candidate]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=4)
        study = optuna.create_study(
            directions=["maximize", "minimize", "minimize"], sampler=sampler
        )
        for trial in trials:
            one, costs = trial.candidate, trial.costs
            if trial.score is not None:
                space = self._space(static=one.shape.is_static)
                known = vars(one.shape) | {"method": one.method, "rate": one.rate}
                told = optuna.trial.create_trial(
                    params={name: known[name] for name in space},
                    distributions=space,
                    values=(trial.score, costs.size, costs.latency),
                )
                study.add_trial(told)
        for _ in range(_PROPOSALS):
            asked = study.ask()

            def suggest(name: str, of: BaseDistribution, asked: Any = asked) -> Any:
                if isinstance(of, optuna.distributions.CategoricalDistribution):
                    return asked.suggest_categorical(name, of.choices)
                return asked.suggest_float(name, *_RATES, log=True)

            layers = suggest("layers", self._space(static=True)["layers"])
            space = self._space(static=not layers)
            found = {name: suggest(name, of) for name, of in space.items()}
            method, rate = found.pop("method"), float(f"{found.pop('rate'):.2g}")
            if (shape := StudentShape(**found)) in self.fitting:
                yield self._candidate(shape, method, rate)

    def _space(self, *, static: bool) -> dict[str, BaseDistribution]:
        """What can be chosen of a static student or of a transformer."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution

        alike = [one for one in self.fitting if one.is_static == static]
        own = ("width", "pairs") if static else ("heads", "ffn")
        every = [*self.fitting]
        shapes = dict.fromkeys(own, alike) | {"layers": every, "vocabulary": every}
        found: dict[str, BaseDistribution] = {
            name: CategoricalDistribution([*dict.fromkeys(getattr(one, name) for one in some)])
            for name, some in shapes.items()
            if some
        }
        found["method"] = CategoricalDistribution(self.methods)
        return {**found, "rate": FloatDistribution(*_RATES, log=True)}
