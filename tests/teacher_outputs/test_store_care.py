"""A store kept whole: damage far away is repaired, two processes never write one, nothing of it is left behind."""

from __future__ import annotations

import os
import subprocess
import sys

import fsspec
import pytest
from typer.testing import CliRunner

import limbeck
import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.store import open_store
from limbeck.outputs.writer import StoreWriter, remove_store
from limbeck.support import lock
from limbeck.support.errors import LimbeckError
from limbeck.teachers.labeller import RowsMissingError
from stopping_labeller import Stops

LINES = list(dict.fromkeys(tiny.sentences(40)))[:24]
FAR = "memory://bucket/store"
MEASURED = 16
"""Rows that are labelled first, four at a time, to tell what all of them will take."""


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(LINES))
    return path


@pytest.fixture
def far():
    """A file system that is not this machine's."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    return system


def damage(system, name: str) -> None:
    """Another byte amidst a file, of the same size."""
    body = bytearray(system.cat_file(f"/bucket/store/{name}"))
    body[len(body) // 2] ^= 255
    system.pipe_file(f"/bucket/store/{name}", bytes(body))


@pytest.mark.parametrize("broken", ["damaged", "missing"])
def test_what_the_reader_promises_of_a_shard_far_away_is_true(rows, far, broken):
    store = limbeck.label(Stops(), rows, out=FAR, shard_rows=8)
    whole = {one.name: store.files.read(one.name) for one in store.manifest.shards}
    if broken == "damaged":
        damage(far, "shard-00001.parquet")
    else:
        far.rm_file("/bucket/store/shard-00001.parquet")
    with pytest.raises(LimbeckError, match=rf"shard-00001\.parquet is {broken}") as caught:
        open_store(FAR).take(store.row_ids, ["logits"])
    assert "run the same `limbeck label` command again" in caught.value.problems[0].fix
    labeller = Stops()
    again = limbeck.label(labeller, rows, out=FAR, shard_rows=8)
    assert {*labeller.seen[MEASURED:]} == {*LINES[8:16]}
    assert {one.name: again.files.read(one.name) for one in again.manifest.shards} == whole


def test_a_whole_store_far_away_is_read_and_made_no_second_time(rows, far, monkeypatch):
    limbeck.label(Stops(), rows, out=FAR, shard_rows=8)
    labeller = Stops()
    limbeck.label(labeller, rows, out=FAR, shard_rows=8)
    assert labeller.seen == []

    def broken(path, **kwargs):
        raise OSError("the network is down")

    # That nobody knows is not that it is damaged.
    before, read = far.cat_file("/bucket/store/manifest.json"), far.cat_file
    monkeypatch.setattr(
        type(far),
        "cat_file",
        lambda self, path, **given: read(path) if "manifest" in path else broken(path),
    )
    with pytest.raises(LimbeckError, match="the network is down"):
        limbeck.label(labeller, rows, out=FAR, shard_rows=8)
    monkeypatch.undo()
    assert far.cat_file("/bucket/store/manifest.json") == before and labeller.seen == []


def test_a_store_far_away_that_is_continued_is_not_read(rows, far):
    """Which may be often; what is damaged meanwhile is found once it is complete."""
    with pytest.raises(KeyboardInterrupt):
        limbeck.label(Stops(7), rows, out=FAR, shard_rows=8)
    damage(far, "shard-00000.parquet")
    limbeck.label(Stops(), rows, out=FAR, shard_rows=8)
    store = limbeck.label(Stops(), rows, out=FAR, shard_rows=8)
    assert len(store.take(store.row_ids)["logits"]) == len(LINES)


# ---- two processes ----

# Another program's hold on a file, by the library's own lock, until a line comes.
HOLDS = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_two_processes_never_write_one_store(rows, tmp_path):
    folder, labeller = tmp_path / "store", Stops()
    with pytest.raises(KeyboardInterrupt):
        limbeck.label(Stops(7), rows, out=folder, shard_rows=8)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder / lock.LOCK)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LimbeckError, match="is in use by another process"):
            limbeck.label(labeller, rows, out=folder, shard_rows=8)
        with pytest.raises(LimbeckError, match="is in use by another process"):
            remove_store(str(folder))
        assert labeller.seen == []
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    finally:
        other.communicate("over\n", timeout=30)
    assert len(limbeck.label(labeller, rows, out=folder, shard_rows=8)) == len(LINES)


def test_the_process_that_writes_holds_the_lock_while_it_labels(rows, tmp_path):
    """Whoever comes meanwhile, as this labeller does, is told so; afterwards the store is free."""
    said = []

    class Nested(Stops):
        def score(self, asked):
            with pytest.raises(LimbeckError, match=f"is in use by process {os.getpid()}") as caught:
                limbeck.label(Stops(), rows, out=tmp_path / "store", shard_rows=8)
            said.append(caught.value)
            return super().score(asked)

    limbeck.label(Nested(), rows, out=tmp_path / "store", shard_rows=8)
    assert len(said) > 3
    limbeck.label(Stops(), rows, out=tmp_path / "store", shard_rows=8)


# ---- nothing left, nothing missing ----


class Silent(Stops):
    """Has no outputs for one text."""

    def score(self, rows):
        if bad := {at: "no" for at, row in enumerate(rows) if row["sentence"] == LINES[9]}:
            raise RowsMissingError(bad)
        return super().score(rows)


@pytest.mark.parametrize("place", ["folder", "far"])
@pytest.mark.parametrize("kept", ["error", "drop"])
def test_a_folder_that_was_cleared_is_labelled_into_again(rows, tmp_path, far, place, kept):
    out = FAR if place == "far" else str(tmp_path / "store")
    try:
        limbeck.label(Silent(), rows, out=out, shard_rows=8, missing_rows=kept)
    except LimbeckError as error:
        assert kept == "error" and "1 row has no outputs" in str(error)
    assert StoreFiles(out).exists("missing.json")
    assert CliRunner().invoke(app, ["outputs", "clear", out]).exit_code == 0
    assert StoreFiles(out).names() == [] and not (tmp_path / "store").exists()
    assert len(limbeck.label(Stops(), rows, out=out, shard_rows=4)) == len(LINES)


def test_what_earlier_versions_left_of_a_cleared_store_is_in_nobodys_way(rows, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "missing.json").write_text("[]")
    assert len(limbeck.label(Stops(), rows, out=tmp_path / "store")) == len(LINES)
    assert not (tmp_path / "store" / "missing.json").exists()


@pytest.mark.parametrize("place", ["folder", "far"])
@pytest.mark.parametrize("change", ["elsewhere", "shorter"])
def test_a_shard_that_is_not_in_its_place_is_not_recorded(rows, tmp_path, far, place, change):
    """As of a worker that takes a path for one below its own folder."""
    whole = limbeck.label(Stops(), rows, out=tmp_path / "whole", shard_rows=8)
    files = StoreFiles(FAR if place == "far" else str(tmp_path / "store"))
    empty = whole.manifest.model_copy(update={"shards": (), "complete": False})
    writer = StoreWriter.begin(files, empty)
    shard = whole.manifest.shards[0]
    if change == "shorter":
        files.write(shard.name, whole.files.read(shard.name)[:-1])
    assert files.size(shard.name) == (shard.bytes - 1 if change == "shorter" else -1)
    with pytest.raises(LimbeckError, match=r"shard-00000\.parquet was made, and is not there"):
        writer.record(shard, whole.manifest.layout)
    assert writer.done == frozenset()
    files.write(shard.name, whole.files.read(shard.name))
    writer.record(shard, whole.manifest.layout)
    assert writer.done == {shard.name}


@pytest.mark.parametrize("where", ["here", FAR])
def test_shards_that_the_manifest_does_not_name_are_removed_with_the_store(
    rows, far, tmp_path, where
):
    """As a kill between a shard and its record leaves one, and a far file system a part of one."""
    place = str(tmp_path / "store") if where == "here" else FAR
    store = limbeck.label(Stops(), rows, out=place, shard_rows=8)
    shard = store.files.read("shard-00002.parquet")
    for name in ("shard-00009.parquet", "shard-00010.parquet.part", "shard-9.csv", "mine.parquet"):
        store.files.write(name, shard)
    assert remove_store(place) == store.manifest.bytes
    assert store.files.names() == ["mine.parquet", "shard-9.csv"]
