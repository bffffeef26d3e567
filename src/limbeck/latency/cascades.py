"""The time per row of a cascade: expected from its members' times, and measured. Part of `limbeck.latency`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from limbeck.data import RowsAsked
from limbeck.exporting.cascade import TEXT_SPLIT, seconds_per_row, text_split
from limbeck.latency.contenders import Contender, contenders
from limbeck.latency.report import Measurement
from limbeck.runtimes.cascade import CascadeManifest, CascadeMember, is_cascade, read_cascade
from limbeck.scoring.scored_model import LoadedSplit, ScoredModel
from limbeck.support.errors import LimbeckError


def cascade_lines(
    models: Sequence[str], who: Sequence[Contender], found: Sequence[Measurement]
) -> list[str]:
    """A line for each cascade among the models: the expected time of a row, and the measured one.

    Args:
        models: as they were named.
        who: all contenders, the cascades' members among them.
        found: their times; only times of the first condition count.
    """
    first = {one.name: one for one in found if one.condition == found[0].condition}
    # On the first backend that each was timed on.
    timed = {one.path: first[one.name] for one in reversed(who) if one.name in first}
    return [
        f"{Path(name).name}: {_expected(read_cascade(name), timed)}; {_end_to_end(name)}."
        for name in models
        if is_cascade(name)
    ]


def _expected(cascade: CascadeManifest, timed: Mapping[Path, Measurement]) -> str:
    """Each member's time of a row, times the share of rows that reach it."""
    times = [_milliseconds(cascade, one, timed) for one in cascade.members]
    sent = [1.0, *cascade.chosen.sent]
    terms = [
        f"{ms:.3g}" if share == 1 else f"{100 * share:.1f} % × {ms:.3g}"
        for ms, share in zip(times, sent, strict=True)
        if ms is not None
    ]
    if len(terms) < len(times):
        return "no expected time, since some of its models have no times"
    condition = next(iter(timed.values())).condition.words
    whole = np.dot(np.array(times, dtype=float), sent)
    return f"{whole:.3g} ms a row expected ({' + '.join(terms)}; {condition})"


def _milliseconds(
    cascade: CascadeManifest, member: CascadeMember, timed: Mapping[Path, Measurement]
) -> float | None:
    """The time per row; for stored outputs when they were made, None if unknown."""
    if member.stored:
        return 1e3 * member.seconds if member.timed else None
    found = timed.get(contenders([cascade.place_of(member)])[0].path)
    return None if found is None or found.p50 is None else found.p50 / found.condition.batch


def _end_to_end(name: str) -> str:
    """The time of a row on the rows that chose the thresholds, or some of them, tokenization included."""
    model = ScoredModel.open(name)
    if model.stored is not None:
        return "it was not run, as reading stored outputs takes no time"
    try:
        loaded = _rows(model)
    except LimbeckError as error:
        return f"its rows cannot be read, so it was not run: {error.problems[0].message}"
    assert model.cascade is not None
    spent = model.cascade.chosen.seconds
    model = model.in_memory(loaded.task.kind)
    for _ in range(2):  # the first warms it
        spent = seconds_per_row(model, loaded, spent)
    return f"{1e3 * spent:.3g} ms measured on its rows, with tokenization"


def _rows(model: ScoredModel) -> LoadedSplit:
    """The rows that chose the thresholds of a cascade."""
    assert model.cascade is not None
    gate = model.cascade.gate
    if gate.split == TEXT_SPLIT:
        return text_split(model, gate.data, RowsAsked(text_columns=gate.text_columns))
    return replace(model.rows(labeled=False), own_classes=False)
