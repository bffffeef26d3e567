"""An output file on its way: chunks in a folder beside it, joined when all are there. Part of `limbeck.predicting`.

A chunk is a file and its record, each written whole or not at all, the record last: a chunk without one was never made.
So a kill at any moment leaves chunks that the same command continues from.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import xxhash
from filelock import FileLock, Timeout

from limbeck.data.files import TakenRows
from limbeck.data.stream import RowStream
from limbeck.predicting.chunks import PredictedRows
from limbeck.predicting.formats import (
    CsvForm,
    Types,
    common_schema,
    json_lines,
    merged,
    row_table,
    with_schema,
)
from limbeck.predicting.settings import PredictSettings
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.files import (
    checksum,
    checksum_of_bytes,
    is_temporary,
    one_error_for_a_full_disk,
    sync_files,
    sync_folder,
    write_whole,
)
from limbeck.support.plain import read_json, read_text

FILE_FORMATS = {".jsonl": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
_PARTIAL = ".partial"
_SETTINGS, _FINISHED, _JOINED, _LOCK = "settings.json", "finished.json", "joined", ".limbeck-lock"


@dataclass(frozen=True)
class ChunkRecord:
    """One chunk of the output.

    Attributes:
        rows: how many.
        blank: of these without text.
        cut: examples that lost text to the length limit.
        columns: the user's columns that its rows have.
        digest: of all rows that were read, from the first to its last.
        checksum: of its file.
    """

    rows: int
    blank: int
    cut: int
    columns: tuple[str, ...]
    digest: str
    checksum: str


class PartialOutput:
    """The output file of a command, begun or continued.

    Attributes:
        target: the file that it becomes.
        records: of the chunks that are there, in their order.
        settings: that it was begun with.
    """

    def __init__(self, target: Path, keep: Sequence[str] | None, asked: PredictSettings) -> None:
        self.target = target
        self.format = FILE_FORMATS[target.suffix.lower()]
        self.folder = target.with_name(target.name + _PARTIAL)
        self.records: list[ChunkRecord] = []
        self.settings: Mapping[str, Any] = {}
        self._keep, self._asked = keep, asked

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While the block runs no other process of this machine writes the file.

        Raises:
            LimbeckError: another one does, or nobody may write there.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / _LOCK)
            lock.acquire(timeout=0)
        except Timeout:
            raise LimbeckError(
                f"{self.target}: another process is writing it", "wait for it, or end it"
            ) from None
        except OSError as error:
            raise LimbeckError(
                f"cannot write {self.target}: {error.strerror or error}",
                "name a file in a folder that you may write to with --to",
            ) from None
        try:
            yield
        finally:
            lock.release()
            names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else {""}
            if names <= {_LOCK}:  # nothing was begun
                shutil.rmtree(self.folder, ignore_errors=True)

    def is_done(self) -> dict[str, Any] | None:
        """What a start said of the file that was killed when all was done but the folder's removal."""
        path = self.folder / _FINISHED
        if not self.target.is_file() or not self.folder.is_dir():
            return None
        if not path.is_file():
            if {one.name for one in self.folder.iterdir()} <= {
                _LOCK
            }:  # all but the last was removed
                shutil.rmtree(self.folder, ignore_errors=True)
            return None
        said = read_json(read_text(path), str(path))
        return said if checksum(self.target) == said.get("checksum") else None

    def begin(self, settings: Mapping[str, Any], *, overwrite: bool) -> None:
        """Begin, or find what an earlier start left.

        Args:
            settings: all that the output follows from, but the rows.
            overwrite: begin again where an earlier start had others.

        Raises:
            LimbeckError: an earlier start had other settings, each with both values.
        """
        self.settings = settings
        path = self.folder / _SETTINGS
        known = read_json(read_text(path), str(path)) if path.is_file() else None
        wanted = json.loads(json.dumps(settings))
        if known is not None and known != wanted:
            if not overwrite:
                raise LimbeckError(
                    [
                        self._other(name, known.get(name), wanted.get(name))
                        for name in {**known, **wanted}
                        if known.get(name) != wanted.get(name)
                    ]
                )
            self.forget()
        for file in self.folder.iterdir():
            if is_temporary(file) or file.name == _JOINED:
                file.unlink()
        if not path.is_file():
            write_whole(path, json.dumps(wanted, indent=1) + "\n")
        self.records = list(self._found())

    def _other(self, name: str, there: Any, now: Any) -> Problem:
        shown = [json.dumps(value, ensure_ascii=False) for value in (there, now)]
        return Problem(
            f"{self.folder} was begun with another {name}: {shown[0]:.80} there, {shown[1]:.80} now",
            "repeat the command that began it, or begin again with --overwrite",
        )

    def forget(self) -> None:
        """Remove what an earlier start made."""
        for file in self.folder.iterdir():
            if file.name != _LOCK:
                file.unlink()
        self.records = []

    def _found(self) -> Iterator[ChunkRecord]:
        for number in range(len(list(self.folder.glob("rows-*.json")))):
            path = self._record(number)
            if not path.is_file():
                return
            said = read_json(read_text(path), str(path))
            record = ChunkRecord(**{**said, "columns": tuple(said["columns"])})
            data = self._data(number)
            if not data.is_file() or checksum(data) != record.checksum:
                return
            yield record

    def add(self, chunk: PredictedRows, types: Types, digest: str) -> None:
        """Write a chunk; when it returns, no kill undoes it.

        Raises:
            LimbeckError: no room, or columns whose names clash.
        """
        number, columns = len(self.records), chunk.columns
        if self.format == "parquet":
            # A column without any value in this chunk has no type yet.
            types = {
                name: kind if any(value is not None for value in columns[name]) else pa.null()
                for name, kind in types.items()
            }
            table = row_table(chunk.rows, self._keep, columns, types)
            kept = [name for name in table.column_names if name not in types]
            sink = io.BytesIO()
            parquet.write_table(table.replace_schema_metadata(None), sink)
            content = sink.getvalue()
        else:
            rows = merged(chunk.rows, self._keep, columns)
            kept = [name for row in rows for name in row]
            kept = [name for name in dict.fromkeys(kept) if name not in types]
            content = json_lines(rows)
        record = ChunkRecord(
            len(chunk.rows),
            chunk.blank,
            chunk.cut,
            tuple(kept),
            digest,
            checksum_of_bytes(content),
        )
        write_whole(self._data(number), content)
        write_whole(self._record(number), json.dumps(asdict(record)) + "\n")
        self.records.append(record)

    def finish(self, columns: Sequence[str], types: Types) -> None:
        """Join the chunks to the file, put it in its place and remove the folder.

        Args:
            columns: the user's columns that are known without any row.
            types: the predicted ones.

        Raises:
            LimbeckError: no room.
        """
        joined = self.folder / _JOINED
        with one_error_for_a_full_disk(self.target):
            if self.format == "parquet":
                self._join_parquet(joined, types)
            else:
                self._join_text(joined, columns, types)
            sync_files(self.folder)
        counts = self.counts
        said = {"checksum": checksum(joined), "rows": counts.pop("count"), **counts}
        write_whole(self.folder / _FINISHED, json.dumps(said) + "\n")
        try:
            joined.replace(self.target)
        except OSError as error:
            raise LimbeckError(
                f"cannot write {self.target}: {error.strerror or error}",
                "remove what stands there and run the same command again: no row is lost",
            ) from None
        sync_folder(self.target.parent)
        self.remove()

    def remove(self) -> None:
        """Remove the folder, the word that all is done last."""
        for path in sorted(self.folder.iterdir(), key=lambda path: path.name == _FINISHED):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def rows(self) -> int:
        """How many are there."""
        return sum(one.rows for one in self.records)

    @property
    def counts(self) -> dict[str, int]:
        """Rows that are there, as `count`; of these without text; and that lost text."""
        blank, cut = (sum(getattr(one, name) for one in self.records) for name in ("blank", "cut"))
        return {"count": self.rows, "blank": blank, "cut": cut}

    def _join_text(self, joined: Path, columns: Sequence[str], types: Types) -> None:
        with joined.open("wb") as out:
            if self.format == "jsonl":
                for number in range(len(self.records)):
                    with self._data(number).open("rb") as file:
                        shutil.copyfileobj(file, out)
                return
            found = [name for record in self.records for name in record.columns]
            kept = dict.fromkeys((*columns, *found))
            tabs = self.format == "tsv"
            form = CsvForm([*kept], types, self._asked.prefix, tabs=tabs, safe=self._asked.csv_safe)
            out.write(form.head())
            for number in range(len(self.records)):
                with self._data(number).open(encoding="utf-8", newline="\n") as file:
                    out.write(form.lines(map(json.loads, file)))

    def _join_parquet(self, joined: Path, types: Types) -> None:
        files = [self._data(number) for number in range(len(self.records))]
        schema = common_schema([parquet.read_schema(file) for file in files], types)
        with parquet.ParquetWriter(joined, schema) as writer:
            for file in files:
                writer.write_table(with_schema(parquet.read_table(file), schema))

    def _data(self, number: int) -> Path:
        ending = "parquet" if self.format == "parquet" else "jsonl"
        return self.folder / f"rows-{number:08d}.{ending}"

    def _record(self, number: int) -> Path:
        return self.folder / f"rows-{number:08d}.json"


def check_target(target: Path, inputs: Sequence[Path | str], *, overwrite: bool) -> list[Problem]:
    """What is wrong with an output file's name and place, before anything is read."""
    problems = []
    if target.suffix.lower() not in FILE_FORMATS:
        problems.append(unknown("file type of --to", target.suffix or target.name, [*FILE_FORMATS]))
    if target.is_dir():
        problems.append(Problem(f"--to {target} is a folder", f"name a file: {target}/rows.jsonl"))
    elif target.exists() and not overwrite:
        problems.append(
            Problem(f"--to {target} exists", "name another file, or replace it with --overwrite")
        )
    same = [
        file for file in inputs if isinstance(file, Path) and file.resolve() == target.resolve()
    ]
    if same:
        problems.append(
            Problem(f"--to {target} is one of the files that are read", "name another file")
        )
    return problems


# A digest of rows that were read, by which a start knows those of an earlier one.


def add_rows(digest: xxhash.xxh3_128, rows: TakenRows) -> None:
    """Go on with the next rows, with all their columns."""
    for row in rows.dicts(None):
        digest.update(repr(row).encode("utf-8", "surrogatepass"))


def first_difference(
    stream: RowStream, records: Sequence[ChunkRecord], digest: xxhash.xxh3_128
) -> tuple[int, int] | None:
    """Read over the rows that were read before; the first place (from, to) at which they are others, else None.

    Args:
        stream: at its first row; behind those of the records afterwards.
        records: in the order of the rows.
        digest: of no rows yet; of those of the records afterwards.
    """
    first = 0
    for record in records:
        left = record.rows
        while left and (rows := stream.take(left)) is not None:
            add_rows(digest, rows)
            left -= len(rows)
        if left or digest.hexdigest() != record.digest:
            return first, first + record.rows
        first += record.rows
    return None
