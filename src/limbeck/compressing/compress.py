"""`compress(teacher, budget)`: find, train and export the best student that meets a budget.

The rows are read and labelled by the teacher; shapes are costed; candidates are tried for a short time; finalists are
trained to the end, exported and measured. Every step stores its results in the folder, so that the same command
resumes after a kill.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from limbeck.compressing import finals, front, page
from limbeck.compressing.budget import Budget, amount
from limbeck.compressing.costs import CostModel, first_probes
from limbeck.compressing.front import FrontPoint
from limbeck.compressing.pace import Hours, Pace
from limbeck.compressing.rows import CompressRows, recipe_of, rows_of, with_outputs
from limbeck.compressing.settings import MAY_CHANGE, CompressSettings
from limbeck.compressing.shapes import Shapes
from limbeck.compressing.trials import (
    SEED,
    Candidate,
    Proposals,
    RunEnd,
    RunTask,
    RunWork,
    Trainings,
    Trial,
    numbered_trials,
)
from limbeck.compressing.vocabularies import vocabularies
from limbeck.preflight import refuse_beyond
from limbeck.recipe import Recipe, catalog
from limbeck.recipe.teacher_text import usual_method
from limbeck.records.machine import processor_name
from limbeck.run.inputs import checksums_of_inputs
from limbeck.runtimes.sessions import need_extra
from limbeck.scoring.scored_model import class_names
from limbeck.students import load_model, read_config, read_processor
from limbeck.support import files, lock, machine, terminal
from limbeck.support.cores import check_threads
from limbeck.support.errors import LimbeckError, Problem, collecting, raise_problems, unknown
from limbeck.support.positions import positions_of
from limbeck.support.words import count_of
from limbeck.support.workers import Workers, check_engine, workers
from limbeck.tasks import kind_of_config

ASKED_NAME = "compress.json"
"""The file of the settings, in the folder."""
_FIRST_FILES = {ASKED_NAME, "rows", "costs"}
"""All that a command leaves that ended with an error about its budget or rows: the corrected one replaces it."""
# Parts of the time that a short training may take, and the teacher's outputs, by the time of a pass.
_FIRST, _ASKED = 8.0, 4.0
_FAMILIES = ("baseline", "soft-label", "embedding", "ranking")
"""Families of methods that compare outputs, if any."""
_COUNTED = ("size", "parameters")
"""Limits that can be checked before any shape is exported."""
_FINAL = 2 / 3
"""Share of the time that finalists may take: on some hundred dev rows short trainings differ little."""


@dataclass(frozen=True)
class CompressResult:
    """The result of a compression.

    Attributes:
        path: its folder, with `front.json`, the drawing, the page and all students.
        points: every measured model; the front and the recommendation are marked.
        about: the other contents of `front.json`.
    """

    path: Path
    points: list[FrontPoint]
    about: dict[str, Any]

    @property
    def recommended(self) -> FrontPoint | None:
        """The model to ship; None where none fits the budget."""
        return next((one for one in self.points if one.recommended), None)


def compress(
    teacher: str | Path,
    budget: str,
    out: str | Path = "compressed",
    *,
    overwrite: bool = False,
    show: bool = False,
    recipe: dict[str, Any] | None = None,
    **settings: Any,
) -> CompressResult:
    """Find, train and export students that meet a budget; called again after a kill it resumes.

    Args:
        teacher: a run's folder, a checkpoint's folder or Hub name.
        budget: limits, such as `size=6MB,latency=2ms,score=97%`.
        out: the folder to write.
        overwrite: replace another compression in the folder.
        show: print the reachable budgets, and progress, on standard error.
        recipe: settings of `distill` that determine the rows and how they are read: data, dev, task, unlabelled,
            text_columns, label_column, outputs, max_length, ….
        settings: of `CompressSettings`: hours, trials, finalists, seeds, methods, precisions, batch, length, threads,
            jobs, engine, address, ….

    Example:
        ```python
        found = limbeck.compress("runs/teacher", "size=6MB,latency=2ms", recipe={"data": "questions.csv"}, hours=0.5)
        ```

    Raises:
        LimbeckError: settings, rows or a teacher that cannot be used; a budget that no shape meets, with the nearest
            that is reachable; a folder that another compression has written.
    """
    asked, wanted = _checked({"budget": budget, **settings}, str(teacher))
    place, rows = files.at_home(out), recipe or {}
    read = checksums_of_inputs(recipe_of(str(teacher), rows))
    with lock.in_use(place), files.one_error_for_a_full_disk(place):
        identity = json.loads(asked.model_dump_json(exclude=MAY_CHANGE))
        named = {"teacher": str(teacher), "recipe": rows, "files": read}
        _take(place, named | identity, overwrite)
        with workers(RunWork(), asked.jobs, asked.engine, asked.address) as some:
            work = _Compression(str(teacher), asked, wanted, place, show, some)
            return work.carry_out(rows)


def _checked(given: dict[str, Any], teacher: str) -> tuple[CompressSettings, Budget]:
    """The settings and the budget. Raises LimbeckError for all problems with them, and for missing settings."""
    problems: list[Problem] = []

    def tried(work: Callable[[], Any]) -> Any:
        with collecting(problems):
            return work()

    asked = tried(lambda: CompressSettings.checked(given))
    budget = tried(lambda: Budget.parse(str(given["budget"])))
    if asked is not None:
        tried(lambda: check_engine(asked.engine, asked.address))
        tried(lambda: check_threads([asked.threads]))
    tried(lambda: need_extra("optuna", "compress"))
    tried(lambda: need_extra("onnx", "compress"))
    tried(lambda: read_config(teacher))
    families = {entry.method: entry.family for entry in catalog.available()}
    fit = [name for name, family in families.items() if family in _FAMILIES]
    for name in () if asked is None else asked.methods:
        if name not in families:
            problems.append(unknown("method", name, fit))
        elif name not in fit:
            problems.append(
                Problem(
                    f"methods: {name} reads more than the outputs of one teacher, and nothing else is stored",
                    f"choose among {', '.join(fit)}; train the shape that is found with {name}: limbeck distill",
                )
            )
    raise_problems(problems)
    return asked, budget


def _take(place: Path, asked: dict[str, Any], overwrite: bool) -> None:
    """Take the folder for this compression; with more time or trials the same one continues."""
    path, asked = place / ASKED_NAME, {"out": str(place), **asked}
    others = [one for one in place.iterdir() if not one.name.startswith(".limbeck")]
    if path.is_file():
        known, asked = (
            json.loads(path.read_text(encoding="utf-8")),
            json.loads(json.dumps(asked, default=str)),
        )
        begun = known.setdefault("out", asked["out"])
        if known == asked:
            return
        if not overwrite and not {one.name for one in others} <= _FIRST_FILES:
            if known | {"out": asked["out"]} == asked:
                raise LimbeckError(
                    f"out: {place} was begun as {begun}, and its runs name their files by that path",
                    f"move it back to {begun} to continue, or choose another folder with --out",
                )
            was, now = known.pop("files", {}), asked.pop("files", {})
            changed = [one for one in {**was, **now} if was.get(one) != now.get(one)]
            since = f": since it began, these have changed: {', '.join(changed)}"
            raise LimbeckError(
                f"out: {place} holds another compression" + since * (known == asked),
                "choose another folder with --out, or pass --overwrite to replace it",
            )
        for one in others:
            shutil.rmtree(one) if one.is_dir() else one.unlink()
    elif others:
        raise LimbeckError(
            f"out: {place} is not empty and holds no compression",
            "choose another folder with --out",
        )
    files.write_whole(path, json.dumps(asked, indent=1, default=str) + "\n")


@dataclass(frozen=True)
class _Compression:
    """One compression in its folder."""

    teacher: str
    asked: CompressSettings
    budget: Budget
    place: Path
    show: bool
    workers: Workers[RunTask, RunEnd]

    def say(self, line: str) -> None:
        """Print a line of progress."""
        terminal.print_line(terminal.messages(shown=self.show), line)

    def carry_out(self, given: dict[str, Any]) -> CompressResult:
        """All steps; finished steps are read from the folder."""
        hours = Hours(self.place / "spent.json", self.asked.hours)
        with hours.step("rows, costs and outputs of the teacher"):
            trainings, proposals, said = self._begun(given)
        trials = self._tried(trainings, proposals, hours)
        pace = Pace(trainings, trials)
        points, notes = finals.measured(trials, pace, hours, self.budget, self.place, self.say)
        if hours.left < 0:
            took = (hours.seconds - hours.left) / 3600
            said.append(
                f"the steps took {took:.2g} hours, more than the {self.asked.hours:g} given"
            )
        return self._told(trainings.rows, trials, points, [*said, *notes])

    def _begun(self, given: dict[str, Any]) -> tuple[Trainings, Proposals, list[str]]:
        """The steps before the first trial, and their messages."""
        rows = rows_of(self.teacher, given, self.place / "rows")
        teacher, model, reached = self._costed(rows)
        proposals = Proposals(model, self.budget, self.asked.methods or _usual_methods(rows))
        trainings = Trainings(teacher, rows, model, self.workers)
        for method in proposals.methods:  # a recipe's errors are raised before any work
            Recipe.load(method, **trainings.settings(proposals.starts[0], rows.count, SEED))
        some, said = self._answered_in_time(rows, model), [reached]
        name = "outputs" if some is rows else f"outputs-{some.count}"
        if some is not rows:
            said.append(f"{some.count:,} of {rows.count:,} training rows are read, for the time")
        some = with_outputs(some, teacher, self.place / name, show=self.show)
        return replace(trainings, rows=some), proposals, said

    def _answered_in_time(self, rows: CompressRows, model: CostModel) -> CompressRows:
        """As many rows as the teacher answers in a part of the time, by the time of a pass on the CPU."""
        each = model.predicted(model.shapes.all[0], "float").latency / 1e3
        if rows.settings.get("outputs") or not each or machine.device().type != "cpu":
            return rows
        return rows.limited(int(3600 * self.asked.hours / _ASKED / each))

    def _costed(self, rows: CompressRows) -> tuple[str, CostModel, str]:
        """The teacher's folder, costs of all shapes, and the reachable budgets: by arithmetic, then as measured."""
        kind = rows.task.kind
        if kind.generates or not kind.reads.in_columns:
            raise LimbeckError(
                f"compress: {rows.task.name} is of kind {kind.name}",
                "give texts with classes, numbers or tags; others are distilled one by one: limbeck distill",
            )
        teacher = load_model(self.teacher, head="required", auto=kind.auto)
        refuse_beyond(teacher, rows.recipe.max_length)
        length, positions = self.asked.length, positions_of(teacher)
        if positions is not None and length > positions:
            raise LimbeckError(
                f"length {length}: the teacher reads {positions} tokens at most",
                f"give --length {positions} or less",
            )
        class_names(rows.task, teacher.config, side="teacher")
        tokenizer, size = read_processor(self.teacher, kind.reads), teacher.config.vocab_size
        known = vocabularies(tokenizer, size, rows.texts, smaller=kind.repeats)
        shapes = Shapes(teacher, kind, tuple(known), len(rows.task.text_columns))
        model = CostModel(shapes, known, self.asked)
        counted = {one: self.budget.limits[one] for one in _COUNTED if one in self.budget.limits}
        if counted:
            self.say(f"by arithmetic: {reachable(model, Budget(counted))}")
        self.say("exporting and timing a few shapes")
        model = CostModel(shapes, known, self.asked, first_probes(model, self.place / "costs"))
        said = reachable(model, self.budget)
        self.say(said)
        own = kind_of_config(read_config(self.teacher))
        if not shapes.gives_embeddings or own.name == kind.name:
            return self.teacher, model, said
        # Stores and exports take an encoder alone for a model without its head.
        place = str(self.place / "teacher")
        teacher.save_pretrained(place)
        tokenizer.save_pretrained(place)
        return place, model, said

    def _tried(self, trainings: Trainings, proposals: Proposals, hours: Hours) -> list[Trial]:
        """The trials, made until there are enough, or the remaining time is reserved for the finalists.

        Raises:
            LimbeckError: no trial has ended with a score.
        """
        done = numbered_trials(self.place)
        for number, trial in done.items():
            hours.add(f"trial {number}", trial.seconds)
        whole = hours.left + hours.of_trials(done)
        rows = min(self.asked.trial_rows, trainings.rows.count)
        if done:
            rows = next(iter(done.values())).rows
        elif proposals.starts:
            pace = Pace(trainings, [])
            rows = min(pace.rows_for(one, whole / _FIRST, rows) for one in proposals.starts)
        jobs, first = self.asked.jobs, next(at for at in range(len(done) + 1) if at not in done)
        for start in range(first - first % jobs, self.asked.trials, jobs):
            numbers = range(start, self.asked.trials)[:jobs]
            earlier = [done[at] for at in range(start)]
            batch, pace = _batch(numbers, proposals, earlier, done), Pace(trainings, earlier)
            # The time as it was when the batch began.
            left = hours.left + hours.of_trials(batch) - self._need(pace, whole)
            while earlier and batch and pace.trial_batch([*batch.values()], rows) > left:
                batch.popitem()
            new, began = {at: one for at, one in batch.items() if at not in done}, time.monotonic()
            for number, made in trainings.trials(new, rows, self.budget, self.place):
                now, one = time.monotonic(), made.candidate
                hours.add(f"trial {number}", now - began)  # its part of the batch's time
                began, done[number] = now, made
                self.say(f"trial {number}: {one.words}, {one.precision}: {made.said}")
            if len(batch) < len(numbers):
                break
        trials = [done[number] for number in sorted(done)]
        if all(one.score is None for one in trials):
            errors = "\n".join(dict.fromkeys(one.error for one in trials))
            raise LimbeckError(
                f"compress: no trial has ended with a score:\n{errors}",
                "correct this, or raise the budget a little, or --trials; and choose another --out",
            )
        return trials

    def _need(self, pace: Pace, whole: float) -> float:
        """Seconds that finalists need to the end, at most a share of the time, and their exports in any case."""
        best = finals.chosen(pace.trials, self.asked.finalists)
        count, ends = pace.trainings.rows.count, pace.ends(best)
        each = [pace.training(one.candidate, count) for one in best]
        trained = max([self.asked.seeds * sum(each) / self.asked.jobs, *each])
        return max(ends, min(trained + ends, _FINAL * whole))

    def _told(
        self,
        rows: CompressRows,
        trials: Sequence[Trial],
        points: Sequence[FrontPoint],
        notes: Sequence[str],
    ) -> CompressResult:
        """The front, its recommendation, and the files about both."""
        whole = front.with_front(points, self.budget)
        teacher = next(one for one in whole if one.kind == "teacher")
        best = front.recommended(whole, self.budget, teacher.chosen_on)
        reason = f"No model fits {self.budget} as it was measured."
        if best is not None:
            point, why = best
            reason = f"Recommended: {point.name}, {point.precision}: {why}."
            at = whole.index(point)
            update = {"recommended": True, "path": finals.shipped(point)}
            whole[at] = point.model_copy(update=update)
        asked = self.asked
        about = {
            "teacher": Path(self.teacher).name,
            "budget": str(self.budget),
            "task": rows.task.title,
            "metric": rows.task.primary,
            "condition": f"batch {asked.batch}, {asked.length} of the teacher's tokens, "
            f"{count_of(asked.threads, 'thread')} of ONNX Runtime, {processor_name()}",
            "reason": reason,
            "notes": [*notes],
            "trials": [
                one.model_dump() | {"said": one.said, "words": one.candidate.words}
                for one in trials
            ],
        }
        page.write_front(self.place, whole, about)
        return CompressResult(self.place, whole, about)


def _batch(
    numbers: Sequence[int],
    proposals: Proposals,
    earlier: Sequence[Trial],
    done: Mapping[int, Trial],
) -> dict[int, Candidate]:
    """The candidates of the trials that are made together, by number; fewer where nothing new is found."""
    found: dict[int, Candidate] = {}
    for number in numbers:
        known = done.get(number)
        one = known.candidate if known else proposals.next(earlier, [*found.values()])
        if one is None:
            break
        found[number] = one
    return found


def _usual_methods(rows: CompressRows) -> tuple[str, ...]:
    """For texts with classes the methods that compare outputs, and labels if there are some; otherwise the default."""
    labelled = bool(rows.labelled)
    usual = usual_method(rows.task.kind, labelled=labelled)
    several = ("kd-soft", "logit-mse", *("kd",) * labelled)
    of_classes = rows.task.kind.labels_texts and not rows.task.regression
    return several if usual in several and of_classes else (usual,)


def reachable(model: CostModel, budget: Budget) -> str:
    """The meaning of a budget, in one sentence.

    Raises:
        LimbeckError: nothing meets it; the nearest that is reachable is named.
    """
    shapes, numbers = model.shapes.all, model.shapes.numbers
    fitting = {one: form for one in shapes if (form := model.fitting(one, budget)) is not None}
    if not fitting:
        raise _nearest(model, budget)
    deepest, said = model.shapes.depth, []
    for name, some in (
        (f"with all {deepest} layers", [one for one in fitting if one.layers == deepest]),
        ("with the full vocabulary", [one for one in fitting if one.layers and not one.vocabulary]),
        ("static", [one for one in fitting if one.is_static]),
    ):
        sizes = {numbers(one).total(model.shapes.tokens(one)): one for one in some}
        largest = sizes[max(sizes)] if sizes else None
        said.append(f"{name}: {f'{largest.words} ({fitting[largest]})' if largest else 'none'}")
    if model.shapes.texts > 1 and not any(one.is_static for one in shapes):
        said[-1] += ", because it cannot compare the texts of a row"
    return f"{budget} allows {len(fitting)} of {len(shapes)} shapes; the largest {'; '.join(said)}"


def _nearest(model: CostModel, budget: Budget) -> LimbeckError:
    """The error of a budget that nothing meets: the shape that exceeds it least."""
    costs = {
        (one, precision): model.predicted(one, precision)
        for one in model.shapes.all
        for precision in model.precisions(one)
    }
    shape, precision = min(costs, key=lambda one: max(budget.exceeded(costs[one]).values()))
    found = costs[shape, precision]
    said = ", ".join(f"{name} {amount(name, getattr(found, name))}" for name in budget.limits)
    return LimbeckError(
        f"budget {budget}: no student meets it; the nearest is {shape.words} in {precision}, with {said}",
        "raise the budget slightly above that, or allow another precision (--precisions)",
    )
