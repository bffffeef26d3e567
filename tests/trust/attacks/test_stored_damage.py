"""What is stored is read as it was written or made again; what others keep beside it is left alone."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.activations import Request
from limbeck.cli.app import app
from limbeck.outputs.building import build
from limbeck.outputs.cache import SHARD, Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.manifest import MANIFEST, EntryAbout
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support import files
from limbeck.teachers.teacher import Teacher

WANTED = Request.hidden([1, 2], pool="cls") | Request.of_logits()


def batch(rows: list[int]) -> dict[str, torch.Tensor]:
    data = tiny.rows(12)
    width = max(len(data[row]["input_ids"]) for row in rows)
    padded = {
        name: torch.tensor([data[row][name] + [0] * (width - len(data[row][name])) for row in rows])
        for name in ("input_ids", "attention_mask")
    }
    return padded | {"index": torch.tensor(rows)}


@pytest.fixture
def live() -> Teacher:
    return Teacher(tiny.knowing_teacher(3))


def stored(place: Store, live: Teacher, key: str = "key"):
    with place.writing(key) as folder:
        batches = [batch([0, 1, 2, 3]), batch([4, 5])]
        build(
            folder, live, batches, Ask(WANTED), precision="fp32", about=EntryAbout(task="reviews")
        )
    return place.find(key)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(8))
def test_one_bit_of_the_table_is_seen(tmp_path, live, caplog, seed):
    entry = stored(Store(tmp_path), live)
    flip(entry.table, random.Random(seed).randrange(entry.bytes * 8))
    with caplog.at_level(logging.WARNING, "limbeck"):
        assert Store(tmp_path).find("key") is None
    assert "damaged, and is made again" in caplog.text


def test_no_bit_of_the_description_changes_what_is_read(tmp_path, live):
    """A column named otherwise, or of another layer, would be read without a word."""
    entry = stored(Store(tmp_path), live)
    about = (entry.path / MANIFEST).read_bytes()
    for bit in random.Random(1).sample(range(len(about) * 8), 300):
        (entry.path / MANIFEST).write_bytes(about)
        flip(entry.path / MANIFEST, bit)
        found = Store(tmp_path).find("key")
        assert found is None or found.manifest == entry.manifest, bit


@pytest.mark.parametrize("name", [SHARD, MANIFEST])
@pytest.mark.parametrize("content", [b"", b"cut", None])
def test_files_that_are_cut_or_gone_are_made_again(tmp_path, live, name, content):
    entry = stored(Store(tmp_path), live)
    if content is None:
        (entry.path / name).unlink()
    else:
        (entry.path / name).write_bytes(content)
    assert Store(tmp_path).find("key") is None
    assert stored(Store(tmp_path), live) is not None


def test_an_entry_is_verified_once_and_not_in_every_batch(tmp_path, live, monkeypatch):
    stored(Store(tmp_path), live)
    read: list[Path] = []

    checksum = files.checksum

    def counting(path):
        read.append(path)
        return checksum(path)

    monkeypatch.setattr(files, "checksum", counting)
    teacher = CachedTeacher(live, Store(tmp_path).find("key"))
    assert [path.name for path in read] == [SHARD]
    for rows in ([0, 5], [1, 2, 3], [4]):
        teacher(batch(rows), WANTED)
    assert len(read) == 1


def test_a_run_makes_damaged_answers_again_and_ends_the_same(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    recipe = Recipe.load(
        "kd",
        task="reviews",
        data=str(tiny.write_csv(tmp_path / "reviews.csv", 40)),
        text_columns=["review"],
        label_column="verdict",
        teacher=str(tiny.save(tiny.knowing_teacher(3), tmp_path / "teacher")),
        **{"student.init": str(tiny.save(tiny.bert(2), tmp_path / "start"))},
        epochs=1,
        batch_size=8,
        max_length=24,
        lr=1e-2,
        cache="always",
    )
    distill(recipe, tmp_path / "one", report=False)
    (entry,) = Store(tmp_path / "store").entries()
    before = entry.table.read_bytes()
    flip(entry.table, entry.bytes * 8 - 1000)
    with caplog.at_level(logging.WARNING, "limbeck"):
        distill(recipe, tmp_path / "two", report=False)
    assert "damaged, and is made again" in caplog.text
    assert entry.table.read_bytes() == before
    weights = [load_file(tmp_path / run / "student/model.safetensors") for run in ("one", "two")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


# ---- on disk before it has its name ----


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the names of open files")
def test_every_file_is_on_disk_before_an_entry_has_its_name(tmp_path, live, monkeypatch):
    order: list[str] = []
    sync, rename = os.fsync, Path.rename

    def syncing(handle):
        order.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        return sync(handle)

    def renaming(self, target):
        order.append(f"rename to {Path(target).name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "rename", renaming)
    stored(Store(tmp_path), live)
    at = order.index("rename to key")
    assert {SHARD, MANIFEST, "key.limbeck-part"} <= set(order[:at])
    assert tmp_path.name in order[at:]


# ---- what is not ours ----


def test_other_programs_unfinished_folders_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    for name in ("film.part", "0123456789abcdef0123456789abcdef.part", "empty.part"):
        (tmp_path / name).mkdir()
    (tmp_path / "film.part" / "precious").write_text("theirs")
    (tmp_path / "other.lock").write_text("theirs")
    (tmp_path / "killed.limbeck-part").mkdir()
    before = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    answer = CliRunner().invoke(app, ["outputs", "clear"])
    assert answer.exit_code == 0, answer.output
    after = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    assert before - after == {Path("killed.limbeck-part")}
