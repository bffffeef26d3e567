"""One store of teacher outputs, read by row ids. Part of `limbeck.outputs`."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from limbeck.outputs import shards
from limbeck.outputs.columns import INDEX, MEMBER, ROW, OutputColumn
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.manifest import MANIFEST, ShardRecord, StoreManifest
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.files import at_home


def place_and_member(place: str) -> tuple[str, str]:
    """Split `STORE#MEMBER` into the store's path or URL, and the member of a team; "" for the complete store.

    If a path with the full name exists on this machine, it is not split.
    """
    where, _, member = place.rpartition("#")
    whole = "://" not in place and at_home(place).exists()
    return (where, member) if where and member and not whole else (place, "")


def open_store(path_or_url: str | Path, *, allow_incomplete: bool = False) -> "OutputStore":
    """The store of teacher outputs in a folder, or at any URL that fsspec reads.

    An entry that a training made in the local cache is a store too, if it identifies its rows.

    Args:
        allow_incomplete: take one whose making was interrupted as it is.

    Raises:
        LimbeckError: it does not exist, is damaged, of another format, or incomplete; or it does not name its rows.
    """
    files = StoreFiles(str(path_or_url))
    manifest = need_manifest(files)
    if not manifest.complete and not allow_incomplete:
        raise LimbeckError(
            f"{files.url} is incomplete: {manifest.stored_rows} of {manifest.rows.count} rows are there",
            "run the same `limbeck label` command again, which continues it",
        )
    if manifest.keyed == INDEX and not manifest.row_ids:
        raise LimbeckError(
            f"{files.url} is of rows that it does not name: they are known by their place in one training alone",
            "label the rows: limbeck label",
        )
    return OutputStore(files, manifest)


def read_manifest(files: StoreFiles) -> StoreManifest | None:
    """A store's manifest; None if there is no manifest.

    Raises:
        LimbeckError: it is damaged, or of another format.
    """
    try:
        content = files.read(MANIFEST)
    except FileNotFoundError:
        return None
    return StoreManifest.read(content, f"{files.url}/{MANIFEST}")


def need_manifest(files: StoreFiles) -> StoreManifest:
    """As `read_manifest`. Raises LimbeckError too if there is no manifest."""
    manifest = read_manifest(files)
    if manifest is None:
        raise LimbeckError(
            f"{files.url} is no store of teacher outputs: it has no {MANIFEST}",
            "name the folder or URL that `limbeck label --out` was given",
        )
    return manifest


class OutputStore:
    """A store that is there, read one shard at a time.

    Attributes:
        files: its folder.
        manifest: its description.
    """

    def __init__(self, files: StoreFiles, manifest: StoreManifest) -> None:
        self.files = files
        self.manifest = manifest
        self._mapped: dict[str, pa.Table] = {}

    @property
    def classes(self) -> tuple[str, ...]:
        """Names in id order; () where the answer is a number or a token."""
        return self.manifest.classes

    @property
    def kind(self) -> str:
        """The task type."""
        return self.manifest.kind

    @property
    def columns(self) -> tuple[OutputColumn, ...]:
        """The outputs stored for each row."""
        return self.manifest.columns

    @property
    def own_columns(self) -> tuple[OutputColumn, ...]:
        """The outputs stored for the teacher itself, without the outputs of a team's members."""
        return tuple(column for column in self.columns if MEMBER not in column.name)

    @property
    def members(self) -> tuple[str, ...]:
        """The names of a team's members, whose own outputs are stored as `MEMBER:OUTPUT`."""
        named = (column.name.rpartition(MEMBER)[0] for column in self.columns)
        return tuple(dict.fromkeys(name for name in named if name))

    def outputs_of(self, member: str = "") -> dict[str, str]:
        """By output of a member, or of the teacher or team itself, the column in which it is.

        Raises:
            LimbeckError: the team has no member of that name.
        """
        if not member:
            return {column.name: column.name for column in self.own_columns}
        if member not in self.members:
            if not self.members:
                raise LimbeckError(
                    f"{self.files.url} is of {self.manifest.teacher.name} alone, and of no member {member!r}",
                    f"leave #{member} out",
                )
            raise LimbeckError(unknown(f"member of {self.files.url}", member, self.members))
        start = member + MEMBER
        names = (column.name for column in self.columns)
        return {name.removeprefix(start): name for name in names if name.startswith(start)}

    @cached_property
    def row_ids(self) -> np.ndarray:
        """The ids of its rows in their order, int64 (n,)."""
        found = [
            self._table(shard, [ROW])[ROW].to_numpy()
            if shards.is_mapped(shard)
            else shards.read_rows(self.files, shard)
            for shard in self._shards
        ]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return self.manifest.stored_rows

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """Those of some ids that it does not hold, each once."""
        return np.setdiff1d(ids, self.row_ids)

    def check_rows(self, ids: np.ndarray) -> None:
        """Raise LimbeckError for ids that it does not hold, with how many."""
        missing = self.missing(ids)
        if len(missing):
            raise LimbeckError(
                f"{self.files.url}: {len(missing)} of {len(np.unique(ids))} rows are not stored there",
                "label these rows too: `limbeck label` with their file as --data or --unlabelled",
            )

    def take(self, ids: np.ndarray, columns: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Stored outputs of some rows, in the order of `ids`, which may repeat.

        Args:
            ids: from `limbeck.data.row_ids`, (n,).
            columns: names; by default all outputs and, where there is one, `label`.

        Returns:
            By name (n, …); an object array of arrays where each row has as many values as it has tokens.

        Raises:
            LimbeckError: ids that are not stored, with how many; or a column that is not.
        """
        ids = np.asarray(ids, dtype=np.int64)
        wanted = self._wanted(columns)
        shard, place = self._places_of(ids)
        found: dict[str, np.ndarray] = {}
        for number in np.unique(shard):
            here = np.flatnonzero(shard == number)
            table = self._table(self._shards[number], wanted)
            rows = table.take(pa.array(place[here]))
            for name in wanted:
                values = self._values(name, rows[name])
                if name not in found:
                    found[name] = np.empty((len(ids), *values.shape[1:]), dtype=values.dtype)
                found[name][here] = values
        if not len(ids):
            raise LimbeckError("no rows are requested", "give at least one row id")
        return found

    def shards(self, columns: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        """Shard by shard, in the order of `row_ids`, what `take` gives of these columns.

        Raises:
            LimbeckError: a column that is not stored.
        """
        for table in self.tables(wanted := self._wanted(columns)):
            yield {name: self._values(name, table[name]) for name in wanted}

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Shard by shard everything that it holds, as Arrow tables: `row`, texts, `label`, outputs."""
        for shard in self._shards:
            yield self._table(shard, columns)

    def table_of_all(self) -> pa.Table:
        """Everything, of an entry of training as views of its mapped file."""
        return pa.concat_tables(self.tables())

    def content(self, shard: ShardRecord) -> bytes:
        """A shard's bytes, held against its checksum."""
        return shards.shard_content(self.files, shard)

    def _table(self, shard: ShardRecord, columns: Sequence[str] | None) -> pa.Table:
        """Some columns of a shard; all if none are named."""
        if not shards.is_mapped(shard):
            return shards.read_shard(self.files, shard, columns)
        if shard.name not in self._mapped:
            self._mapped[shard.name] = shards.map_shard(self.files, shard)
        table = self._mapped[shard.name]
        return table if columns is None else table.select([*columns])

    @property
    def _shards(self) -> list[ShardRecord]:
        return sorted(self.manifest.shards, key=lambda shard: shard.name)

    def _wanted(self, columns: Sequence[str] | None) -> list[str]:
        own = [column.name for column in self.columns]
        known = own + [shards.LABEL] * self.manifest.labelled
        texts = [*self.manifest.rows.columns] * self.manifest.text
        unknown = [name for name in columns or () if name not in (*known, *texts, ROW)]
        if unknown:
            raise LimbeckError(
                f"{self.files.url}: {', '.join(unknown)} is not stored",
                f"stored: {', '.join([*known, *texts])}",
            )
        return [*columns] if columns is not None else known

    def _values(self, name: str, array: pa.ChunkedArray) -> np.ndarray:
        column = self.manifest.column(name)
        return array.to_numpy() if column is None else shards.shaped_values(column, array)

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.row_ids, kind="stable")
        return self.row_ids[order], order

    def places(self, ids: np.ndarray) -> np.ndarray:
        """The position of each id in `row_ids`, (n,).

        Raises:
            LimbeckError: ids that are not stored, with how many.
        """
        known, order = self._sorted
        if not len(known):
            raise LimbeckError(f"{self.files.url} holds no rows", "make it again")
        near = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        if (known[near] != ids).any():
            self.check_rows(ids)
        return order[near]

    def _places_of(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each id its shard, and its row there."""
        flat = self.places(ids)
        ends = np.cumsum([shard.rows for shard in self._shards])
        shard = np.searchsorted(ends, flat, side="right")
        return shard, flat - np.concatenate([[0], ends])[shard]
