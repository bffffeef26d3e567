"""A store filled shard by shard, here or by Ray, from wherever an earlier start stopped."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from limbeck.labelling.label_failures import none_has_outputs
from limbeck.labelling.missing_rows import MissingRows
from limbeck.labelling.plan import LabelEstimate, LabelPlan, measure_labelling
from limbeck.labelling.teachers_named import LabellerSource
from limbeck.outputs import StoreFiles, StoreManifest, StoreWriter
from limbeck.outputs.manifest import MISSING
from limbeck.outputs.scored_shard import (
    MadeShard,
    ShardContent,
    ShardRows,
    costs_of,
    make_empty_shard,
    make_shard,
)
from limbeck.outputs.shards import shard_name
from limbeck.outputs.store import read_manifest
from limbeck.outputs.writer import alone
from limbeck.support.errors import LimbeckError
from limbeck.support.words import human_size
from limbeck.teachers.labeller import Labeller

# Who makes a store's shards: this process, or others.


class ShardMakers(Protocol):
    """Whoever makes shards."""

    @property
    def workers(self) -> int:
        """How many shards are made at a time."""

    def made(
        self,
        parts: Iterable[ShardRows],
        advance: Callable[[int], None],
        missing: MissingRows,
    ) -> Iterator[MadeShard]:
        """Make shards, in any order.

        Args:
            parts: their rows.
            advance: called with the number of rows that were labelled since the last call.
            missing: told of rows without outputs, whose shards are left out.

        Raises:
            LimbeckError: what is wrong with the labeller's outputs, or with who is to make them.
        """

    def costs(self) -> dict[str, float]:
        """What the labeller, here and elsewhere, has counted so far; of shards that were left out too."""


class LocalMaker:
    """This process, one shard after the other.

    Args:
        files: the store's place.
        content: of every shard.
        labeller: the teacher.
    """

    workers = 1

    def __init__(self, files: StoreFiles, content: ShardContent, labeller: Labeller) -> None:
        self.files, self.content, self.labeller = files, content, labeller

    def made(
        self,
        parts: Iterable[ShardRows],
        advance: Callable[[int], None],
        missing: MissingRows,
    ) -> Iterator[MadeShard]:
        """As `ShardMakers.made`, in order."""
        for part in parts:
            with missing.of(part):
                yield make_shard(self.files, self.labeller, part, self.content, advance)

    def costs(self) -> dict[str, float]:
        """What the labeller has counted."""
        return costs_of(self.labeller)


ENGINES = ("local", "ray")
_ROWS_OF_SHARD = "rows of a shard"


@dataclass(frozen=True)
class LabelWork:
    """What is labelled, by whom and where.

    Attributes:
        files: the store's place.
        plan: the rows and what is stored of them.
        labeller: the teacher.
        source: makes the labeller in other processes.
        engine: `local` or `ray`.
        workers: processes of Ray at most.
    """

    files: StoreFiles
    plan: LabelPlan
    labeller: Labeller
    source: LabellerSource
    engine: str
    workers: int | None


def fill(work: LabelWork, shard_rows: int | None, console: Console) -> StoreManifest:
    """Make the shards that are not there yet, and say so in the manifest after each.

    Args:
        work: what is to be done.
        shard_rows: None: those of the store that is there, or what suits the size of a row.
        console: where size, time and progress are shown.

    Raises:
        LimbeckError: another store is there or is being written, no room, or what is wrong with the outputs.
    """
    files, plan, labeller = work.files, work.plan, work.labeller
    with alone(files):
        found = read_manifest(files)
        estimate = None
        if shard_rows is None and found is not None:
            shard_rows = found.settings.get(_ROWS_OF_SHARD)
        if shard_rows is None:
            estimate = measure_labelling(labeller, plan)
            shard_rows = estimate.shard_rows
        writer = StoreWriter.begin(files, plan.manifest(labeller, shard_rows))
        todo = [n for n in plan.shards(shard_rows) if shard_name(n) not in writer.done]
        if not todo:
            console.print(f"{files.url}: all {writer.manifest.stored_rows:,} rows are there")
            return writer.finish()
        estimate = estimate or measure_labelling(labeller, plan)
        with _makers(work) as makers:
            _say(work, estimate, writer.manifest, len(todo), makers.workers, console)
            # Like all else that the measured batch cost; a shard that finds its answers kept takes no time for them.
            writer.add_costs({"seconds": estimate.kept_seconds})
            _make_shards(work, makers, todo, shard_rows, writer, console)
        return writer.finish()


@contextmanager
def _makers(work: LabelWork) -> Iterator[ShardMakers]:
    """Who makes the shards, for as long as the block runs."""
    if work.engine == "ray":
        # Ray is not there unless it is asked for.
        from limbeck.labelling.by_ray import RayMakers, ray_session

        with ray_session() as ray:
            yield RayMakers(
                ray, work.files, work.plan.content, work.labeller, work.source, work.workers
            )
    else:
        yield LocalMaker(work.files, work.plan.content, work.labeller)


def _make_shards(
    work: LabelWork,
    makers: ShardMakers,
    todo: Sequence[int],
    shard_rows: int,
    writer: StoreWriter,
    console: Console,
) -> None:
    """Make shards and record each, what they cost, and which rows no outputs were had for.

    Args:
        todo: their numbers.
        shard_rows: rows of each.
    """
    plan, missing = work.plan, MissingRows(work.files)
    parts = (plan.part(number, shard_rows) for number in todo)
    spent: Counter[str] = Counter()
    try:
        done = writer.manifest.stored_rows + len(writer.manifest.missing_rows)
        with labelling_progress(console, len(plan), done) as advance:
            for shard in makers.made(parts, advance, missing):
                writer.record(shard.record, shard.layout, shard.costs)
                spent.update(shard.costs)
        if plan.drop_missing:
            _record_empty(work, todo, shard_rows, writer, missing)
    finally:
        missing.write(writer.manifest.missing_rows)
        # The measured batch, and rows of shards that were not made whole.
        writer.add_costs({name: count - spent[name] for name, count in makers.costs().items()})
    if plan.drop_missing and missing.reasons and not writer.manifest.stored_rows:
        raise none_has_outputs(f"{len(plan):,} rows", missing.reasons.values())
    missing.check()
    if left_out := len(writer.manifest.missing_rows):
        console.print(f"rows without outputs, left out: {left_out:,} ({MISSING} names them)")


def _record_empty(
    work: LabelWork,
    todo: Sequence[int],
    shard_rows: int,
    writer: StoreWriter,
    missing: MissingRows,
) -> None:
    """Record the shards none of whose rows has outputs as empty, once another shard tells what their columns are."""
    if not writer.manifest.stored_rows:
        return
    for number in todo:
        if shard_name(number) in writer.done:
            continue
        part = work.plan.part(number, shard_rows)
        ids = part.ids.tolist()
        if missing.reasons.keys() >= {*ids}:
            reasons = {row: missing.reasons.pop(row) for row in ids}
            layout, content = writer.manifest.layout, work.plan.content
            made = make_empty_shard(work.files, work.labeller, part, content, layout, reasons)
            writer.record(made.record, made.layout)


def _say(
    work: LabelWork,
    estimate: LabelEstimate,
    made: StoreManifest,
    shards: int,
    workers: int,
    console: Console,
) -> None:
    """Print size and time before they are spent; of several workers each is taken to be as fast as this process.

    Args:
        made: what an earlier start made; rows that it left out are not asked for again.

    Raises:
        LimbeckError: there is no room for the store.
    """
    files, plan = work.files, work.plan
    stored, without = made.stored_rows, len(made.missing_rows)
    left = len(plan) - stored - without
    whole = estimate.size(left, shards)
    again = len(plan.rows) - len(plan)
    beside = {
        "more have the same texts": again,
        "say nothing": plan.rows.blank,
        "have no label": plan.rows.without_target,
    }
    left_out = ", ".join(f"{count:,} {why}" for why, count in beside.items() if count)
    rows = f"{len(plan):,} rows" + (f" ({left_out})" if left_out else "")
    console.print(f"teacher: {work.labeller.name} · {rows} · outputs: {', '.join(plan.outputs)}")
    if made.shards:
        out = f", {without:,} were left out" if without else ""
        console.print(
            f"{files.url} is continued: {stored:,} rows are there{out}, {left:,} are left"
        )
    costs = [f"{_rounded(count * left)} {name}" for name, count in estimate.costs.items() if count]
    workers = min(workers, shards)
    seconds = estimate.seconds / workers
    speed = f"{1 / max(seconds, 1e-9):,.0f} rows/s"
    if workers > 1:
        speed += f" by {workers} workers as fast as this process"
    console.print(
        f"by one measured batch: about {human_size(whole)}, about {spoken(seconds * left)} ({speed})"
        + "".join(f", {cost}" for cost in costs)
    )
    if files.folder is not None:
        free = shutil.disk_usage(files.folder).free
        if whole > free:
            raise LimbeckError(
                f"{files.url}: the store would take about {human_size(whole)} of {human_size(free)} free",
                "make room, name another place with --out, or ask for fewer --outputs",
            )


def _rounded(count: float) -> str:
    """`12,772`, `41`, `0.0123`: whole where it is large, as tokens are, and to three digits where it may be money."""
    if count >= 100:
        return f"{count:,.0f}"
    return np.format_float_positional(count, precision=3, fractional=False, trim="-")


# How far labelling has come: a bar with rows a second and the time left, lines where nobody looks.


_LINE_SECONDS = 60.0


class _RowsPerSecond(ProgressColumn):
    """Over the last minutes, as the time left is reckoned."""

    def render(self, task: Task) -> Text:
        """`214 rows/s`."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.1f} rows/s")


@contextmanager
def labelling_progress(console: Console, rows: int, done: int) -> Iterator[Callable[[int], None]]:
    """Gives what is told of rows labelled; `done` of them were before. A log gets a line each minute."""
    bar = Progress(
        TextColumn("rows"),
        BarColumn(),
        MofNCompleteColumn(),
        _RowsPerSecond(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=120,
    )
    task = bar.add_task("rows", total=rows, completed=done)
    began = last = time.monotonic()
    now_done = 0

    def advance(count: int) -> None:
        nonlocal last, now_done
        now_done += count
        bar.advance(task, count)
        now = time.monotonic()
        if not console.is_terminal and now - last >= _LINE_SECONDS:
            last = now
            speed = now_done / (now - began)
            left = (rows - done - now_done) / speed
            console.print(
                f"{done + now_done:,} of {rows:,} rows, {speed:,.1f} rows/s, {spoken(left)} left",
                highlight=False,
            )

    with bar:
        yield advance


def spoken(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
