"""`label` by a teacher of any number of classes a row: its store has no column of one class, and every reader copes."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

import limbeck
import several_labels as several
import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.outputs.cache import Store
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.manifest import MANIFEST, StoreManifest
from limbeck.outputs.mapped import training_entry
from limbeck.outputs.store import open_store
from limbeck.outputs.writer import copy_store

LINES = list(dict.fromkeys(tiny.sentences(20)))


class Unsure:
    """Says of each class that it is rather not there, so of no row that it is of one."""

    name, kind, classes, batch_size = "unsure", "multi-label", ("x", "y"), 8
    outputs = ("probabilities",)

    def fingerprint(self):
        return {}

    def score(self, rows):
        return {"probabilities": np.full((len(rows), 2), 0.499, dtype=np.float32)}


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(LINES))
    return path


def columns_of(folder) -> set[tuple[str, ...]]:
    """Of every shard, as pyarrow alone reads it."""
    return {tuple(parquet.read_schema(path).names) for path in folder.glob("shard-*.parquet")}


def test_rows_of_no_class_get_none(rows, tmp_path):
    store = limbeck.label(Unsure(), rows, out=tmp_path / "store", shard_rows=8, with_text=True)
    assert columns_of(tmp_path / "store") == {("row", "text", "probabilities")}
    assert not store.manifest.labelled and [*store.take(store.row_ids)] == ["probabilities"]
    shown = CliRunner().invoke(app, ["outputs", "show", str(tmp_path / "store")])
    assert shown.exit_code == 0 and "0.499 0.499" in shown.output
    head = next(line.split() for line in shown.output.splitlines() if line.startswith("row"))
    assert "label" not in head


def test_a_models_store_and_its_copies_have_none(rows, tmp_path):
    teacher = tiny.save(several.knowing_teacher(), tmp_path / "teacher")
    store = limbeck.label(str(teacher), rows, out=tmp_path / "store", shard_rows=8)
    assert store.kind == "multi-label"
    assert columns_of(tmp_path / "store") == {("row", "logits", "probabilities")}
    entry = training_entry(store, store.row_ids, cache=Store(tmp_path / "cache"))
    for name, place in (("a", store.files.url), ("b", entry.path)):
        made = copy_store(open_store(place), StoreFiles(str(tmp_path / name)))
        assert not made.labelled
        assert columns_of(tmp_path / name) == {("row", "logits", "probabilities")}


def test_the_column_of_earlier_versions_is_not_read(rows, tmp_path):
    """They said that a row is of the likeliest class, and that the store has labels."""
    store = limbeck.label(Unsure(), rows, out=tmp_path / "store")
    said = store.manifest.model_copy(update={"labelled": True})
    (tmp_path / "store" / MANIFEST).write_text(said.written())
    older = open_store(tmp_path / "store")
    assert not older.manifest.labelled and [*older.take(older.row_ids)] == ["probabilities"]
    again = StoreManifest.read(said.model_copy(update={"kind": "sentence"}).written().encode(), "")
    assert again.labelled
