"""A store filled shard by shard, from wherever an earlier start stopped. Part of `limbeck.labelling`."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata

import numpy as np
from rich.console import Console

from limbeck.data.table import taken
from limbeck.data.text_rows import TextRows
from limbeck.outputs import key, manifest, scored_shard, shards, store
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.writer import StoreWriter, alone
from limbeck.support import cells, terminal, words
from limbeck.teachers.labeller import Labeller, RowsMissingError, costs_of

_LIBRARIES = ("limbeck", "torch", "transformers")
_ROWS_OF_SHARD = "rows of a shard"
# The first call of a model also warms it up.
_WARM_SECONDS = 2.0
# Rows that are labelled at least; where not one of them has outputs, the teacher is taken to give none.
_TRIED_ROWS = 16
# With this many rows or more, measuring a slow model once more costs little.
_MANY_ROWS = 50 * _TRIED_ROWS
# Bytes of a row's id; its class, if there are few classes, and the row offsets take only some bits when compressed.
_ID = 8

Reasons = dict[int, str]
"""Why rows have no outputs, by their ids."""


@dataclass(frozen=True)
class LabelWork:
    """The rows to label, the labeller and the store.

    Attributes:
        files: the store's place.
        rows: all rows that were read; rows of equal texts are labelled once.
        labeller: the teacher.
        content: of every shard: outputs, rows of a batch, texts, whether it is made without rows that have no outputs.
        task: the known task's name, if one was named.
    """

    files: StoreFiles
    rows: TextRows
    labeller: Labeller
    content: scored_shard.ShardContent
    task: str | None = None

    @cached_property
    def ids(self) -> np.ndarray:
        """Ids of the different rows, in the order in which they were read."""
        found: np.ndarray = self.rows.ids[self.rows.first]
        return found

    def __len__(self) -> int:
        return len(self.rows.first)

    @property
    def decides(self) -> bool:
        """Whether the outputs determine a class or a number; otherwise a store has no labels."""
        named = any(name in shards.DECIDING for name in self.content.outputs)
        return named and manifest.has_one_label(self.labeller.kind)

    def part(self, number: int, shard_rows: int) -> scored_shard.ShardRows:
        """The rows of one shard: neighbours, whatever was labelled before."""
        window = slice(number * shard_rows, (number + 1) * shard_rows)
        return scored_shard.ShardRows(
            number, self.ids[window], self.rows.take(self.rows.first[window])
        )

    def manifest(self, shard_rows: int) -> manifest.StoreManifest:
        """The new store's description."""
        labeller = self.labeller
        kept = getattr(labeller, "kept_tokens", None)
        return manifest.StoreManifest(
            complete=False,
            kind=labeller.kind,
            task=self.task,
            classes=labeller.classes,
            teacher=manifest.TeacherIdentity(
                name=labeller.name,
                fingerprint=labeller.fingerprint(),
                shape=getattr(labeller, "shape", None),
                thresholds=getattr(labeller, "thresholds", ()),
            ),
            rows=manifest.RowsIdentity(
                count=len(self),
                fingerprint=key.digest_of_ids(self.ids),
                source=self.rows.source,
                columns=self.rows.names,
                target=kept is not None,
            ),
            # Not the batch size: it changes outputs only by rounding, and after running out of memory a user
            # continues with a smaller one.
            settings={"outputs": [*self.content.outputs], _ROWS_OF_SHARD: shard_rows},
            text=bool(self.content.text_names),
            labelled=self.decides,
            tokens=kept and manifest.TokensIdentity(kept=kept[0], vocabulary=kept[1]),
            made_with={name: metadata.version(name) for name in _LIBRARIES},
        )


def fill(work: LabelWork, shard_rows: int | None, console: Console) -> manifest.StoreManifest:
    """Make the missing shards, and update the manifest after each.

    Args:
        work: the work to do.
        shard_rows: None: the existing store's, or a number that suits the size of a row.
        console: where size, time and progress are shown.

    Raises:
        RowsMissingError: rows without outputs, by their ids.
        LimbeckError: another store exists or is being written, or the problem with the outputs.
    """
    with alone(work.files):
        found, estimate = store.read_manifest(work.files), None
        if shard_rows is None and found is not None:
            shard_rows = found.settings.get(_ROWS_OF_SHARD)
        if shard_rows is None:
            estimate = measure(work)
            shard_rows = shards.rows_of_shard(estimate.bytes)
        writer = StoreWriter.begin(work.files, work.manifest(shard_rows))
        numbers = range(-(-len(work) // shard_rows))
        todo = [number for number in numbers if shards.shard_name(number) not in writer.done]
        if todo:
            _say(work, estimate or measure(work), writer.manifest, console)
            _make_shards(work, (work.part(number, shard_rows) for number in todo), writer, console)
        else:
            console.print(f"{work.files.url}: all {writer.manifest.stored_rows:,} rows are there")
        return writer.finish()


def _make_shards(
    work: LabelWork, parts: Iterable[scored_shard.ShardRows], writer: StoreWriter, console: Console
) -> None:
    """Make shards and record each, its cost, and the rows without outputs."""
    files, content, labeller = work.files, work.content, work.labeller
    lacking: list[tuple[scored_shard.ShardRows, Reasons]] = []
    spent: Counter[str] = Counter()
    try:
        done = writer.manifest.stored_rows + len(writer.manifest.missing_rows)
        with terminal.row_bar(console, lambda rows: (done + rows) / len(work)) as advance:
            for part in parts:
                try:
                    made = scored_shard.make_shard(files, labeller, part, content, advance)
                except RowsMissingError as error:
                    why = {int(part.ids[at]): said for at, said in error.reasons.items()}
                    lacking.append((part, why))
                    continue
                writer.record(made.record, made.layout, made.costs)
                spent.update(made.costs)
        if content.drop_missing and writer.manifest.stored_rows:
            # A shard of only such rows is empty, once other shards define its columns.
            for part, why in lacking:
                layout = writer.manifest.layout
                empty = scored_shard.make_empty_shard(files, labeller, part, content, layout, why)
                writer.record(empty.record, empty.layout)
            lacking = []
    finally:
        reasons = {row: why for _, found in lacking for row, why in found.items()}
        _write_missing(files, {**writer.manifest.missing_rows, **reasons})
        # The measured batch, and rows of shards that were not completed.
        costs = costs_of(labeller)
        writer.add_costs({name: count - spent[name] for name, count in costs.items()})
    if reasons:
        raise RowsMissingError(reasons)
    if left_out := len(writer.manifest.missing_rows):
        console.print(
            f"rows without outputs, left out: {left_out:,} ({manifest.MISSING} names them)"
        )


def _write_missing(files: StoreFiles, reasons: Mapping[int, str]) -> None:
    """Record rows without outputs next to the store, or remove an earlier start's record."""
    if reasons:
        rows = [{"row": row, "reason": reason} for row, reason in reasons.items()]
        files.write(
            manifest.MISSING, (json.dumps(rows, indent=1, ensure_ascii=False) + "\n").encode()
        )
    elif files.exists(manifest.MISSING):
        files.remove(manifest.MISSING)


# The cost of labelling, shown before it begins, from one measured batch.


@dataclass(frozen=True)
class LabelEstimate:
    """For one row: bytes before compression, seconds, and a labeller's own counts."""

    bytes: float
    seconds: float
    costs: Mapping[str, float]


def measure(work: LabelWork) -> LabelEstimate:
    """Label some rows, drawn evenly from all, and throw the outputs away.

    Rows without outputs are reported when all rows are labelled.

    Raises:
        RowsMissingError: no row has outputs.
        LimbeckError: the problem with the labeller's outputs.
    """
    counts = bool(costs_of(work.labeller))
    batch = max(work.content.batch_size, _TRIED_ROWS)
    # A slow model is measured by few rows. A labeller that counts its costs caches its outputs: run again it would
    # only look fast.
    found, seconds = _measured(work, batch if counts else _TRIED_ROWS)
    quick = seconds < _WARM_SECONDS
    if not counts and (quick or len(work) >= _MANY_ROWS):
        found, _ = _measured(work, batch if quick else _TRIED_ROWS)
    return found


def _measured(work: LabelWork, count: int) -> tuple[LabelEstimate, float]:
    """Label up to this many rows, and return the estimate with the seconds that they took together."""
    labeller, content, count = work.labeller, work.content, min(len(work), count)
    places = work.rows.first[np.arange(count) * len(work) // count]
    texts = {name: taken(column, places).to_pylist() for name, column in work.rows.columns.items()}
    before, began = costs_of(labeller), time.perf_counter()
    answered = scored_shard.score_answered(labeller, texts, content.outputs, content.batch_size)
    seconds = time.perf_counter() - began
    costs = {name: (now - before.get(name, 0)) / count for name, now in costs_of(labeller).items()}
    left = scored_shard.texts_at(texts, [at for at in range(count) if at not in answered.reasons])
    stored = sum(
        part.nbytes
        for value in answered.values.values()
        for part in (value if value.dtype == object else [value])
    )
    if content.text_names:
        stored += sum(len(text.encode()) for column in left.values() for text in column)
    size = stored / scored_shard.rows_in(left) + _ID
    return LabelEstimate(size, seconds / count, costs), seconds


def _say(
    work: LabelWork, estimate: LabelEstimate, made: manifest.StoreManifest, console: Console
) -> None:
    """Print size and time before they are spent.

    Args:
        work: the work to do.
        estimate: of one row.
        made: an earlier start's shards; rows that it left out are not labelled again.
        console: where it is printed.
    """
    rows, stored, without = work.rows, made.stored_rows, len(made.missing_rows)
    left = len(work) - stored - without
    beside = {
        "more have the same texts": len(rows) - len(work),
        "are empty": rows.blank,
        "have no label": rows.without_target,
    }
    left_out = ", ".join(f"{count:,} {why}" for why, count in beside.items() if count)
    counted = f"{len(work):,} rows" + (f" ({left_out})" if left_out else "")
    outputs = ", ".join(work.content.outputs)
    console.print(f"teacher: {work.labeller.name} · {counted} · outputs: {outputs}")
    if made.shards:
        out = f", {without:,} were left out" if without else ""
        console.print(
            f"{work.files.url} is continued: {stored:,} rows are there{out}, {left:,} are left"
        )
    told = [
        f"about {words.human_size(estimate.bytes * left)}",
        f"about {cells.duration(estimate.seconds * left)} ({1 / max(estimate.seconds, 1e-9):,.0f} rows/s)",
        *(f"{count * left:,.5g} {name}" for name, count in estimate.costs.items() if count),
    ]
    console.print(f"by one measured batch: {', '.join(told)}")
