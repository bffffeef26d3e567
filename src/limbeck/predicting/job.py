"""A prediction that was checked and not begun: to a file, to a stream, or into memory. Part of `limbeck.predicting`."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from rich.console import Console

from limbeck.data.stream import RowStream
from limbeck.labelling.label_rows import endpoint_labeller
from limbeck.labelling.language_models.endpoint_settings import EndpointAccess, EndpointSettings
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
from limbeck.labelling.plain_table import check_place
from limbeck.predicting import reader_kinds
from limbeck.predicting.about_model import AboutModel, facts_of
from limbeck.predicting.chunks import ChunkPass, PredictedRows
from limbeck.predicting.columns import kept_columns, text_columns
from limbeck.predicting.formats import CsvForm, clash, json_lines, merged, row_table
from limbeck.predicting.model import load_row_models
from limbeck.predicting.output import PartialOutput, parquet_bytes
from limbeck.predicting.readers import EMBEDDINGS, RowReader
from limbeck.predicting.settings import PredictSettings
from limbeck.scoring.stored_member import SENT_ON
from limbeck.students.execution import warn_of_emulated_bf16
from limbeck.support.errors import LimbeckError, Problem, collecting, raise_problems
from limbeck.support.terminal import row_bar

FILE_FORMATS = (".jsonl", ".csv", ".parquet")
# The most rows that a kill costs; and for a pipe, how many rows wait for each other.
_CHUNK, _CHUNK_OF_PIPE = 4096, 256


@dataclass(frozen=True)
class Predictions:
    """What came of `predict`; iterating gives `rows`.

    Attributes:
        count: rows that were predicted, including earlier starts' rows.
        blank: of these without text, whose predictions are None.
        cut: texts of which the model did not read the end.
        sent: rows of a cascade that no model answered.
        new: rows that this start predicted.
        seconds: that it took, without loading the model.
        path: the file they were written to.
        rows: the rows themselves, where they were written nowhere.
    """

    count: int = 0
    blank: int = 0
    cut: int = 0
    sent: int = 0
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
        if self.sent:
            said += f", {self.sent:,} {SENT_ON} without a prediction"
        if self.cut:
            said += f"; {self.cut:,} {'text was' if self.cut == 1 else 'texts were'} longer than the model reads"
        if self.new:
            said += f"; {self.new / max(self.seconds, 1e-9):,.0f} rows/s"
        return said if self.path is None else f"{self.path}: {said}"


@dataclass
class PredictJob:
    """The facts that are known before the weights are read.

    Attributes:
        facts: of the model.
        settings: the user's.
        open_rows: opens the rows.
        stream: the rows, none read yet.
        columns: the ones that the model reads.
        keep: the ones written next to the predictions; None: all.
        reader: of the model's task type.
        endpoint: the slow model of a cascade, for rows that are sent on and not stored.
        said: the predictions so far.
    """

    facts: AboutModel
    settings: PredictSettings
    open_rows: Callable[[], RowStream]
    stream: RowStream
    columns: tuple[str, ...]
    keep: tuple[str, ...] | None
    reader: RowReader
    endpoint: EndpointAccess | None = None
    said: Predictions = field(default_factory=Predictions)

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The predicted columns, by the names they are written under."""
        found = self.reader.all_types(self.settings.asked)
        return {self.settings.prefix + name: kind for name, kind in found.items()}

    @property
    def csv(self) -> CsvForm:
        """The columns of CSV: the user's that are known without a row, and the predicted ones."""
        heads = self.stream.heads.values() if self.keep is None else [self.keep]
        kept = [*dict.fromkeys(name for names in heads for name in names)]
        return CsvForm(kept, self.types, self.settings.prefix, safe=self.settings.csv_safe)

    # ---- where it goes ----

    def write_file(self, target: Path, console: Console) -> Predictions:
        """Write a file, or resume it.

        Raises:
            LimbeckError: other settings or rows than an earlier start's, or the problem with a row.
        """
        out, form, ending = PartialOutput(target), self.csv, target.suffix.lower()
        with closing(self.stream), out.alone():
            passes = self._load(console)
            out.begin(self._identity(passes), overwrite=self.settings.overwrite)
            self._continue(out, console)
            for chunk in self._chunks(passes, _CHUNK, console):
                if ending == ".parquet":
                    table = row_table(chunk.rows, self.keep, chunk.columns, self.types)
                    content = parquet_bytes(table)
                else:
                    rows = merged(chunk.rows, self.keep, chunk.columns)
                    content = json_lines(rows) if ending == ".jsonl" else form.lines(rows)
                out.add(content, chunk.rows, chunk.blank, chunk.cut, chunk.sent)
            out.finish(form.head() if ending == ".csv" else b"", self.types)
        with suppress(OSError):  # another one has begun
            out.folder.rmdir()
        count, blank, cut, sent = (
            sum(getattr(one, name) for one in out.records)
            for name in ("rows", "blank", "cut", "sent")
        )
        return replace(self.said, count=count, blank=blank, cut=cut, sent=sent, path=target)

    def write_stream(self, stream: BinaryIO, form: str, console: Console) -> Predictions:
        """Write JSON lines or CSV as it comes.

        Raises:
            LimbeckError: the problem with a row; or a line of JSON has a column that CSV's header lacks.
        """
        table = self.csv
        if form == "csv":
            stream.write(table.head())
        for rows in self._predicted(_CHUNK_OF_PIPE, console):
            stream.write(table.lines(rows) if form == "csv" else json_lines(rows))
            stream.flush()
        stream.flush()
        return self.said

    def collect(self, console: Console) -> Predictions:
        """All rows with their predictions, in memory.

        Raises:
            LimbeckError: the problem with a row.
        """
        found = [row for rows in self._predicted(_CHUNK, console) for row in rows]
        return replace(self.said, rows=found)

    def _predicted(self, size: int, console: Console) -> Iterator[list[dict[str, Any]]]:
        with closing(self.stream):
            for chunk in self._chunks(self._load(console), size, console):
                yield merged(chunk.rows, self.keep, chunk.columns)

    # ---- the parts ----

    def _chunks(self, passes: ChunkPass, size: int, console: Console) -> Iterator[PredictedRows]:
        began, said = time.monotonic(), self.said
        whole = self.stream.size
        with row_bar(
            console, lambda _: None if whole is None else self.stream.position / max(whole, 1)
        ) as advance:
            while (rows := self.stream.take(self.settings.chunk_rows or size)) is not None:
                chunk = passes.predict(rows, self.stream.place, advance)
                yield chunk
                count = said.count + len(rows)
                said = Predictions(
                    count=count,
                    blank=said.blank + chunk.blank,
                    cut=said.cut + chunk.cut,
                    sent=said.sent + chunk.sent,
                    new=count,
                    seconds=time.monotonic() - began,
                )
                self.said = said
        if passes.stored is not None and (live := passes.stored.live) is not None:
            spent = ", ".join(f"{count:,.5g} {name}" for name, count in live.costs().items())
            console.print(f"{live.name} used: {spent}")

    def _load(self, console: Console) -> ChunkPass:
        settings, reads = self.settings, self.reader.kind.reads
        warn_of_emulated_bf16(settings.precision)
        models = load_row_models(
            self.facts,
            self.reader.kind,
            headless=settings.asked == {EMBEDDINGS},
            max_length=settings.max_length,
            precision=settings.precision,
            device_map=settings.device_map,
        )
        width = len(self.columns) or 1
        for model in models:
            raise_problems(reads.problems(model.processor, model.max_length, width))
            reads.check(model.processor)
        names, kind = " + ".join(map(repr, self.columns)) or "no column", self.facts.kind
        gives = ", ".join(settings.output)
        if kind.continues_texts:
            gives = gives.replace("labels", "texts")
        console.print(
            f"{self.facts.name} ({kind.name}, {self.facts.model.backend}) reads {names} and gives {gives}"
        )
        stored, cascade = self.facts.model.stored, self.facts.model.cascade
        if self.endpoint is not None and stored is not None and cascade is not None:
            asks, classes = cascade.asks, stored.outputs.classes
            bound = bind_prompt(Prompt.checked(asks["prompt"]), classes, asks["columns"])
            served = EndpointSettings.checked({**asks["endpoint"], **self.endpoint.model_dump()})
            stored = replace(stored, live=endpoint_labeller(served, bound))
        return ChunkPass(self.reader, models, self.columns, settings, stored)

    def _identity(self, chunks: ChunkPass) -> dict[str, Any]:
        """All that the output follows from, but the rows; a batch's size moves it by rounding alone."""
        settings, cascade = self.settings, self.facts.model.cascade
        models = [*chunks.models, *([] if chunks.stored is None else [chunks.stored])]
        sends = [f"{one.temperature} {one.threshold}" for one in cascade.members] if cascade else []
        return {
            "model": "-".join([*(model.fingerprint() for model in models), *sends]),
            "classes": list(self.facts.classes),
            "output": sorted(settings.asked),
            "pooling": settings.pooling if EMBEDDINGS in settings.asked else None,
            "prompt": settings.prompt,
            "text columns": list(self.columns),
            "kept columns": None if self.keep is None else list(self.keep),
            "prefix": settings.prefix,
            **({"csv_safe": True} if settings.csv_safe else {}),
            "max_length": chunks.models[0].max_length,
            "max_new_tokens": settings.max_new_tokens,
            "endpoint": chunks.stored and chunks.stored.live and chunks.stored.live.fingerprint(),
        }

    def _continue(self, out: PartialOutput, console: Console) -> None:
        """Read over the rows that are there already.

        Raises:
            LimbeckError: they are not the rows that were predicted.
        """
        different = out.first_difference(self.stream)
        if different is not None:
            if not self.settings.overwrite or self.stream.once:
                raise LimbeckError(
                    f"{out.folder}: rows {different[0] + 1:,} to {different[1]:,} differ from the rows that were "
                    "predicted before",
                    f"give the same rows again, or remove {out.folder} (--overwrite does, but not of a pipe)",
                )
            out.forget()
            self.stream.close()
            self.stream = self.open_rows()
        elif out.records:
            there = sum(one.rows for one in out.records)
            console.print(f"{out.target} is continued: {there:,} rows are there")


# Everything that can be checked before the weights are read.


def prepare(
    model: str | Path,
    open_rows: Callable[[], RowStream],
    settings: PredictSettings,
    *,
    endpoint: EndpointAccess | None = None,
    target: Path | None = None,
    form: str = "jsonl",
) -> PredictJob:
    """Check everything that can be checked before the weights are read.

    Args:
        model: a run folder, a checkpoint's folder or Hub name, an exported folder.
        open_rows: opens the rows.
        settings: the user's.
        endpoint: a server for the rows that a cascade sends on; its folder names the model and the prompt.
        target: the file to write.
        form: the output format if there is no file.

    Raises:
        LimbeckError: all that is wrong.
    """
    problems: list[Problem] = []

    def tried(make: Callable[..., Any], *given: Any) -> Any:
        with collecting(problems):
            return make(*given)
        return None

    facts: AboutModel | None = tried(facts_of, model, settings.backend, settings.task)
    embeds = facts is not None and facts.kind.embeds
    if embeds and "output" not in settings.model_fields_set:
        settings = settings.model_copy(update={"output": (EMBEDDINGS,)})
    stream: RowStream | None = tried(open_rows)
    if target is not None:
        read = () if stream is None else stream.files
        problems += check_place(target, FILE_FORMATS, read, overwrite=settings.overwrite)
    heads = {} if stream is None else stream.heads
    keep = tried(kept_columns, settings.keep, heads)
    columns: tuple[str, ...] = ()
    reader: RowReader | None = None
    if facts is not None:
        columns = tried(text_columns, facts, heads, settings) or ()
        to_csv = form == "csv" or (target is not None and target.suffix.lower() == ".csv")
        problems += _unread(settings, facts, endpoint, embeds=embeds, to_csv=to_csv)
        reader = tried(reader_kinds.reader_of, facts, settings, len(columns) or 1)
    if problems or facts is None or stream is None or reader is None:
        raise LimbeckError(problems)
    job = PredictJob(facts, settings, open_rows, stream, columns, keep, reader, endpoint)
    kept = {name for names in heads.values() for name in names} if keep is None else {*keep}
    # Also those columns that CSV makes of one.
    if both := {*CsvForm((), job.types, settings.prefix).header, *job.types} & kept:
        raise clash(both)
    return job


def _unread(
    settings: PredictSettings,
    facts: AboutModel,
    endpoint: EndpointAccess | None,
    *,
    embeds: bool,
    to_csv: bool,
) -> list[Problem]:
    """Outputs that the model does not have or read, or the file cannot hold."""
    embeddings = EMBEDDINGS in settings.asked
    exported = f"{facts.name} is an exported model, whose file"
    asks = facts.model.cascade is not None and facts.model.cascade.asks
    checks = {
        f"endpoint: {facts.name} is not made by limbeck cascade --endpoint, and contains no model and prompt to use": (
            endpoint is not None and not asks
        ),
        f"prompt {settings.prompt}: only embeddings of embedding models have prompts": (
            settings.prompt != "sentence" and not (embeds and embeddings)
        ),
        f"output embeddings: {exported} holds no hidden states": (
            embeddings and facts.exported and not embeds
        ),
        f"output embeddings: {facts.name} is a cascade, whose models have different embeddings": (
            embeddings and facts.model.cascade is not None
        ),
        f"pooling {settings.pooling}: {facts.name} is an embedding model, which has its own": (
            embeddings and embeds and settings.pooling != "mean"
        ),
        "output embeddings: CSV cannot hold lists of numbers; write Parquet or JSON lines": (
            embeddings and to_csv
        ),
        f"precision {settings.precision}: {exported} sets its precision": (
            facts.exported and settings.precision != "fp32"
        ),
    }
    found = [] if endpoint is None else endpoint.problems()
    return found + [Problem(said, "leave it out") for said, wrong in checks.items() if wrong]
