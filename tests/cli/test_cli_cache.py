"""`limbeck cache`: what is stored, and getting rid of it."""

from __future__ import annotations

import os

import pytest
from typer.testing import CliRunner

from limbeck.cli.app import app
from limbeck.teachers.outputs import Store
from limbeck.teachers.outputs.store import ABOUT, TABLE, describe


@pytest.fixture
def store(monkeypatch, tmp_path) -> Store:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    store = Store(tmp_path)
    for used, (key, task) in enumerate([("abcdef0123456789", "mrpc"), ("fedcba9876543210", "rte")]):
        with store.writing(key) as folder:
            (folder / TABLE).write_bytes(b"x" * 2**20)
            about = {"teacher": "runs/teacher", "task": task, "rows": 1000, "precision": "bf16"}
            describe(folder, about)
        os.utime(tmp_path / key / ABOUT, (used, used))
    return store


def limbeck(*arguments: str):
    return CliRunner().invoke(app, ["cache", *arguments])


def test_list_shows_every_entry_and_their_sum(store):
    answer = limbeck("list")
    assert answer.exit_code == 0
    lines = [line for line in answer.output.splitlines() if "runs/teacher" in line]
    assert [("rte" in line, "mrpc" in line) for line in lines] == [(True, False), (False, True)]
    assert "abcdef01" in lines[1] and "0.001" in lines[1] and "0.002" in answer.output


def test_list_tells_augmented_examples_from_outputs(store):
    with store.writing("0123456789abcdef") as folder:
        (folder / TABLE).write_bytes(b"x")
        describe(
            folder,
            {"content": "augmented examples", "model": "runs/language", "task": "sst2", "rows": 7},
        )
    lines = limbeck("list").output.splitlines()
    assert ["teacher outputs" in line for line in lines if "runs/teacher" in line] == [True, True]
    (line,) = (line for line in lines if "runs/language" in line)
    assert "augmented examples" in line and "sst2" in line and "01234567" in line


def test_clear_removes_what_is_named_by_its_beginning(store):
    answer = limbeck("clear", "abcdef01")
    assert answer.exit_code == 0 and "removed 1 of 2" in answer.output
    assert [entry.key[:4] for entry in store.entries()] == ["fedc"]


def test_clear_without_a_name_removes_everything(store):
    (store.folder / "left.limbeck-part").mkdir()
    assert "removed 2 of 2" in limbeck("clear").output
    assert list(store.folder.iterdir()) == []
    assert "nothing is stored" in limbeck("list").output


def test_a_key_that_is_not_there_is_refused_and_nothing_removed(store):
    answer = limbeck("clear", "abcdef01", "nothing")
    assert answer.exit_code == 2
    assert len(store.entries()) == 2
