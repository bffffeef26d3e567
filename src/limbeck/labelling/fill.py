"""A store filled shard by shard, from wherever an earlier start stopped. Part of `limbeck.labelling`."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata

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

from limbeck.data.table import taken
from limbeck.data.text_rows import TextRows
from limbeck.labelling.teachers import LabellerSource
from limbeck.outputs import (
    RowsIdentity,
    StoreFiles,
    StoreManifest,
    StoreWriter,
    TeacherIdentity,
    TokensIdentity,
)
from limbeck.outputs.key import digest_of_ids
from limbeck.outputs.manifest import MISSING, has_one_label
from limbeck.outputs.scored_shard import (
    MadeShard,
    ShardContent,
    ShardRows,
    make_empty_shard,
    make_shard,
    rows_in,
    score_answered,
    score_rows,
    texts_at,
)
from limbeck.outputs.shards import DECIDING, rows_of_shard, shard_name
from limbeck.outputs.store import read_manifest
from limbeck.outputs.writer import alone
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.words import human_size
from limbeck.teachers.labeller import Labeller, RowsMissingError, costs_of

_LIBRARIES = ("limbeck", "torch", "transformers")
_ROWS_OF_SHARD = "rows of a shard"
_SAID = 3
"""Of different reasons, the most frequent ones."""

Reasons = dict[int, str]
"""Why rows have no outputs, by their ids."""


@dataclass(frozen=True)
class LabelWork:
    """What is labelled, by whom and where.

    Attributes:
        files: the store's place.
        rows: all rows that were read; rows of equal texts are labelled once.
        labeller: the teacher.
        content: of every shard: outputs, rows of a batch, texts, whether it is made without rows that have no outputs.
        task: the known task's name, if one was named.
        source: makes the labeller in other processes.
        workers: other processes, at most.
    """

    files: StoreFiles
    rows: TextRows
    labeller: Labeller
    content: ShardContent
    task: str | None = None
    source: LabellerSource | None = None
    workers: int | None = None

    @cached_property
    def ids(self) -> np.ndarray:
        """Of the different rows, in the order in which they were read."""
        found: np.ndarray = self.rows.ids[self.rows.first]
        return found

    def __len__(self) -> int:
        return len(self.rows.first)

    @property
    def decides(self) -> bool:
        """Whether the outputs come to a class or a number; else a store has no labels."""
        named = any(name in DECIDING for name in self.content.outputs)
        return named and has_one_label(self.labeller.kind)

    def part(self, number: int, shard_rows: int) -> ShardRows:
        """The rows of one shard: neighbours, whatever was labelled before."""
        window = slice(number * shard_rows, (number + 1) * shard_rows)
        return ShardRows(number, self.ids[window], self.rows.take(self.rows.first[window]))

    def manifest(self, shard_rows: int) -> StoreManifest:
        """What the store is to be."""
        labeller = self.labeller
        kept = getattr(labeller, "kept_tokens", None)
        return StoreManifest(
            complete=False,
            kind=labeller.kind,
            task=self.task,
            classes=labeller.classes,
            teacher=TeacherIdentity(
                name=labeller.name,
                fingerprint=labeller.fingerprint(),
                shape=getattr(labeller, "shape", None),
            ),
            rows=RowsIdentity(
                count=len(self),
                fingerprint=digest_of_ids(self.ids),
                source=self.rows.source,
                columns=self.rows.names,
                target=kept is not None,
            ),
            # Not the size of batches: outputs follow from it by rounding alone, and whoever runs out of memory
            # continues with smaller ones.
            settings={"outputs": [*self.content.outputs], _ROWS_OF_SHARD: shard_rows},
            text=bool(self.content.text_names),
            labelled=self.decides,
            tokens=kept and TokensIdentity(kept=kept[0], vocabulary=kept[1]),
            made_with={name: metadata.version(name) for name in _LIBRARIES},
        )


def fill(
    work: LabelWork,
    shard_rows: int | None,
    console: Console,
    makers: Callable[[LabelWork], AbstractContextManager[ShardMaker]],
) -> StoreManifest:
    """Make the shards that are not there yet, and say so in the manifest after each.

    Args:
        work: what is to be done.
        shard_rows: None: those of the store that is there, or what suits the size of a row.
        console: where size, time and progress are shown.
        makers: who makes the shards, for as long as that takes.

    Raises:
        LimbeckError: another store is there or is being written, no room, or what is wrong with the outputs.
    """
    with alone(work.files):
        found, estimate = read_manifest(work.files), None
        if shard_rows is None and found is not None:
            shard_rows = found.settings.get(_ROWS_OF_SHARD)
        if shard_rows is None:
            estimate = measure(work)
            shard_rows = rows_of_shard(estimate.bytes)
        writer = StoreWriter.begin(work.files, work.manifest(shard_rows))
        numbers = range(-(-len(work) // shard_rows))
        todo = [number for number in numbers if shard_name(number) not in writer.done]
        if not todo:
            stored = writer.manifest.stored_rows
            console.print(f"{work.files.url}: all {stored:,} rows are there")
            return writer.finish()
        with makers(work) as maker:
            workers = min(maker.workers, len(todo))
            _say(work, estimate or measure(work), writer.manifest, workers, console)
            parts = (work.part(number, shard_rows) for number in todo)
            _make_shards(work, maker, parts, writer, console)
        return writer.finish()


class ShardMaker:
    """Makes a store's shards: this process, one after the other.

    Attributes:
        workers: how many shards are made at a time.
    """

    workers = 1

    def __init__(self, work: LabelWork) -> None:
        self.work = work

    def made(
        self, parts: Iterable[ShardRows], advance: Callable[[int], None]
    ) -> Iterator[tuple[ShardRows, MadeShard | Reasons]]:
        """Make shards, in any order; one that cannot be made has the reasons of its rows without outputs.

        Args:
            parts: their rows.
            advance: called with the number of rows that were labelled since the last call.

        Raises:
            LimbeckError: what is wrong with the labeller's outputs, or with who is to make them.
        """
        work = self.work
        for part in parts:
            yield part, made_or_reasons(work.files, work.labeller, part, work.content, advance)

    def costs(self) -> dict[str, float]:
        """What the labeller, here and elsewhere, has counted so far; of shards that were left out too."""
        return costs_of(self.work.labeller)


def made_or_reasons(
    files: StoreFiles,
    labeller: Labeller,
    part: ShardRows,
    content: ShardContent,
    advance: Callable[[int], None] = lambda rows: None,
) -> MadeShard | Reasons:
    """A shard, written, or why some of its rows have no outputs."""
    try:
        return make_shard(files, labeller, part, content, advance)
    except RowsMissingError as error:
        return {int(part.ids[at]): why for at, why in error.reasons.items()}


def local_maker(work: LabelWork) -> AbstractContextManager[ShardMaker]:
    """This process."""
    return nullcontext(ShardMaker(work))


def _make_shards(
    work: LabelWork,
    maker: ShardMaker,
    parts: Iterable[ShardRows],
    writer: StoreWriter,
    console: Console,
) -> None:
    """Make shards and record each, what they cost, and which rows no outputs were had for."""
    files, content = work.files, work.content
    lacking: list[tuple[ShardRows, Reasons]] = []
    spent: Counter[str] = Counter()
    try:
        done = writer.manifest.stored_rows + len(writer.manifest.missing_rows)
        with labelling_progress(console, len(work), done) as advance:
            for part, made in maker.made(parts, advance):
                if isinstance(made, MadeShard):
                    writer.record(made.record, made.layout, made.costs)
                    spent.update(made.costs)
                else:
                    lacking.append((part, made))
        if content.drop_missing and writer.manifest.stored_rows:
            # A shard of nothing else is empty, once others tell what its columns are.
            for part, why in lacking:
                layout = writer.manifest.layout
                empty = make_empty_shard(files, work.labeller, part, content, layout, why)
                writer.record(empty.record, empty.layout)
            lacking = []
    finally:
        reasons = {row: why for _, found in lacking for row, why in found.items()}
        _write_missing(files, {**writer.manifest.missing_rows, **reasons})
        # The measured batch, and rows of shards that were not made whole.
        writer.add_costs({name: count - spent[name] for name, count in maker.costs().items()})
    if reasons and content.drop_missing:
        raise _none_has_outputs(f"{len(work):,} rows", reasons.values())
    if reasons:
        raise LimbeckError(
            [
                Problem(
                    f"{files.url}: {count} row{'s have' if count > 1 else ' has'} no outputs: {reason}",
                    "run the same command again, which asks for these rows again, or with --missing-rows drop, which "
                    f"leaves them out; {MISSING} names them",
                )
                for reason, count in Counter(reasons.values()).most_common()
            ]
        )
    if left_out := len(writer.manifest.missing_rows):
        console.print(f"rows without outputs, left out: {left_out:,} ({MISSING} names them)")


def _write_missing(files: StoreFiles, reasons: Mapping[int, str]) -> None:
    """Record rows without outputs beside the store, or take the record of an earlier start away."""
    if reasons:
        rows = [{"row": row, "reason": reason} for row, reason in reasons.items()]
        files.write(MISSING, (json.dumps(rows, indent=1, ensure_ascii=False) + "\n").encode())
    elif files.exists(MISSING):
        files.remove(MISSING)


def _none_has_outputs(rows: str, reasons: Iterable[str]) -> LimbeckError:
    """The error that not one of some rows has outputs, with the most frequent reasons."""
    return LimbeckError(
        [
            Problem(
                f"not one of {rows} has outputs: {reason} ({count:,} rows)",
                "look at what the teacher is asked; --missing-rows drop leaves out some rows, never all of them",
            )
            for reason, count in Counter(reasons).most_common(_SAID)
        ]
    )


# What labelling takes, told before it begins, from one measured batch.


# The first call of a model also warms it up.
_WARM_SECONDS = 2.0
# Rows that are labelled at least; where not one of them has outputs, the teacher is taken to give none.
_TRIED_ROWS = 16
# Of a row's id: few classes, and where rows of many lengths end, take some bits when they are compressed.
_ID = 8


@dataclass(frozen=True)
class LabelEstimate:
    """Of one row: bytes before compression, seconds, and what a labeller counts."""

    bytes: float
    seconds: float
    costs: Mapping[str, float]


def measure(work: LabelWork) -> LabelEstimate:
    """Label some rows, drawn evenly from all, and throw the outputs away.

    Rows without outputs are said when all rows are labelled.

    Raises:
        LimbeckError: what is wrong with the labeller's outputs, or that no row has any.
    """
    labeller, content = work.labeller, work.content
    outputs, size = content.outputs, content.batch_size
    count = min(len(work), max(size, _TRIED_ROWS))
    places = work.rows.first[np.arange(count) * len(work) // count]
    texts = {name: taken(column, places).to_pylist() for name, column in work.rows.columns.items()}
    before, began = costs_of(labeller), time.perf_counter()
    try:
        answered = score_answered(labeller, texts, outputs, size)
    except RowsMissingError as error:
        tried = f"{count:,} rows that were tried"
        raise _none_has_outputs(tried, error.reasons.values()) from None
    seconds = (time.perf_counter() - began) / count
    costs = {name: (now - before.get(name, 0)) / count for name, now in costs_of(labeller).items()}
    left = texts_at(texts, [at for at in range(count) if at not in answered.reasons])
    # Whoever counts what it spends keeps its answers: asked again it would only look fast.
    if seconds * count < _WARM_SECONDS and not costs:
        began = time.perf_counter()
        score_rows(labeller, left, outputs, size)
        seconds = (time.perf_counter() - began) / rows_in(left)
    stored = sum(
        part.nbytes
        for value in answered.values.values()
        for part in (value if value.dtype == object else [value])
    )
    if content.text_names:
        stored += sum(len(text.encode()) for column in left.values() for text in column)
    return LabelEstimate(stored / rows_in(left) + _ID, seconds, costs)


def _say(
    work: LabelWork, estimate: LabelEstimate, made: StoreManifest, workers: int, console: Console
) -> None:
    """Print size and time before they are spent; of several workers each is taken to be as fast as this process.

    Args:
        made: what an earlier start made; rows that it left out are not asked for again.

    Raises:
        LimbeckError: there is no room for the store.
    """
    files, rows = work.files, work.rows
    stored, without = made.stored_rows, len(made.missing_rows)
    left = len(work) - stored - without
    beside = {
        "more have the same texts": len(rows) - len(work),
        "say nothing": rows.blank,
        "have no label": rows.without_target,
    }
    left_out = ", ".join(f"{count:,} {why}" for why, count in beside.items() if count)
    counted = f"{len(work):,} rows" + (f" ({left_out})" if left_out else "")
    outputs = ", ".join(work.content.outputs)
    console.print(f"teacher: {work.labeller.name} · {counted} · outputs: {outputs}")
    if made.shards:
        out = f", {without:,} were left out" if without else ""
        console.print(
            f"{files.url} is continued: {stored:,} rows are there{out}, {left:,} are left"
        )
    size, seconds = estimate.bytes * left, estimate.seconds / workers
    speed = f"{1 / max(seconds, 1e-9):,.0f} rows/s"
    if workers > 1:
        speed += f" by {workers} workers as fast as this process"
    costs = [f"{_rounded(count * left)} {name}" for name, count in estimate.costs.items() if count]
    told = [f"about {human_size(size)}", f"about {spoken(seconds * left)} ({speed})", *costs]
    console.print(f"by one measured batch: {', '.join(told)}")
    if files.folder is not None and size > (free := shutil.disk_usage(files.folder).free):
        raise LimbeckError(
            f"{files.url}: the store would take about {human_size(size)} of {human_size(free)} free",
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
