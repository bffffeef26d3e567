"""From records to the numbers of each drawing: curves, terms, draws, cost.

Part of `limbeck.report`; finished runs only, means over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

from limbeck.records import Epoch, Record
from limbeck.report.plots import Series, StackedBars
from limbeck.tables.model import place_of

GroupKey = tuple[str, int | None]
"""Method and student layers: one line or bar of the report."""


def by_place(runs: Iterable[Record]) -> dict[str, list[Record]]:
    """Runs of each task and data, in the order of appearance."""
    found: dict[str, list[Record]] = {}
    for run in runs:
        found.setdefault(place_of(run), []).append(run)
    return found


def by_group(runs: Iterable[Record]) -> dict[GroupKey, list[Record]]:
    """Runs of each method and student depth."""
    found: dict[GroupKey, list[Record]] = {}
    for run in runs:
        found.setdefault((run.method, run.student.layers), []).append(run)
    return found


def curve(
    name: str, style: int, runs: Sequence[Record], value: Callable[[Epoch], float | None]
) -> Series | None:
    """Mean, lowest and highest over runs at each epoch; None where nothing was recorded."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for place, epoch in _placed(run):
            number = value(epoch)
            if number is not None:
                found.setdefault(place, []).append(number)
    if not found:
        return None
    epochs = sorted(found)
    return Series(
        name,
        style,
        tuple(float(epoch) for epoch in epochs),
        tuple(fmean(found[epoch]) for epoch in epochs),
        tuple(min(found[epoch]) for epoch in epochs),
        tuple(max(found[epoch]) for epoch in epochs),
    )


def _placed(run: Record) -> Iterator[tuple[int, Epoch]]:
    """Each epoch with its number in the whole run: stages count their own from 1."""
    lengths: dict[int, int] = {}
    for epoch in run.epochs:
        lengths[epoch.stage] = max(lengths.get(epoch.stage, 0), epoch.epoch)
    for epoch in run.epochs:
        before = sum(length for stage, length in lengths.items() if stage < epoch.stage)
        yield before + epoch.epoch, epoch


def term_names(runs: Iterable[Record]) -> list[str]:
    """Every named training term that was logged, the total loss first."""
    names = {name: None for run in runs for epoch in run.epochs for name in epoch.train}
    return sorted(names, key=lambda name: name != "loss")


def draws(run: Record) -> dict[str, list[tuple[int, list[list[int]]]]]:
    """Objective → (epoch, pairs) for each objective whose layers changed during the run."""
    found: dict[str, list[tuple[int, list[list[int]]]]] = {}
    for place, epoch in _placed(run):
        for objective, pairs in epoch.active_layers.items():
            found.setdefault(objective, []).append((place, pairs))
    return {
        objective: epochs
        for objective, epochs in found.items()
        if any(pairs != epochs[0][1] for _, pairs in epochs)
    }


SECONDS = ("student", "teacher", "evaluation", "preparation", "team")
"""Parts of a run's time; the rest, saving and measuring, is small."""
_SECONDS = tuple((part, f"{part}_seconds") for part in SECONDS)
_FLOPS = (("student", "student_flops"), ("teacher", "teacher_flops"))


def seconds_split(name: str, runs: Sequence[Record]) -> StackedBars | None:
    """Mean seconds of a run by what they went into; the rest is "other"."""
    totals = [r.cost.total_seconds for r in runs if r.cost.total_seconds is not None]
    if not totals:
        return None
    parts = [(label, _mean_cost(runs, field)) for label, field in _SECONDS]
    other = max(0.0, fmean(totals) - sum(value for _, value in parts))
    return StackedBars(name, (*parts, ("other", other)))


def flops_split(name: str, runs: Sequence[Record]) -> StackedBars | None:
    """Mean FLOPs of a run, student and teacher, in units of 10¹²."""
    if not any(run.cost.student_flops for run in runs):
        return None
    return StackedBars(name, tuple((label, _mean_cost(runs, f) / 1e12) for label, f in _FLOPS))


def _mean_cost(runs: Sequence[Record], field: str) -> float:
    values = [getattr(run.cost, field) or 0.0 for run in runs]
    return fmean(values) if values else 0.0
