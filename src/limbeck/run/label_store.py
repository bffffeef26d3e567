"""A store filled shard by shard, here or by Ray, from wherever an earlier start stopped. Part of `limbeck.run`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console

from limbeck.byte_sizes import human_size
from limbeck.errors import LimbeckError
from limbeck.run.label_estimate import LabelEstimate, measure_labelling
from limbeck.run.label_plan import LabelPlan
from limbeck.run.label_progress import labelling_progress, spoken
from limbeck.run.missing_rows import MISSING, MissingRows
from limbeck.run.teachers_named import LabellerSource
from limbeck.teachers.labelling import Labeller
from limbeck.teachers.outputs import StoreFiles, StoreManifest, StoreWriter
from limbeck.teachers.outputs.output_store import read_manifest
from limbeck.teachers.outputs.parquet_shards import shard_name
from limbeck.teachers.outputs.scored_shard import MadeShard, ShardRows, costs_of, make_shard
from limbeck.teachers.outputs.store_writer import alone

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
        stored = writer.manifest.stored_rows
        if not todo:
            console.print(f"{files.url}: all {stored:,} rows are there")
            return writer.finish()
        _say(work, estimate or measure_labelling(labeller, plan), stored, console)
        parts = (plan.part(number, shard_rows) for number in todo)
        _make_shards(work, parts, writer, console)
        return writer.finish()


def _make_shards(
    work: LabelWork, parts: Iterable[ShardRows], writer: StoreWriter, console: Console
) -> None:
    """Make shards and record each, what they cost, and which rows no outputs were had for."""
    missing = MissingRows(work.files)
    # Ray's actors count for themselves, shard by shard.
    counts = costs_of(work.labeller) if work.engine == "local" else {}
    spent = dict.fromkeys(counts, 0.0)
    try:
        with labelling_progress(console, len(work.plan), writer.manifest.stored_rows) as advance:
            for shard in _made(work, parts, advance, missing):
                writer.record(shard.record, shard.layout, shard.costs)
                for name in spent:
                    spent[name] += shard.costs[name]
    finally:
        missing.write(writer.manifest.missing_rows)
        # The measured batch, and rows of shards that were not made whole.
        counted = costs_of(work.labeller)
        writer.add_costs({name: counted[name] - spent[name] for name in spent})
    missing.check()
    if left_out := len(writer.manifest.missing_rows):
        console.print(f"rows without outputs, left out: {left_out:,} ({MISSING} names them)")


def _made(
    work: LabelWork,
    parts: Iterable[ShardRows],
    advance: Callable[[int], None],
    missing: MissingRows,
) -> Iterator[MadeShard]:
    plan = work.plan
    if work.engine == "ray":
        # Ray is not there unless it is asked for.
        from limbeck.run.label_by_ray import make_by_ray

        yield from make_by_ray(work.files, plan, work.source, parts, work.workers, advance)
        return
    for part in parts:
        with missing.of(part):
            yield make_shard(
                work.files,
                work.labeller,
                part,
                plan.outputs,
                plan.batch_size,
                text_names=plan.text_names,
                drop_missing=plan.drop_missing,
                advance=advance,
            )


def _say(work: LabelWork, estimate: LabelEstimate, stored: int, console: Console) -> None:
    """Print size and time before they are spent.

    Raises:
        LimbeckError: there is no room for the store.
    """
    files, plan = work.files, work.plan
    left = len(plan) - stored
    whole = estimate.bytes * left
    again = len(plan.rows) - len(plan)
    beside = {
        "more have the same texts": again,
        "say nothing": plan.rows.blank,
        "have no label": plan.rows.without_target,
    }
    left_out = ", ".join(f"{count:,} {why}" for why, count in beside.items() if count)
    rows = f"{len(plan):,} rows" + (f" ({left_out})" if left_out else "")
    console.print(f"teacher: {work.labeller.name} · {rows} · outputs: {', '.join(plan.outputs)}")
    if stored:
        console.print(f"{files.url} is continued: {stored:,} rows are there, {left:,} are left")
    costs = [f"{count * left:,.4g} {name}" for name, count in estimate.costs.items() if count]
    console.print(
        f"by one measured batch: at most {human_size(whole)}, about {spoken(estimate.seconds * left)} "
        f"({1 / max(estimate.seconds, 1e-9):,.0f} rows/s)" + "".join(f", {cost}" for cost in costs)
    )
    if files.folder is not None:
        free = shutil.disk_usage(files.folder).free
        if whole > free:
            raise LimbeckError(
                f"{files.url}: the store would take {human_size(whole)} of {human_size(free)} free",
                "make room, name another place with --out, or ask for fewer --outputs",
            )
