"""The folder of stored teacher outputs: whole entries only, the longest unused out first."""

from __future__ import annotations

import json
import os

import pytest

from limbeck.outputs.cache import SHARD, Store, default_store, describe
from limbeck.outputs.manifest import MANIFEST, ExamplesManifest

MADE = ExamplesManifest(complete=False, model="m", rows=1)


def put(store: Store, key: str, size: int, used: float) -> None:
    with store.writing(key) as folder:
        (folder / SHARD).write_bytes(b"x" * size)
        describe(folder, MADE, rows=1)
    os.utime(store.folder / key / MANIFEST, (used, used))


def test_an_entry_is_found_and_counts_as_used(tmp_path):
    store = Store(tmp_path / "new")
    assert store.find("a") is None and store.entries() == []
    put(store, "a", 5, used=1)
    put(store, "b", 7, used=2)
    assert [entry.key for entry in store.entries()] == ["b", "a"]
    assert store.find("a").bytes == 5
    assert [entry.key for entry in store.entries()] == ["a", "b"]


def test_a_stopped_build_leaves_nothing_to_find(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt), store.writing("a") as folder:
        (folder / SHARD).write_bytes(b"half")
        raise KeyboardInterrupt
    assert store.find("a") is None and list(tmp_path.iterdir()) == []


def test_what_a_killed_build_leaves_is_not_found_and_is_swept(tmp_path):
    store = Store(tmp_path)
    part = tmp_path / "a.limbeck-part"
    part.mkdir()
    (part / SHARD).write_bytes(b"half")
    assert store.find("a") is None and store.entries() == []
    store.sweep()
    assert not part.exists()


def test_a_build_is_no_entry_before_it_has_its_name(tmp_path):
    store = Store(tmp_path)
    with store.writing("a") as folder:
        (folder / SHARD).write_bytes(b"all of it")
        describe(folder, MADE, rows=1)
        assert store.entries() == [] and store.make_room(100, limit=50) == []
    assert [entry.key for entry in store.entries()] == ["a"]


def test_a_build_that_is_at_work_is_not_swept(tmp_path):
    store, other = Store(tmp_path), Store(tmp_path)
    with store.lock("a"), store.writing("a") as folder:
        other.sweep()
        assert folder.is_dir()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / SHARD).write_bytes(b"cut"),
        lambda path: (path / SHARD).unlink(),
        lambda path: (path / MANIFEST).write_text("{"),
        lambda path: (path / MANIFEST).unlink(),
    ],
)
def test_a_damaged_entry_is_not_found(tmp_path, damage):
    store = Store(tmp_path)
    put(store, "a", 9, used=1)
    damage(tmp_path / "a")
    assert store.find("a") is None
    put(store, "a", 4, used=1)  # and is replaced
    assert store.find("a").bytes == 4


def test_room_is_made_by_those_longest_unused(tmp_path):
    store = Store(tmp_path)
    for key, size, used in (("old", 10, 1), ("older", 10, 0), ("new", 10, 2)):
        put(store, key, size, used)
    assert [entry.key for entry in store.make_room(5, limit=30)] == ["older"]
    assert [entry.key for entry in store.make_room(10, limit=30)] == []
    assert [entry.key for entry in store.make_room(25, limit=30)] == ["old", "new"]


def test_the_folder_is_the_users_cache_or_the_one_named(monkeypatch, tmp_path):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "mine"))
    assert default_store().folder == tmp_path / "mine"
    monkeypatch.delenv("LIMBECK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert default_store().folder == tmp_path / "caches" / "limbeck"


def test_what_an_entry_says_of_itself_holds_its_size(tmp_path):
    put(Store(tmp_path), "a", 6, used=1)
    assert json.loads((tmp_path / "a" / MANIFEST).read_text())["shards"][0]["bytes"] == 6
