"""An unfinished output file: chunks in a folder next to it, joined when complete. Part of `limbeck.predicting`.

A chunk is a file and its record, each written atomically, the record last: a chunk without one does not count.
So a kill at any moment leaves chunks that the same command continues from.
"""

import io
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import xxhash

from limbeck.data.files import TakenRows
from limbeck.data.stream import RowStream
from limbeck.predicting.formats import Types, common_schema, with_schema
from limbeck.support import lock, plain
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import (
    checksum,
    checksum_of_bytes,
    is_temporary,
    write_whole,
    written_whole,
)

_PARTIAL = ".partial"
_SETTINGS = "settings.json"


@dataclass(frozen=True)
class ChunkRecord:
    """One chunk of the output.

    Attributes:
        rows: how many.
        blank: of these without text.
        cut: examples that lost text to the length limit.
        digest: of the rows that were read.
        checksum: of its file.
        sent: rows of a cascade that no model answered.
    """

    rows: int
    blank: int
    cut: int
    digest: str
    checksum: str
    sent: int = 0


class PartialOutput:
    """The output file of a command, begun or continued.

    Attributes:
        target: the file that it becomes.
        records: of the chunks that are there, in their order.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.parquet = target.suffix.lower() == ".parquet"
        self.folder = target.with_name(target.name + _PARTIAL)
        self.records: list[ChunkRecord] = []

    def alone(self) -> AbstractContextManager[None]:
        """While the block runs no other process writes the file.

        Raises:
            LimbeckError: another process writes it, or it is not writable.
        """
        return lock.held(self.folder, "to")

    def begin(self, settings: Mapping[str, Any], *, overwrite: bool) -> None:
        """Begin, or find an earlier start's chunks.

        Args:
            settings: all that the output follows from, but the rows.
            overwrite: begin again where an earlier start had others.

        Raises:
            LimbeckError: an earlier start had other settings, each with both values.
        """
        path, wanted = self.folder / _SETTINGS, json.loads(json.dumps(settings))
        known = plain.read_json(plain.read_text(path), str(path)) if path.is_file() else wanted
        other = [one for one in {**known, **wanted} if known.get(one) != wanted.get(one)]
        if other and not overwrite:
            raise LimbeckError(
                [
                    Problem(
                        f"{self.folder} was begun with another {name}: {known.get(name)!r:.80} there, "
                        f"{wanted.get(name)!r:.80} now",
                        "repeat the command that began it, or begin again with --overwrite",
                    )
                    for name in other
                ]
            )
        if other:
            self.forget()
        for file in self.folder.iterdir():
            if is_temporary(file):
                file.unlink()
        write_whole(path, json.dumps(wanted, indent=1) + "\n")
        self.records = list(self._found())

    def forget(self) -> None:
        """Remove an earlier start's chunks, but not its settings."""
        for file in self.folder.glob("rows-*"):
            file.unlink()
        self.records = []

    def _found(self) -> Iterator[ChunkRecord]:
        for number in range(len(list(self.folder.glob("rows-*.json")))):
            path, data = self._record(number), self._data(number)
            if not path.is_file() or not data.is_file():
                return
            record = ChunkRecord(**plain.read_json(plain.read_text(path), str(path)))
            if checksum(data) != record.checksum:
                return
            yield record

    def add(self, content: bytes, rows: TakenRows, blank: int, cut: int, sent: int = 0) -> None:
        """Write a chunk; when it returns, no kill undoes it.

        Args:
            content: the chunk as a file.
            rows: as they were read.
            blank: how many of them have no text.
            cut: how many examples lost text.
            sent: how many of them no model answered.

        Raises:
            LimbeckError: no room.
        """
        number = len(self.records)
        digest = digest_of([rows])
        record = ChunkRecord(len(rows), blank, cut, digest, checksum_of_bytes(content), sent)
        write_whole(self._data(number), content)
        write_whole(self._record(number), json.dumps(asdict(record)) + "\n")
        self.records.append(record)

    def finish(self, head: bytes, types: Types) -> None:
        """Join the chunks to the file, move it to its final path and remove the folder.

        Args:
            head: the text before all chunks.
            types: the predicted columns.

        Raises:
            LimbeckError: no room.
        """
        files = [self._data(number) for number in range(len(self.records))]
        with written_whole(self.target) as out:
            if self.parquet:
                schema = common_schema([parquet.read_schema(file) for file in files], types)
                with parquet.ParquetWriter(out, schema) as writer:
                    for file in files:
                        writer.write_table(with_schema(parquet.read_table(file), schema))
            else:
                out.write(head)
                for file in files:
                    with file.open("rb") as chunk:
                        shutil.copyfileobj(chunk, out)
        for file in self.folder.iterdir():
            if file.name not in (lock.LOCK, lock.HOLDER):
                file.unlink()

    def first_difference(self, stream: RowStream) -> tuple[int, int] | None:
        """Read over existing chunks' rows; returns the first range (from, to) with different rows, otherwise None."""
        first = 0
        for record in self.records:
            if digest_of(_next_rows(stream, record.rows)) != record.digest:
                return first, first + record.rows
            first += record.rows
        return None

    def _data(self, number: int) -> Path:
        return self.folder / f"rows-{number:08d}.part"

    def _record(self, number: int) -> Path:
        return self.folder / f"rows-{number:08d}.json"


def parquet_bytes(table: Any) -> bytes:
    """A table as a file."""
    sink = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata(None), sink)
    return sink.getvalue()


def digest_of(parts: Iterable[TakenRows]) -> str:
    """By which a start knows the rows of an earlier one, with all their columns."""
    digest = xxhash.xxh3_128()
    for rows in parts:
        for row in rows.dicts(None):
            digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _next_rows(stream: RowStream, count: int) -> Iterator[TakenRows]:
    """So many, in as many pieces as it takes where a file has blank lines."""
    while count and (rows := stream.take(count)) is not None:
        yield rows
        count -= len(rows)
