"""`limbeck outputs`: what is stored, what is in it, and getting rid of it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import limbeck
from limbeck.cli.app import app
from limbeck.labelling.language_models.answers import JOURNALS, AnswerJournal
from limbeck.outputs.cache import SHARD, Store, describe
from limbeck.outputs.manifest import (
    MANIFEST,
    ExamplesManifest,
    RowsIdentity,
    StoreManifest,
    TeacherIdentity,
)


@pytest.fixture
def store(monkeypatch, tmp_path) -> Store:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    store = Store(tmp_path / "cache")
    for used, (key, task) in enumerate([("abcdef0123456789", "mrpc"), ("fedcba9876543210", "rte")]):
        with store.writing(key) as folder:
            (folder / SHARD).write_bytes(b"x" * 2**20)
            manifest = StoreManifest(
                complete=False,
                kind="sentence",
                task=task,
                classes=("no", "yes"),
                teacher=TeacherIdentity(name="runs/teacher", fingerprint={}),
                rows=RowsIdentity(count=1000, fingerprint=""),
                settings={"precision": "bf16"},
                keyed="index",
            )
            describe(folder, manifest, rows=1000)
        os.utime(store.folder / key / MANIFEST, (used, used))
    return store


class Praises:
    """A labeller without a model."""

    name, kind, classes, batch_size = "praises", "sentence", ("bad", "good"), 8
    outputs = ("probabilities",)

    def fingerprint(self):
        return {}

    def score(self, rows):
        good = ["good" in row["sentence"] for row in rows]
        return {"probabilities": np.eye(2, dtype=np.float32)[np.array(good, dtype=int)]}


@pytest.fixture
def labelled(tmp_path) -> Path:
    (tmp_path / "rows.txt").write_text("a good film\na slow plot\n")
    limbeck.label(Praises(), tmp_path / "rows.txt", out=tmp_path / "labelled", with_text=True)
    return tmp_path / "labelled"


def outputs(*arguments: object):
    return CliRunner().invoke(app, ["outputs", *map(str, arguments)])


def test_list_shows_every_entry_and_their_sum(store):
    answer = outputs("list")
    assert answer.exit_code == 0
    lines = [line for line in answer.output.splitlines() if "runs/teacher" in line]
    assert [("rte" in line, "mrpc" in line) for line in lines] == [(True, False), (False, True)]
    assert "abcdef01" in lines[1] and "1.0 MiB" in lines[1] and "2.0 MiB" in answer.output
    assert "1,000" in lines[1] and "bf16" in lines[1]


def test_list_shows_the_stores_that_are_named(store, labelled):
    (line,) = (line for line in outputs("list", labelled).output.splitlines() if "praises" in line)
    assert "teacher outputs" in line and " 2 " in line
    (line,) = (line for line in outputs("list", labelled).output.splitlines() if "praises" in line)
    size = sum(path.stat().st_size for path in labelled.glob("shard-*"))
    assert f"{size / 1024:.1f} KiB" in line


def test_list_shows_what_is_there_and_says_what_is_not(store, labelled, tmp_path):
    """One that is missing, one that is damaged and a key that nothing has hide none of the others."""
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / MANIFEST).write_text("{")
    names = ["memory://nowhere", labelled, "0000", tmp_path / "damaged", "abcdef01"]
    answer = outputs("list", *names)
    assert answer.exit_code == 2
    assert [word in answer.stdout for word in ("praises", "abcdef01", "fedcba98")] == [True] * 3
    assert "3 things to fix" in answer.stderr
    assert "memory://nowhere is no store" in answer.stderr and "0000 is no store" in answer.stderr
    assert f"{tmp_path / 'damaged'}" in answer.stderr
    assert "praises" not in answer.stderr and "abcdef01 is" not in answer.stderr


def test_list_tells_augmented_examples_from_outputs(store):
    with store.writing("0123456789abcdef") as folder:
        (folder / SHARD).write_bytes(b"x")
        made = ExamplesManifest(complete=False, model="runs/language", task="sst2", rows=7)
        describe(folder, made, rows=7)
    lines = outputs("list").output.splitlines()
    assert ["teacher outputs" in line for line in lines if "runs/teacher" in line] == [True, True]
    (line,) = (line for line in lines if "runs/language" in line)
    assert "augmented examples" in line and "sst2" in line and "01234567" in line


def test_show_tells_whose_outputs_and_some_rows(store, labelled):
    shown = outputs("show", labelled).output
    for said in ("praises", "rows.txt", "bad, good", "probabilities 2 float32", " KiB", "1 shard"):
        assert said in shown, said
    good, slow = (line for line in shown.splitlines() if "film" in line or "plot" in line)
    assert "good" in good and "0.000 1.000" in good
    assert "bad" in slow and "1.000 0.000" in slow
    assert "film" not in outputs("show", labelled, "--rows", "0").output


def test_show_a_key(store):
    assert "runs/teacher" in outputs("show", "abcdef01").output


def test_show_what_is_not_there(store, tmp_path):
    answer = outputs("show", tmp_path / "nothing")
    assert answer.exit_code == 2 and "is no store" in answer.output


def test_clear_removes_what_is_named_by_its_beginning(store):
    answer = outputs("clear", "abcdef01")
    assert answer.exit_code == 0 and "removed 1 of 2 entries, 1.0 MiB" in answer.output
    assert [entry.key[:4] for entry in store.entries()] == ["fedc"]


@pytest.mark.parametrize("places", [["ab1"], ["abcdef01", "ab"], ["ab1", "fe", "nothing"]])
def test_a_beginning_of_several_keys_is_refused_and_nothing_removed(
    store, journal, labelled, places
):
    """Answers that were paid for among them."""
    with store.writing("ab1f" * 8) as folder:
        (folder / SHARD).write_bytes(b"x")
        describe(folder, ExamplesManifest(complete=False, model="m", rows=1), rows=1)
    answer = outputs("clear", labelled, *places)
    assert answer.exit_code == 2 and len(store.entries()) == 3 and journal.exists()
    assert (labelled / MANIFEST).exists()
    if "nothing" in places:
        return
    (said,) = (line for line in answer.stderr.splitlines() if "begins several keys" in line)
    short = min(places, key=len)
    assert f"{short} begins" in said
    assert [key in said for key in ("ab1f" * 8, "ab12" * 8)] == [True, True]
    assert ("abcdef0123456789" in said) is (short == "ab") and "fedc" not in said
    for key, left in (("ab12" * 8, 3), ("ab1f" * 8, 2), ("ab", 1)):
        assert outputs("clear", key).exit_code == 0
        assert not journal.exists() and len(store.entries()) == left


def test_what_begins_several_keys_is_not_shown(store, journal):
    with store.writing("ab1f" * 8) as folder:
        (folder / SHARD).write_bytes(b"x")
        describe(folder, ExamplesManifest(complete=False, model="m", rows=1), rows=1)
    answer = outputs("show", "ab1")
    assert answer.exit_code == 2 and "begins several keys" in answer.stderr


def test_clear_without_a_name_removes_everything(store):
    (store.folder / "left.limbeck-part").mkdir()
    assert "removed 2 of 2" in outputs("clear").output
    assert list(store.folder.iterdir()) == []
    assert "nothing is stored" in outputs("list").output


def test_clear_removes_a_store_and_nothing_beside_it(store, labelled):
    (labelled / "thesis.tex").write_text("mine")
    answer = outputs("clear", labelled)
    assert answer.exit_code == 0 and "removed 1" in answer.output
    assert [path.name for path in labelled.iterdir()] == ["thesis.tex"]
    assert len(store.entries()) == 2


def test_a_key_that_is_not_there_is_refused_and_nothing_removed(store):
    answer = outputs("clear", "abcdef01", "nothing")
    assert answer.exit_code == 2
    assert len(store.entries()) == 2


# ---- the answers of endpoints ----


@pytest.fixture
def journal(store) -> Path:
    """Of an endpoint that answered about three rows, one of which is asked about again."""
    about = {"model": "tiny at localhost:8000", "mode": "logprobs"}
    kept = AnswerJournal(store.folder / JOURNALS / f"{'ab12' * 8}.jsonl", about)
    for row in "abca":
        kept.add(row, {"logs": [-0.1, -2.3], "coverage": [0.9]}, (40, 1))
    kept.add(None, {}, (7, 0))
    path = store.folder / JOURNALS / f"{'ab12' * 8}.jsonl"
    with path.open("ab") as stream:  # as a kill leaves it
        stream.write(b'{"key": "d", "tok')
    return path


def test_answers_are_listed_and_shown(store, journal):
    size = f"{journal.stat().st_size} B"
    (line,) = (line for line in outputs("list").output.splitlines() if "endpoint answers" in line)
    for said in ("ab12ab12", "tiny at localhost:8000", " 3 ", size):
        assert said in line, said
    shown = outputs("show", "ab12").output
    for said in ("logprobs", "tiny at localhost:8000", "167 read, 4 written", size, str(journal)):
        assert said in shown, said


def test_answers_are_removed_only_by_name_or_where_it_is_asked_for(store, journal):
    answer = outputs("clear")
    assert "removed 2 of 3" in answer.output and "--answers removes them" in answer.output
    assert journal.exists() and store.entries() == []
    assert "removed 1 of 1" in outputs("clear", "ab12").output
    assert not journal.exists()


def test_clear_with_answers_removes_everything(store, journal):
    assert "removed 3 of 3" in outputs("clear", "--answers").output
    assert not journal.exists() and "nothing is stored" in outputs("list").output


def test_clear_a_key_with_all_answers(store, journal):
    assert "removed 2 of 3" in outputs("clear", "abcdef01", "--answers").output
    assert [entry.key[:4] for entry in store.entries()] == ["fedc"]
    assert not journal.exists()
