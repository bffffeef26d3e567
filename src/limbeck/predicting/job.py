"""A prediction that was checked and not begun: to a file, to a stream, or into memory. Part of `limbeck.predicting`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import xxhash
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from limbeck.data.stream import RowStream
from limbeck.labelling.fill import spoken
from limbeck.predicting.about_model import AboutModel, facts_of
from limbeck.predicting.chunks import ChunkPass, PredictedRows
from limbeck.predicting.columns import kept_columns, text_columns
from limbeck.predicting.formats import SEPARATED, CsvForm, clash, json_lines, merged
from limbeck.predicting.model import load_row_model
from limbeck.predicting.output import (
    PartialOutput,
    add_rows,
    check_target,
    first_difference,
)
from limbeck.predicting.readers import EMBEDDINGS, RowReader
from limbeck.predicting.settings import PredictSettings, reader_of
from limbeck.students.execution import warn_of_emulated_bf16
from limbeck.support.errors import LimbeckError

# What came of predicting.


@dataclass(frozen=True)
class Predictions:
    """What came of `predict`; iterating gives `rows`.

    Attributes:
        count: rows that were predicted, those of earlier starts included.
        blank: of these without text, whose predictions are None.
        cut: texts of which the model did not read the end.
        new: rows that this start predicted.
        seconds: that it took, without loading the model.
        path: the file they were written to.
        rows: the rows themselves, where they were written nowhere.
    """

    count: int
    blank: int
    cut: int
    new: int = 0
    seconds: float = 0.0
    path: Path | None = None
    rows: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return self.count

    def __str__(self) -> str:
        """`rows.jsonl: 872 rows, 2 of them without text (no prediction), 431 rows/s`."""
        said = f"{self.count:,} row{'' if self.count == 1 else 's'}"
        if self.blank:
            said += f", {self.blank:,} of them without text (no prediction)"
        if self.cut:
            said += f"; {self.cut:,} {'text was' if self.cut == 1 else 'texts were'} longer than the model reads"
        if self.new:
            said += f"; {self.new / max(self.seconds, 1e-9):,.0f} rows/s"
        return said if self.path is None else f"{self.path}: {said}"


# What a kill costs at most; and of a pipe, how many rows wait for each other.
_CHUNK, _CHUNK_OF_PIPE = 4096, 256


@dataclass
class PredictJob:
    """What is known before the weights are read.

    Attributes:
        facts: of the model.
        settings: as asked.
        open_rows: opens the rows.
        stream: the rows, none read yet.
        columns: those that the model reads.
        keep: those that stand beside the predictions; None: all.
        reader: of the model's task type.
        out: where it goes, of a file.
        done: what is there already, where an earlier start was killed behind its last row.
    """

    facts: AboutModel
    settings: PredictSettings
    open_rows: Callable[[], RowStream]
    stream: RowStream
    columns: tuple[str, ...]
    keep: tuple[str, ...] | None
    reader: RowReader
    out: PartialOutput | None = None
    done: Predictions | None = None
    said: Predictions = field(default_factory=lambda: Predictions(0, 0, 0), init=False)
    """What was predicted so far."""

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The predicted columns, by the names they are written under."""
        found = self.reader.all_types(self.settings.asked)
        return {self.settings.prefix + name: kind for name, kind in found.items()}

    @property
    def kept_names(self) -> list[str]:
        """The user's columns that are known without a row."""
        if self.keep is not None:
            return [*self.keep]
        return [*dict.fromkeys(name for names in self.stream.heads.values() for name in names)]

    # ---- where it goes ----

    def write_file(self, console: Console) -> Predictions:
        """Write `out`, or go on with it.

        Raises:
            LimbeckError: other settings or rows than an earlier start's, or what is wrong with a row.
        """
        out = self.out
        assert out is not None
        if self.done is not None:
            out.remove()
            return self.done
        with closing(self.stream), out.alone():
            passes = self._load(console)
            out.begin(self._identity(passes), overwrite=self.settings.overwrite)
            digest = self._continued(out, console)
            for chunk in self._chunks(passes, _CHUNK, console):
                add_rows(digest, chunk.rows)
                out.add(chunk, self.types, digest.hexdigest())
            out.finish(self.kept_names, self.types)
        there = out.counts
        return replace(
            self.said,
            count=there["count"],
            blank=there["blank"],
            cut=there["cut"],
            path=out.target,
        )

    def write_stream(self, stream: BinaryIO, form: str, console: Console) -> Predictions:
        """Write JSON lines, CSV or TSV as it comes.

        Raises:
            LimbeckError: what is wrong with a row; or a line of JSON has a column that CSV's header has not.
        """
        settings = self.settings
        safe, tabs = settings.csv_safe, form == "tsv"
        table = CsvForm(self.kept_names, self.types, settings.prefix, tabs=tabs, safe=safe)
        if form in SEPARATED:
            stream.write(table.head())
        known = {*self.kept_names, *self.types}
        for rows in self._predicted(_CHUNK_OF_PIPE, console):
            if form in SEPARATED:
                _check_columns(rows, known)
            stream.write(table.lines(rows) if form in SEPARATED else json_lines(rows))
            stream.flush()
        stream.flush()
        return self.said

    def collect(self, console: Console) -> Predictions:
        """All rows with their predictions, in memory.

        Raises:
            LimbeckError: what is wrong with a row.
        """
        found = [row for rows in self._predicted(_CHUNK, console) for row in rows]
        return replace(self.said, rows=found)

    def _predicted(self, size: int, console: Console) -> Iterator[list[dict[str, Any]]]:
        with closing(self.stream):
            for chunk in self._chunks(self._load(console), size, console):
                yield merged(chunk.rows, self.keep, chunk.columns)

    # ---- the parts ----

    def _chunks(self, passes: ChunkPass, size: int, console: Console) -> Iterator[PredictedRows]:
        with PredictProgress(console, self.stream) as progress:
            while (rows := self.stream.take(self.settings.chunk_rows or size)) is not None:
                chunk = passes.predict(rows, self.stream.place, progress.advance)
                count = self.said.count + len(rows)
                blank, cut = self.said.blank + chunk.blank, self.said.cut + chunk.cut
                yield chunk
                progress.chunk_done()
                self.said = Predictions(count, blank, cut, count, progress.seconds)

    def _load(self, console: Console) -> ChunkPass:
        settings = self.settings
        warn_of_emulated_bf16(settings.precision)
        model = load_row_model(
            self.facts,
            self.reader.kind,
            headless=settings.asked == {EMBEDDINGS},
            max_length=settings.max_length,
            precision=settings.precision,
        )
        reads = self.reader.kind.reads
        problems = reads.problems(model.processor, model.max_length, len(self.columns) or 1)
        if problems:
            raise LimbeckError(problems)
        reads.check(model.processor)
        names = " + ".join(map(repr, self.columns)) or "no column"
        console.print(
            f"{self.facts.name} ({self.facts.kind.name}, {self.facts.model.backend}) reads {names} and gives "
            f"{', '.join(settings.output)}"
        )
        return ChunkPass(self.reader, model, self.columns, settings)

    def _identity(self, chunks: ChunkPass) -> dict[str, Any]:
        """All that the output follows from, but the rows; a batch's size moves it by rounding alone."""
        settings = self.settings
        return {
            "model": chunks.model.fingerprint(),
            "classes": list(self.facts.classes),
            "output": sorted(settings.asked),
            "pooling": settings.pooling if EMBEDDINGS in settings.asked else None,
            "prompt": settings.prompt,
            "text columns": list(self.columns),
            "kept columns": None if self.keep is None else list(self.keep),
            "prefix": settings.prefix,
            **({"csv_safe": True} if settings.csv_safe else {}),
            "max_length": chunks.model.max_length,
            "max_new_tokens": settings.max_new_tokens,
        }

    def _continued(self, out: PartialOutput, console: Console) -> xxhash.xxh3_128:
        """The digest of all rows that are there already, which were read over.

        Raises:
            LimbeckError: they are not the rows that were predicted.
        """
        digest = xxhash.xxh3_128()
        if not out.rows:
            return digest
        different = first_difference(self.stream, out.records, digest)
        if different is None:
            console.print(f"{out.target} is continued: {out.rows:,} rows are there")
            return digest
        if not self.settings.overwrite or self.stream.once:
            fix = f"remove {out.folder}" if self.stream.once else "begin again with --overwrite"
            raise LimbeckError(
                f"{out.folder}: rows {different[0] + 1:,} to {different[1]:,} are not those that were predicted before",
                f"give the same rows again, or {fix}",
            )
        out.forget()
        out.begin(out.settings, overwrite=True)
        self.stream.close()
        self.stream = self.open_rows()
        return xxhash.xxh3_128()


def _check_columns(rows: Sequence[dict[str, Any]], known: set[str]) -> None:
    new = {name for row in rows for name in row} - known
    if new:
        raise LimbeckError(
            f"a line has columns that the first one has not, and CSV's header is written: {', '.join(sorted(new))}",
            "name the columns that are wanted with --keep, or write JSON lines",
        )


# Everything that can be checked before the weights are read.


def prepare(
    model: str | Path,
    open_rows: Callable[[], RowStream],
    settings: PredictSettings,
    *,
    target: Path | None = None,
    form: str = "jsonl",
    backend: str | None = None,
    task: str | None = None,
) -> PredictJob:
    """Check everything that can be checked before the weights are read.

    Args:
        open_rows: opens the rows.
        target: the file to write.
        form: what is written where there is no file.

    Raises:
        LimbeckError: all that is wrong.
    """
    problems = settings.problems()

    def tried(make: Callable[..., Any], *given: Any) -> Any:
        try:
            return make(*given)
        except LimbeckError as error:
            problems.extend(error.problems)
            return None

    facts: AboutModel | None = tried(facts_of, model, backend, task)
    stream: RowStream | None = tried(open_rows)
    done = None
    if target is not None:
        wrong = check_target(target, () if stream is None else stream.files, overwrite=True)
        said = None if wrong else PartialOutput(target, None, settings).is_done()
        if said is not None:  # an earlier start was killed behind the last row
            done = Predictions(said["rows"], said["blank"], said["cut"], path=target)
        else:
            problems += wrong or check_target(target, (), overwrite=settings.overwrite)
    heads = {} if stream is None else stream.heads
    keep = tried(kept_columns, settings.keep, heads)
    columns: tuple[str, ...] = ()
    reader: RowReader | None = None
    if facts is not None:
        columns = tried(text_columns, facts, heads, settings) or ()
        to_csv = (form if target is None else target.suffix.lower()[1:]) in SEPARATED
        problems += settings.problems_with(facts, target, to_csv)
        reader = tried(reader_of, facts, settings, len(columns) or 1)
    if problems or facts is None or stream is None or reader is None:
        raise LimbeckError(problems)
    out = None if target is None else PartialOutput(target, keep, settings)
    job = PredictJob(facts, settings, open_rows, stream, columns, keep, reader, out, done)
    # Also those columns that CSV makes of one.
    names = {*CsvForm((), job.types, settings.prefix).header, *job.types}
    if both := names & {*job.kept_names}:
        raise clash(both)
    return job


# How far predicting has come, on standard error: rows, rows a second, and the time left where the length is known.


_LINE_SECONDS = 60.0


class PredictProgress:
    """A bar on a terminal, a line a minute in a log; a context.

    How far it is comes from the bytes of the files that were read, as nobody counts rows beforehand.
    """

    def __init__(self, console: Console, stream: RowStream) -> None:
        self.rows = 0
        self._console, self._stream = console, stream
        self._bar = Progress(
            TextColumn("{task.fields[rows]:,} rows"),
            BarColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            # Chunks are read at once, so that bytes come in jumps.
            speed_estimate_period=300,
        )
        self._task = self._bar.add_task("rows", total=stream.size, rows=0, speed="")
        self._began = self._last = time.monotonic()
        self._start = 0

    def __enter__(self) -> PredictProgress:
        """Begin to count: what was read before was skipped."""
        self._began = self._last = time.monotonic()
        self._start = self._stream.position
        self._bar.reset(self._task, total=self._stream.size, completed=self._start)
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return max(time.monotonic() - self._began, 1e-9)

    def advance(self, rows: int) -> None:
        """So many more rows are predicted."""
        self.rows += rows
        self._bar.update(
            self._task, rows=self.rows, speed=f"{self.rows / self.seconds:,.0f} rows/s"
        )
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last >= _LINE_SECONDS:
            self._last = now
            self._console.print(self._line())

    def chunk_done(self) -> None:
        """All rows that were read are predicted."""
        self._bar.update(self._task, completed=self._stream.position)

    def _line(self) -> str:
        line = f"{self.rows:,} rows, {self.rows / self.seconds:,.1f} rows/s"
        size, done = self._stream.size, self._stream.position - self._start
        if size is None or not done:
            return line
        left = self.seconds * (size - self._stream.position) / done
        return f"{line}, about {spoken(left)} left"
